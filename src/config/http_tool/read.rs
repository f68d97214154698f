//! Values that are written in more than one way, or in one that serde does not know.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer};

use super::Schema;
use crate::tool::{Decimal, Retry, RetryWait};
use crate::turn::exact_cost;

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SchemaVisitor)
    }
}

struct SchemaVisitor;

impl<'de> de::Visitor<'de> for SchemaVisitor {
    type Value = Schema;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table, or a JSON text in a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Schema, E> {
        Ok(Schema::Text(text.into()))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Schema, A::Error> {
        toml::Table::deserialize(de::value::MapAccessDeserializer::new(map)).map(Schema::Table)
    }
}

/// A count, or a table with waits.
pub(super) fn retry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Retry, D::Error> {
    deserializer.deserialize_any(RetryVisitor)
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    max: u32,
    #[serde(default = "default_initial", with = "humantime_serde")]
    initial: Duration,
    #[serde(default = "default_max_delay", with = "humantime_serde")]
    max_delay: Duration,
}

fn default_initial() -> Duration {
    Duration::from_millis(200)
}

fn default_max_delay() -> Duration {
    Duration::from_secs(10)
}

struct RetryVisitor;

impl<'de> de::Visitor<'de> for RetryVisitor {
    type Value = Retry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a whole number from 0 to 4294967295, or a table such as { max = 3, initial = \"200ms\" }",
        )
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<Retry, E> {
        let count =
            u32::try_from(count).map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))?;
        Ok(count.into())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Retry, A::Error> {
        let Policy { max, initial, max_delay } =
            Policy::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Retry { max, wait: Some(RetryWait { initial, max_delay }) })
    }
}

/// The same of what need not be there.
pub(in crate::config) fn max_cost<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Decimal>, D::Error> {
    cost(deserializer).map(Some)
}

/// Not a number of TOML: that one is rounded.
pub(in crate::config) fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    let text = String::deserialize(deserializer)?;
    exact_cost(&text).ok_or_else(|| {
        let expected = "a decimal number of at least 0 in a string, such as \"0.002\"";
        de::Error::invalid_value(de::Unexpected::Str(&text), &expected)
    })
}
