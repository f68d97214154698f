//! What comes from outside: whatever it is, it is read or refused, and what was read means what was written.
//!
//! Valid documents are written in odd ways, then cut, repeated, swapped, nested. `PROPTEST_CASES=N` tries more of them.

mod document;
mod records;
mod schemas;

use document::{RESERVED, document, edited, edits, object, spaces};
use proptest::prelude::*;
use serde_json::{Value, json};
use turnmill::turn::canonical::{self, MAX_DEPTH, canonicalize};
use turnmill::turn::{Arguments, code};

fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}

/// Text that was a valid document.
fn hostile() -> impl Strategy<Value = String> {
    (prop_oneof![2 => object(), 1 => document()], spaces(), edits()).prop_map(|(document, spaces, edits)| {
        String::from_utf8_lossy(&edited(document.write(&spaces), &edits)).into_owned()
    })
}

/// Numbers have their text in what is recorded, and not in a value.
fn without_numbers(json: &str) -> String {
    let (mut text, mut escaped) = (false, false);
    let keep = |c: &char| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => text = !text,
            _ => {}
        }
        text || !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
    };
    json.chars().filter(keep).collect()
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn arguments_are_what_serde_json_reads_or_are_refused(raw in hostile()) {
        let read = serde_json::from_str::<Value>(&raw);
        match Arguments::parse(&raw) {
            Ok(arguments) => {
                let object = arguments.canonical.starts_with('{') && arguments.canonical.ends_with('}');
                prop_assert!(object, "{}", arguments.canonical);
                prop_assert_eq!(&Arguments::parse(&arguments.canonical).unwrap(), &arguments);
                match arguments.to_value() {
                    Ok(value) => {
                        prop_assert!(value.is_object(), "a tool would get {}", value);
                        let gets = canonical::of(&value).unwrap();
                        prop_assert_eq!(without_numbers(&gets), without_numbers(&arguments.canonical));
                        if let Ok(read) = read {
                            prop_assert_eq!(value, if read.is_null() { json!({}) } else { read });
                        }
                    }
                    Err(failure) => {
                        prop_assert_eq!(failure.code, code::INVALID_ARGUMENTS);
                        // An integer that is read as another number, or what is not read at all.
                        let changed = |value| canonical::of(&value).unwrap() != arguments.canonical;
                        prop_assert!(read.is_err() || read.is_ok_and(changed), "{}", failure.message);
                    }
                }
            }
            Err(failure) => {
                prop_assert_eq!(failure.code, code::INVALID_ARGUMENTS);
                let kept = canonicalize(&raw).is_ok_and(|canonical| canonical.contains(RESERVED));
                prop_assert!(kept || !read.is_ok_and(|value| value.is_object()), "{}", failure.message);
            }
        }
    }

    #[test]
    fn canonical_text_is_its_own_canonical_form(raw in hostile()) {
        if let Ok(once) = canonicalize(&raw) {
            prop_assert_eq!(&canonicalize(&once).unwrap(), &once);
            let values = [&raw, &once].map(|text| serde_json::from_str::<Value>(text));
            if let ([Ok(read), Ok(again)], false) = (values, once.contains(RESERVED)) {
                prop_assert_eq!(read, again);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn the_canonical_form_sorts_keys_and_keeps_numbers_however_the_text_is_written(
        document in document(), spaces in spaces(),
    ) {
        let expected = document.canonical().filter(|_| document.depth() <= MAX_DEPTH);
        let found = canonicalize(&document.write(&spaces));
        prop_assert_eq!(found.as_ref().ok(), expected.as_ref(), "{:?}", found.as_ref().err());
        let reversed = document.reversed();
        if document.depth() <= MAX_DEPTH {
            prop_assert_eq!(canonicalize(&reversed.write(&[""])).ok(), expected);
        }
    }
}
