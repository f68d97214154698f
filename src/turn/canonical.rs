//! Canonical JSON, and the hash of it.
//!
//! UTF-8, no white space, object keys sorted by code point, and the text of every number kept: `1`
//! and `1.0` differ, and an integer above 2^53 is exact. Where an object has a key twice the last one
//! counts, as it does for the tool that reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// How deeply a value may be nested: as deep as `serde_json` parses.
pub const MAX_DEPTH: usize = 127;

/// Text that has no canonical form; says where and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON, or a string in it is not Unicode text.
    #[error("{0}")]
    Invalid(#[from] serde_json::Error),
    /// An object has a key that is taken.
    #[error("the key {RESERVED:?} cannot be used")]
    Reserved,
    /// The value is nested more deeply than [`MAX_DEPTH`].
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
}

/// The canonical form of a JSON text.
///
/// # Errors
/// The text is not JSON, has a string that is not Unicode text (a lone surrogate), or is nested too
/// deeply.
pub fn canonicalize(json: &str) -> Result<String, Error> {
    let whole: &RawValue = serde_json::from_str(json)?;
    // First, because each level is read once more than the one around it.
    if depth(json) > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let mut out = String::with_capacity(json.len());
    write(whole.get(), &mut out)?;
    Ok(out)
}

/// `serde_json` takes an object that begins with this key for the JSON in its text.
const RESERVED: &str = "$serde_json::private::RawValue";

/// Checks that what `serde_json` reads of a canonical text is what it says.
///
/// # Errors
/// An object has the one key that is read as something else.
pub(crate) fn check_keys(canonical: &str) -> Result<(), Error> {
    if !canonical.contains(RESERVED) {
        return Ok(());
    }
    // Inside a text there would be a backslash before each quote.
    match ["{", ","].iter().any(|before| canonical.contains(&format!("{before}\"{RESERVED}\":"))) {
        true => Err(Error::Reserved),
        false => Ok(()),
    }
}

/// The canonical form of something that serializes to JSON.
///
/// # Errors
/// It does not serialize to JSON, or it is nested too deeply.
pub fn of(value: &impl serde::Serialize) -> Result<String, Error> {
    canonicalize(&serde_json::to_string(value)?)
}

/// How deeply valid JSON is nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut text, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'{' | b'[' if !text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads one level at a time and keeps the members as raw text: numbers are never parsed, and the
/// depth of the recursion is that of the value, which is bounded.
fn write(raw: &str, out: &mut String) -> Result<(), Error> {
    match raw.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(raw)?;
            let mut before = '{';
            for (key, value) in &members {
                out.push(before);
                out.push_str(&serde_json::to_string(key)?);
                out.push(':');
                write(value.get(), out)?;
                before = ',';
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw)?;
            let mut before = '[';
            for item in &items {
                out.push(before);
                write(item.get(), out)?;
                before = ',';
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Some(b'"') => {
            let text: String = serde_json::from_str(raw)?;
            out.push_str(&serde_json::to_string(&text)?);
        }
        _ => out.push_str(raw),
    }
    Ok(())
}

/// SHA-256 of canonical JSON (or of plain bytes, where it says so), in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Hash(Arc<str>);

impl Hash {
    /// The hash of plain bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut digits = [0; 64];
        // They fit.
        let _ = hex::encode_to_slice(Sha256::digest(bytes), &mut digits);
        Self(String::from_utf8_lossy(&digits).into())
    }

    /// The hash of a JSON text's canonical form.
    ///
    /// # Errors
    /// The text has no canonical form.
    pub fn of_json(json: &str) -> Result<Self, Error> {
        Ok(Self::of_bytes(canonicalize(json)?.as_bytes()))
    }

    /// The hash of the canonical JSON of something that serializes.
    ///
    /// # Errors
    /// It has no canonical form.
    pub fn of(value: &impl serde::Serialize) -> Result<Self, Error> {
        Ok(Self::of_bytes(of(value)?.as_bytes()))
    }

    /// The hash as 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hash of something of ours, which always has a canonical form but for its depth: what is too deep
/// is hashed as it is.
pub(super) fn hash_of(value: &impl serde::Serialize) -> Hash {
    let json = serde_json::to_string(value).unwrap_or_default();
    let canonical = canonicalize(&json).unwrap_or(json);
    Hash::of_bytes(canonical.as_bytes())
}

/// As [`hash_of`], of something whose JSON is canonical as it is written: its keys are sorted, and raw JSON in it is
/// canonical.
pub(super) fn hash_of_canonical(value: &impl serde::Serialize) -> Hash {
    Hash::of_bytes(&serde_json::to_vec(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn depth_is_bounded_and_never_overflows_the_stack() {
        let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert!(canonicalize(&nested(MAX_DEPTH)).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(MAX_DEPTH)).is_ok());
        assert!(canonicalize(&format!("[{}]", serde_json::json!("[".repeat(500) + "\\\""))).is_ok(), "text");
        assert!(matches!(canonicalize(&nested(MAX_DEPTH + 1)), Err(Error::TooDeep)));
        assert!(canonicalize(&nested(1_000_000)).is_err());
    }

    #[test]
    fn text_that_is_not_unicode_is_refused() {
        for bad in [r#""\ud800""#, r#"{"\udc00":1}"#, r#"["a","\ud83d"]"#] {
            assert!(matches!(canonicalize(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            "\\PC*".prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::vec((any::<String>(), inner), 0..8)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn is_idempotent_and_keeps_the_value(value in json()) {
            let once = of(&value).unwrap();
            prop_assert_eq!(&canonicalize(&once).unwrap(), &once);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&once).unwrap(), value);
        }

        #[test]
        fn white_space_does_not_matter(value in json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(canonicalize(&pretty).unwrap(), of(&value).unwrap());
        }

        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = canonicalize(&text);
        }
    }
}
