//! `[kafka.properties]`: names with dots, values of any scalar type, and the few that are refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer};

use super::decode::quoted;
use super::field::Field;
use super::problem::{Place, Problem};
use super::tree::{Node, Value};

/// A property that the guarantees rest on.
struct Rule {
    names: &'static [&'static str],
    /// The values that are allowed; none if the property may not be set at all.
    allowed: &'static [&'static str],
    /// Why, and what to do.
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        names: &["bootstrap.servers", "metadata.broker.list"],
        allowed: &[],
        why: "set kafka.brokers instead",
    },
    Rule { names: &["group.id"], allowed: &[], why: "set kafka.group_id instead" },
    Rule {
        names: &["acks", "request.required.acks"],
        allowed: &["all", "-1"],
        why: "a step counts as recorded only when every in-sync replica has it; remove it",
    },
    Rule {
        names: &["enable.idempotence"],
        allowed: &["true", "t", "1"],
        why: "without it a retried write may land twice or out of order; remove it",
    },
    Rule {
        names: &["enable.auto.commit", "auto.commit.enable"],
        allowed: &[],
        why: "an offset is committed only after its turn's result is written; remove it",
    },
    Rule {
        names: &["enable.auto.offset.store"],
        allowed: &[],
        why: "an offset is stored only after its turn's result is written; remove it",
    },
    Rule {
        names: &["isolation.level"],
        allowed: &[],
        why: "records of aborted transactions must not be read; remove it",
    },
    Rule {
        names: &["transactional.id"],
        allowed: &[],
        why: "a worker decides itself whether and how it uses transactions; remove it",
    },
    Rule {
        names: &["partitioner"],
        allowed: &["murmur2_random"],
        why: "a session must be on the partition that Java producers give it; remove it",
    },
    Rule {
        names: &["auto.offset.reset"],
        allowed: &["earliest", "latest", "error", "smallest", "beginning", "largest", "end"],
        why: "expected earliest, latest or error",
    },
];

/// The properties that are refused.
pub(super) fn refused(properties: &BTreeMap<String, String>) -> impl Iterator<Item = Problem> {
    properties.iter().filter_map(|(name, value)| {
        let rule = RULES.iter().find(|rule| rule.names.contains(&name.as_str()))?;
        if rule.allowed.contains(&value.trim().to_ascii_lowercase().as_str()) {
            return None;
        }
        let what = if rule.allowed.is_empty() {
            "cannot be set here".into()
        } else {
            format!("cannot be {}", quoted(value))
        };
        Some(Problem::field(field_of(name).to_string(), format!("{what}: {}", rule.why)))
    })
}

/// The names of all properties that are refused, at least with some values.
#[cfg(test)]
pub(super) fn refused_names() -> impl Iterator<Item = &'static str> {
    RULES.iter().flat_map(|rule| rule.names.iter().copied())
}

/// Makes `security.protocol = ".."`, which TOML takes for a table in a table, the property that it means.
pub(super) fn flatten(tree: &mut Node, problems: &mut Vec<Problem>) {
    let field = Field::default().child("kafka").child("properties");
    let Some(Value::Table(entries)) = tree.at_mut(&field).map(|node| &mut node.value) else { return };
    let mut flat = BTreeMap::new();
    for (name, node) in std::mem::take(entries) {
        collect(name, node, &mut flat, problems);
    }
    *entries = flat;
}

fn collect(name: String, node: Node, flat: &mut BTreeMap<String, Node>, problems: &mut Vec<Problem>) {
    if let Value::Table(entries) = node.value {
        for (below, node) in entries {
            collect(format!("{name}.{below}"), node, flat, problems);
        }
        return;
    }
    match flat.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(node);
        }
        Entry::Occupied(entry) => {
            let mut problem = Problem::field(field_of(entry.key()).to_string(), "is set twice");
            if let Some(Place::Line(line)) = node.place {
                problem.line = Some(line);
            }
            problems.push(problem);
        }
    }
}

fn field_of(property: &str) -> Field {
    Field::default().child("kafka").child("properties").child(property)
}

/// Reads properties, whose values may be strings, numbers or booleans.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let properties = BTreeMap::<String, Scalar>::deserialize(deserializer)?;
    Ok(properties.into_iter().map(|(name, Scalar(value))| (name, value)).collect())
}

struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl de::Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a boolean")
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar(value.into()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }
}
