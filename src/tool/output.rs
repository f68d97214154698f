//! `Output`: a tool's result, known to be JSON.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::error::ErrorKind;
use super::{ToolError, finite};
use crate::turn::canonical;

/// A tool's result as canonical JSON. The model reads a string as it is, and any other value as this
/// text: compact, with sorted keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output(String);

impl Output {
    /// The JSON of anything that serializes.
    ///
    /// # Errors
    /// It cannot be written as JSON: its `Serialize` fails, a map key is no text, it is nested too deeply,
    /// or a number is NaN or infinite, which `serde_json` alone would write as null.
    pub fn of(value: &impl Serialize) -> Result<Self, ToolError> {
        let invalid = |why: String| ToolError::of(ErrorKind::InvalidResult, why);
        finite::check(value).map_err(|e| invalid(e.to_string()))?;
        let json = canonical::of(value).map_err(|e| invalid(e.to_string()))?;
        canonical::check_keys(&json).map_err(|e| invalid(e.to_string()))?;
        Ok(Self(json))
    }

    /// The JSON of what a tool returned.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn take<T: Serialize>(value: T) -> Result<Self, ToolError> {
        let output = Self::of(&value);
        if output.is_err() && finite::is_deep(&value) {
            // To drop it recurses as deeply as to write it: what it holds is lost, for else the stack would overflow,
            // and that ends the process.
            std::mem::forget(value);
        }
        output
    }

    /// A JSON text, in its canonical form.
    ///
    /// # Errors
    /// It has none: it is no JSON, or nested too deeply.
    pub fn from_json(json: &str) -> Result<Self, canonical::Error> {
        canonical::canonicalize(json).map(Self)
    }

    /// The canonical JSON.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The canonical JSON, owned.
    pub fn into_json(self) -> String {
        self.0
    }

    /// The value as another type.
    ///
    /// # Errors
    /// It cannot be read into that type.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The canonical JSON as a raw value.
    pub fn to_raw(&self) -> Option<Box<RawValue>> {
        RawValue::from_string(self.0.clone()).ok()
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.clone()).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// Anything: what makes it has checked it, or nobody has.
impl schemars::JsonSchema for Output {
    fn schema_name() -> Cow<'static, str> {
        "Output".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashMap;

    #[test]
    fn keys_are_sorted_and_strings_stay_strings() {
        let map = HashMap::from([("b", 1), ("a", 2)]);
        assert_eq!(Output::of(&map).unwrap().as_json(), r#"{"a":2,"b":1}"#);
        assert_eq!(Output::of(&"hi").unwrap().as_json(), r#""hi""#);
        assert_eq!(Output::of(&()).unwrap().as_json(), "null");
        assert_eq!(Output::of(&None::<f64>).unwrap().as_json(), "null");
    }

    #[test]
    fn a_value_that_is_nested_too_deeply_is_an_error_and_does_not_overflow_the_stack() {
        let nested = |depth| (1..depth).fold(Value::Array(vec![]), |inner, _| Value::Array(vec![inner]));
        assert!(Output::of(&nested(127)).is_ok());
        let error = Output::of(&nested(128)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidResult);
        assert_eq!(Output::take(nested(100_000)).unwrap_err().kind(), ErrorKind::InvalidResult);
        let worse = (f64::NAN, nested(100_000));
        assert_eq!(Output::take(worse).unwrap_err().kind(), ErrorKind::InvalidResult);
    }

    #[test]
    fn what_is_no_json_is_an_error_and_never_null() {
        assert!(Output::of(&f64::NAN).is_err());
        assert!(Output::of(&f32::INFINITY).is_err());
        assert!(Output::of(&vec![Some(HashMap::from([("x", (1, f64::NEG_INFINITY))]))]).is_err());
        assert!(Output::of(&HashMap::from([((1, 2), 3)])).is_err());
        let read_as_another = HashMap::from([("$serde_json::private::RawValue", "{}")]);
        assert!(Output::of(&[read_as_another]).is_err());
        let error = Output::of(&[f64::NAN]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidResult);
    }
}
