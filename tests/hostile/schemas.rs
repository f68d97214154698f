//! Arguments and results against schemas, and schemas that are none.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use turnmill::tool::{Output, Registered, Registry, RegistryError, Spec};
use turnmill::turn::code;
use turnmill::{ToolContext, ToolError};

use super::cases;
use super::document::{Document, Edit, RESERVED, document, edited, object, plain};

/// Schemas with every kind of keyword.
static SCHEMAS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1, "maxLength": 3,
            "pattern": "^[a-z]*$", "format": "date-time"}}, "patternProperties": {"^b": {"type": ["null", "array"]}}}),
        json!({"type": "object", "propertyNames": {"maxLength": 2}, "minProperties": 1, "maxProperties": 2}),
        json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}, "$defs": {"tree": {"anyOf": [
            {"type": ["number", "string", "null"]}, {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}]}}}),
        json!({"type": "object", "additionalProperties": {"multipleOf": 0.1, "exclusiveMinimum": -1e300,
            "maximum": 18446744073709551615_u64}}),
        json!({"type": "object", "additionalProperties": {"multipleOf": 3, "minimum": 5e-324}}),
        json!({"type": "object", "additionalProperties": {"prefixItems": [{"const": 1}], "uniqueItems": true,
            "contains": {"type": "number"}, "minContains": 1, "maxItems": 9,
            "items": {"enum": [1, 1.5, "a", null, {}]}}}),
        json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["0"]}}),
        json!({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["a"]},
            "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"maxProperties": 3}}}),
        json!({"type": "object", "allOf": [{"properties": {"a": true}}, {"$ref": "#/$defs/b"}],
            "unevaluatedProperties": false, "$defs": {"b": {"properties": {"b": {"unevaluatedItems": false}}}}}),
    ]
});

fn registered(parameters: Value, output: Option<Value>) -> Result<Arc<Registered>, RegistryError> {
    let mut spec = Spec::new("t", "A tool.", parameters);
    spec.output = output;
    let tool = spec.tool(async |_: ToolContext, _: Value| Ok::<_, ToolError>(()));
    let mut registry = Registry::new();
    registry.register(Arc::new(tool))?;
    Ok(Arc::clone(registry.get("t").unwrap()))
}

static TOOLS: LazyLock<Vec<Arc<Registered>>> = LazyLock::new(|| {
    let tools = SCHEMAS.iter().map(|schema| registered(schema.clone(), Some(schema.clone())).unwrap());
    tools.collect()
});

/// A value as a caller may hand it over: any that `serde_json` reads.
fn value() -> impl Strategy<Value = Value> {
    let one = document().prop_map(|value| Document::Object(vec![(plain("a"), value)]));
    prop_oneof![3 => object(), 1 => document(), 1 => one].prop_map(|document| {
        let text = document.write(&[""]);
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    })
}

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn arguments_hold_or_are_refused_with_a_reason(value in value()) {
        for tool in TOOLS.iter() {
            let checked = tool.check(&value);
            if let Err(failure) = &checked {
                prop_assert_eq!(&failure.code, code::INVALID_ARGUMENTS);
                prop_assert!(failure.message.starts_with("invalid arguments for t: "), "{}", failure.message);
            }
            prop_assert!(checked.is_err() || value.is_object());
            match Output::of(&value) {
                Ok(output) => prop_assert_eq!(tool.check_result(&output).is_ok(), checked.is_ok()),
                // What serde_json would read as something else.
                Err(error) => prop_assert!(error.message().contains(RESERVED), "{}", error),
            }
        }
        // The first schema, said again.
        let whole = |number: &Value| number.as_f64().is_some_and(|number| number.fract() == 0.0);
        let holds = value.as_object().is_some_and(|members| members.len() == 1 && members.get("a").is_some_and(whole));
        prop_assert_eq!(TOOLS[0].check(&value).is_ok(), holds);
    }

    #[test]
    fn a_schema_is_refused_or_can_be_used(
        schema in select(SCHEMAS.clone()), edits in prop::collection::vec(select(edits_of_words()), 0..3),
        at in any::<Index>(), more in document(), value in value(),
    ) {
        let mut text = schema.to_string();
        for (from, to) in edits {
            text = text.replacen(from, to, 1);
        }
        let text = edited(text, &[Edit::Insert(at, more.write(&[""]).into_bytes())][..usize::from(at.index(4) == 0)]);
        if let Ok(schema) = serde_json::from_slice::<Value>(&text) {
            match registered(schema.clone(), Some(schema)) {
                Ok(tool) => prop_assert!(value.is_object() || tool.check(&value).is_err()),
                Err(error) => prop_assert!(matches!(error, RegistryError::Schema { .. }), "{}", error),
            }
        }
    }
}

/// Words of schemas, and what makes others of them.
fn edits_of_words() -> Vec<(&'static str, &'static str)> {
    let words = [
        "\"object\"",
        "\"string\"",
        "\"integer\"",
        "\"#/$defs/tree\"",
        "\"^[a-z]*$\"",
        "0.1",
        "1",
        "3",
        "true",
        "\"properties\"",
        "\"items\"",
        "\"required\"",
        "\"anyOf\"",
        "\"enum\"",
        "\"$defs\"",
        "\"multipleOf\"",
        "[\"a\"]",
        "\"#\"",
        "\"#/nowhere\"",
        "\"https://example.org/a.json\"",
        "\"(a+)+$\"",
        "\"[\"",
        "\"\\\\p{Zz}\"",
        "0",
        "-1",
        "1e308",
        "5e-324",
        "null",
        "{}",
        "[]",
        "\"$ref\"",
        "\"$dynamicRef\"",
        "\"$schema\"",
        "\"$id\"",
    ];
    words.iter().flat_map(|from| words.iter().map(move |to| (*from, *to))).collect()
}
