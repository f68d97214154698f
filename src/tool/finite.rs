//! Whether every number in a value is finite: `serde_json` writes NaN and infinity as null and says
//! nothing, so a tool's result would silently be another one. And whether it is nested so deeply that writing it
//! would overflow the stack, which ends the process.

use std::fmt;

use serde::ser::{self, Serialize};

use crate::turn::canonical::MAX_DEPTH;

/// Why the check failed.
#[derive(Debug)]
pub(super) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl ser::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Walks the value and writes nothing.
///
/// # Errors
/// A number is NaN or infinite, the value is nested too deeply, or its own `Serialize` fails.
pub(super) fn check(value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    value.serialize(Walk { around: 0, any_number: false })
}

/// Whether the value is nested too deeply, as far as its `Serialize` tells.
pub(super) fn is_deep(value: &(impl Serialize + ?Sized)) -> bool {
    value.serialize(Walk { around: 0, any_number: true }).is_err()
}

#[derive(Clone, Copy)]
struct Walk {
    /// How many lists and objects are around.
    around: usize,
    /// Whether numbers are none of its business.
    any_number: bool,
}

impl Walk {
    /// Into a list or an object.
    fn into(self) -> Result<Self, Error> {
        // One more than is taken in the end, where a raw value is a struct that is not written as one.
        match self.around > MAX_DEPTH {
            true => Err(Error(format!("the result is nested more than {MAX_DEPTH} deep"))),
            false => Ok(Self { around: self.around + 1, ..self }),
        }
    }

    fn float(self, value: f64) -> Result<(), Error> {
        match self.any_number || value.is_finite() {
            true => Ok(()),
            false => Err(Error(format!("it has a number that JSON cannot carry: {value}"))),
        }
    }
}

/// A scalar that is always fine.
macro_rules! fine {
    ($($method:ident($($arg:ty),*);)*) => {
        $(fn $method(self, $(_: $arg),*) -> Result<(), Error> { Ok(()) })*
    };
}

impl ser::Serializer for Walk {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fine! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.float(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.float(value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self.into()?)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Error> {
        self.into()
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Error> {
        self.into()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.into()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.into()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Error> {
        self.into()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.into()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.into()
    }
}

/// A compound whose parts come one by one, without names.
macro_rules! parts {
    ($($trait:ident::$method:ident),*) => {
        $(impl ser::$trait for Walk {
            type Ok = ();
            type Error = Error;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                value.serialize(*self)
            }
            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })*
    };
}

parts!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

/// A compound whose parts have names.
macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl ser::$trait for Walk {
            type Ok = ();
            type Error = Error;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                value.serialize(*self)
            }
            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Walk {
    type Ok = ();
    type Error = Error;

    /// A float is no key in JSON either way: the writer refuses it with its own text.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(*self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}
