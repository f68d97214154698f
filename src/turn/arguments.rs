//! What a model sent as a call's arguments, judged.

use serde_json::Value;

use super::{Failure, canonical, code};

/// Arguments that are a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Canonical JSON: what is recorded and hashed.
    pub canonical: String,
}

impl Arguments {
    /// Judges the raw text of a call's arguments. Empty text and `null` are the empty object: models
    /// send both for a tool without parameters, and the schema decides about the rest.
    ///
    /// # Errors
    /// `invalid_arguments`, with a text that the model can act on: the text is not one JSON value, the
    /// value is not an object, has text that is not Unicode or a key that cannot be used, or is nested too deeply.
    pub fn parse(raw: &str) -> Result<Self, Failure> {
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed == "null" {
            return Ok(Self { canonical: "{}".into() });
        }
        let invalid =
            |why: String| Failure::new(code::INVALID_ARGUMENTS, format!("invalid arguments: {why}"));
        let canonical = canonical::canonicalize(trimmed).map_err(|e| invalid(e.to_string()))?;
        if !canonical.starts_with('{') {
            return Err(invalid(format!("expected a JSON object, got {}", kind(&canonical))));
        }
        // A tool would be given other arguments than those that are recorded, or none that can be read.
        canonical::check_keys(&canonical).map_err(|e| invalid(e.to_string()))?;
        Ok(Self { canonical })
    }

    /// The arguments as a value.
    ///
    /// # Errors
    /// A number in them is out of every range, or an integer is too large to be exact: it may be an id, and would
    /// be another one.
    pub fn to_value(&self) -> Result<Value, Failure> {
        let invalid =
            |why: String| Failure::new(code::INVALID_ARGUMENTS, format!("invalid arguments: {why}"));
        if let Some(number) = numbers(&self.canonical).find(|number| is_inexact(number)) {
            let start: String = number.chars().take(40).collect();
            return Err(invalid(format!(
                "the integer {start} is larger than 64 bits hold; pass it as a string"
            )));
        }
        serde_json::from_str(&self.canonical).map_err(|e| invalid(e.to_string()))
    }
}

/// The texts of the numbers in a JSON text.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let (mut text, mut escaped) = (false, false);
    let outside = move |c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if text => escaped = true,
            '"' => text = !text,
            _ => return text || !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'),
        }
        true
    };
    json.split(outside).filter(|part| part.contains(|c: char| c.is_ascii_digit()))
}

fn is_inexact(number: &str) -> bool {
    !number.contains(['.', 'e', 'E']) && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_the_empty_object() {
        for raw in ["", "  ", "null", " null\n", "{}"] {
            assert_eq!(Arguments::parse(raw).unwrap().canonical, "{}", "{raw:?}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
        for raw in [
            "{\"{\"",
            "{",
            r#"{"a":1}{"a":2}"#,
            r#"{"a":1} {"a":2} {"a":3}"#,
            r#"{"a": "unterminated"#,
            "[]",
            "1",
            "\"text\"",
            "true",
            r#"{"a":"\udc00"}"#,
            &deep,
            "nul",
            "{\"a\":1e999}x",
        ] {
            let failure = Arguments::parse(raw).unwrap_err();
            assert_eq!(failure.code, code::INVALID_ARGUMENTS, "{raw:.40}");
        }
    }

    #[test]
    fn a_key_that_would_be_read_as_something_else_is_refused_and_a_text_like_it_is_not() {
        for raw in [
            r#"{"$serde_json::private::RawValue":"{\"b\":1}"}"#,
            r#"{"a":[{"a":0,"\u0024serde_json::private::RawValue":0}]}"#,
            r##"{"#":0,"$serde_json::private::RawValue":0}"##,
        ] {
            let failure = Arguments::parse(raw).unwrap_err();
            let expected = "invalid arguments: the key \"$serde_json::private::RawValue\" cannot be used";
            assert_eq!(
                (failure.code.as_ref(), failure.message.as_str()),
                (code::INVALID_ARGUMENTS, expected)
            );
        }
        for raw in [
            r#"{"a":"$serde_json::private::RawValue"}"#,
            r#"{"{\"$serde_json::private::RawValue":1}"#,
            r#"{"a":"{\"$serde_json::private::RawValue\":1}"}"#,
        ] {
            assert_eq!(Arguments::parse(raw).unwrap().canonical, raw);
        }
    }

    #[test]
    fn an_integer_that_would_become_another_is_refused() {
        for exact in [
            r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":9007199254740993}"#,
            r#"{"a":"12345678901234567890123","b":"\\\"99999999999999999999","99999999999999999999":1}"#,
            r#"{"a":1.10,"b":-0,"c":1e30,"d":0.1e-7,"e":[true,null,"e"]}"#,
        ] {
            assert!(Arguments::parse(exact).unwrap().to_value().is_ok(), "{exact}");
        }
        for (large, shown) in [
            (r#"{"a":[18446744073709551616]}"#, "18446744073709551616"),
            (r#"{"a":{"b":-9223372036854775809}}"#, "-9223372036854775809"),
        ] {
            let failure = Arguments::parse(large).unwrap().to_value().unwrap_err();
            let expected = format!(
                "invalid arguments: the integer {shown} is larger than 64 bits hold; pass it as a string"
            );
            assert_eq!((failure.code.as_ref(), failure.message), (code::INVALID_ARGUMENTS, expected));
        }
        let long = Arguments::parse(&format!("{{\"a\":{}}}", "9".repeat(5000))).unwrap();
        assert!(long.to_value().unwrap_err().message.len() < 200);
    }

    #[test]
    fn surrogate_pairs_and_nul_are_text() {
        let args = Arguments::parse(r#"{"b":"\ud83d\ude00","a":"\u0000"}"#).unwrap();
        assert_eq!(args.canonical, "{\"a\":\"\\u0000\",\"b\":\"😀\"}");
    }
}
