//! The model of an agent, or several: the next one where one cannot answer.

use std::fmt;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// One or more names of models, in the order in which they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelNames(Vec<String>);

impl ModelNames {
    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The name, where there is one.
    pub(crate) fn single(&self) -> Option<&str> {
        match self.0.as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }
}

impl<'a> Extend<&'a str> for ModelNames {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, names: I) {
        self.0.extend(names.into_iter().map(String::from));
    }
}

impl From<&str> for ModelNames {
    fn from(name: &str) -> Self {
        Self(vec![name.into()])
    }
}

impl fmt::Display for ModelNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// One is a text, several are a list: as they are read.
impl Serialize for ModelNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.single() {
            Some(name) => name.serialize(serializer),
            None => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ModelNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = ModelNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a model, or a list of names")
    }

    fn visit_str<E>(self, name: &str) -> Result<ModelNames, E> {
        Ok(name.into())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut names: A) -> Result<ModelNames, A::Error> {
        let mut all = Vec::new();
        while let Some(name) = names.next_element()? {
            all.push(name);
        }
        Ok(ModelNames(all))
    }
}
