//! What earlier replies have said, in a form that providers accept.
//!
//! A model may have written anything, and a provider refuses a request whose history is not in order.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::turn::{Arguments, Hash};

/// The longest id and name that are taken.
const MAX_ID: usize = 200;
const MAX_NAME: usize = 64;

fn is_plain(text: &str, max: usize) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !text.is_empty() && text.len() <= max && text.bytes().all(plain)
}

/// The id of a call, of letters, digits, `-` and `_`. One that is not goes by another, which is always the same one.
pub(super) fn id(id: &str) -> Cow<'_, str> {
    if is_plain(id, MAX_ID) { Cow::Borrowed(id) } else { Cow::Owned(other(id)) }
}

/// The id of a call as its provider wrote it, which may want exactly that back. One of our own goes by another: no provider has
/// seen it.
pub(super) fn id_of_any_form(id: &str) -> Cow<'_, str> {
    let own = |rest: &str| rest.split_once(".c").is_some_and(|(reply, _)| reply.parse::<u32>().is_ok());
    match id.is_empty() || id.strip_prefix('m').is_some_and(own) {
        true => Cow::Owned(other(id)),
        false => Cow::Borrowed(id),
    }
}

/// Nine letters and digits, which the strictest take too.
fn other(id: &str) -> String {
    Hash::of_bytes(id.as_bytes()).as_str().chars().take(9).collect()
}

/// The name of a tool as the model wrote it, without what no name may have.
pub(super) fn name(name: &str) -> Cow<'_, str> {
    if is_plain(name, MAX_NAME) {
        return Cow::Borrowed(name);
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    Cow::Owned(if name.is_empty() { "unnamed".into() } else { name })
}

/// The arguments of a call as a JSON object: as the model wrote them, where that is one; else its text in one.
pub(super) fn object(arguments: &str) -> Box<RawValue> {
    let written = match Arguments::parse(arguments) {
        Ok(_) if matches!(arguments.trim(), "" | "null") => RawValue::from_string("{}".into()),
        Ok(_) => RawValue::from_string(arguments.trim().into()),
        Err(_) => serde_json::value::to_raw_value(&serde_json::json!({"invalid_arguments": arguments})),
    };
    written.unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_takes_is_left_as_it_is() {
        assert_eq!(id("toolu_01A-b"), "toolu_01A-b");
        assert_eq!(name("get_order"), "get_order");
        assert_eq!(
            object(r#" {"n":12345678901234567890123, "x": 1.0} "#).get(),
            r#"{"n":12345678901234567890123, "x": 1.0}"#
        );
    }

    #[test]
    fn anything_else_is_made_so() {
        for odd in ["m0.c1", "", "é", &"x".repeat(300)] {
            assert!(is_plain(&id(odd), MAX_ID) && is_plain(&name(odd), MAX_NAME), "{odd:?}");
        }
        assert_ne!(id("m0.c1"), id("m0_c1"));
        for own in ["m0.c1", "m12.c0'", ""] {
            let other = id_of_any_form(own);
            assert!(other.len() == 9 && other.bytes().all(|b| b.is_ascii_alphanumeric()), "{own:?}");
        }
        for theirs in ["call_1", "functions.add:0", "m.c", "mx.c1"] {
            assert_eq!(id_of_any_form(theirs), theirs);
        }
        assert_eq!(object("").get(), "{}");
        assert_eq!(object("null").get(), "{}");
        assert_eq!(object("[1]").get(), r#"{"invalid_arguments":"[1]"}"#);
        assert_eq!(object("{\"a\":").get(), r#"{"invalid_arguments":"{\"a\":"}"#);
    }
}
