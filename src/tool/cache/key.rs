//! Under which key a result is kept.

use serde_json::{Map, Value};

use crate::tool::Spec;
use crate::turn::Hash;

/// How far a schema is followed, in depth and in all: one may refer to itself, and more than once.
const MAX_DEPTH: usize = 32;
const MAX_VISITS: usize = 10_000;

/// The key of a result: the tool and its canonical arguments, in which the order of keys does not matter, and where a
/// default of the schema is the same as nothing. None: the arguments have no canonical form.
pub(super) fn of(spec: &Spec, arguments: &Value) -> Option<String> {
    let mut arguments = arguments.clone();
    let mut spelling = Spelling { root: &spec.parameters, visits: 0 };
    spelling.value(&spec.parameters, &mut arguments, 0);
    Some(format!("result:{}:{}", spec.name, Hash::of(&arguments).ok()?))
}

/// Puts in what the schema says is meant where nothing is said.
struct Spelling<'a> {
    root: &'a Value,
    visits: usize,
}

impl<'a> Spelling<'a> {
    fn value(&mut self, schema: &'a Value, value: &mut Value, depth: usize) {
        self.visits += 1;
        if depth > MAX_DEPTH || self.visits > MAX_VISITS {
            return;
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let schema = reference.and_then(|to| self.root.pointer(to.strip_prefix('#')?)).unwrap_or(schema);
        match value {
            Value::Object(fields) => {
                self.fields(schema, fields, depth);
                for part in parts(schema) {
                    self.value(part, value, depth + 1);
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    items.iter_mut().for_each(|item| self.value(schema, item, depth + 1));
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, schema: &'a Value, fields: &mut Map<String, Value>, depth: usize) {
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(default) = property.get("default").filter(|_| !fields.contains_key(name)) {
                fields.insert(name.clone(), default.clone());
            }
            if let Some(field) = fields.get_mut(name) {
                self.value(property, field, depth + 1);
            }
        }
    }
}

/// The schemas that an object holds against beside the rest: all of `allOf`, and the one of `anyOf` or `oneOf` that is
/// no `null`, as an optional object has it.
fn parts(schema: &Value) -> Vec<&Value> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let null = |part: &&Value| part.get("type").and_then(Value::as_str) == Some("null");
    let mut parts: Vec<&Value> = list("allOf").collect();
    for name in ["anyOf", "oneOf"] {
        let choices: Vec<&Value> = list(name).filter(|part| !null(part)).collect();
        if let [only] = choices.as_slice() {
            parts.push(only);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec() -> Spec {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "default": "C"},
                "days": {"type": ["integer", "null"], "default": null},
                "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
                "stops": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            },
            "$defs": {
                "Place": {
                    "type": "object",
                    "properties": {"zip": {"default": 0}, "next": {"$ref": "#/$defs/Place"}},
                },
            },
        });
        Spec::new("weather", "A tool.", schema)
    }

    fn key(arguments: &str) -> String {
        of(&spec(), &serde_json::from_str(arguments).unwrap()).unwrap()
    }

    #[test]
    fn order_and_defaults_do_not_matter_and_everything_else_does() {
        let base = key(r#"{"city": "Bern"}"#);
        assert!(base.starts_with("result:weather:"), "{base}");
        assert_eq!(base, key(r#"{"city": "Bern", "unit": "C"}"#));
        assert_eq!(base, key(r#"{"days": null, "unit": "C", "city": "Bern"}"#));
        let deep = key(r#"{"place": {"next": {}}, "stops": [{}, {"zip": 1}]}"#);
        let spelled = r#"{"stops": [{"zip": 0}, {"zip": 1}], "place": {"zip": 0, "next": {"zip": 0}}}"#;
        assert_eq!(deep, key(spelled));
        for other in [
            r#"{"city": "Basel"}"#,
            r#"{"city": "Bern", "unit": "F"}"#,
            r#"{"city": "Bern", "days": 1}"#,
            r#"{"city": "Bern", "days": 1.0}"#,
            r#"{"city": "Bern", "place": {}}"#,
            r#"{"city": "Bern", "place": null}"#,
        ] {
            assert_ne!(base, key(other), "{other}");
        }
        assert_ne!(key(r#"{"days": 1}"#), key(r#"{"days": 1.0}"#));
        assert_ne!(key(r#"{"days": 9007199254740993}"#), key(r#"{"days": 9007199254740992}"#));
        assert_ne!(base, of(&Spec { name: "other".into(), ..spec() }, &json!({"city": "Bern"})).unwrap());
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end() {
        let schema = json!({
            "type": "object",
            "allOf": [{"$ref": "#"}, {"$ref": "#"}],
        });
        let spec = Spec::new(
            "loop",
            "A tool.",
            json!({"type": "object", "properties": {"a": {"default": {}, "$ref": "#"}}}),
        );
        assert!(of(&spec, &json!({})).is_some());
        assert!(of(&Spec { parameters: schema, ..spec }, &json!({})).is_some());
    }
}
