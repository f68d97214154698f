//! Records: turns, events, results, requests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use turnmill::record::{Control, StepEvent, Turn, TurnResult, read_turn};
use turnmill::turn::{Hash, SessionId, TurnId, code};

use super::cases;
use super::document::{Document, RESERVED, Text, document, edited, edits, plain, spaces, text};

/// An event with every field.
static EVENT: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "type": "tool:result", "session_id": "käse", "turn_id": "t.1", "agent": "support", "position": "m0.c0",
        "idempotency_key": "k%C3%A4se/t.1/m0.c0", "attempt": 1, "fence": 7, "status": "error", "cause": "m0",
        "tool": "echo", "arguments": {"text": "x", "n": [1.0, 18446744073709551615_u64]}, "arguments_raw": "{",
        "arguments_hash": "00", "input_hash": "ff",
        "reply": {"text": "hi", "calls": [{"id": "c", "name": "echo", "arguments": "{}"}], "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": u64::MAX}},
        "output": [null, "x"], "error": {"code": "tool_error", "message": "no\u{0}"}, "attempts": 3,
        "started_at_ms": i64::MIN, "latency_ms": 0,
        "usage": {"model_calls": 1, "tool_calls": 2, "input_tokens": 3, "output_tokens": 4},
        "input_offset": 0, "turn_status": "dead_letter",
        "claim": {"nonce": "n", "group": "g", "turns_topic": "agent.turns", "member": "m"},
    })
});

static TURN: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "turn_id": "t.1", "session_id": "s", "agent": "support", "tools": ["echo"], "deadline_ms": -1,
        "input": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "so", "tool_calls": [{"id": "1", "name": "echo", "arguments": "{}"}]},
            {"role": "tool", "tool_call_id": "1", "name": "echo", "content": "x", "is_error": true},
        ],
        "metadata": {"script": "[]", "": ""},
    })
});

static RESULT: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "turn_id": "t.1", "session_id": "s", "agent": "support", "status": "failed", "output": "x",
        "error": {"code": "model_error", "message": "gone"},
        "usage": {"model_calls": 1, "tool_calls": 2, "input_tokens": 3, "output_tokens": 4},
        "events": {"partition": 1, "first_offset": 2, "last_offset": 3},
    })
});

static CONTROL: LazyLock<Value> =
    LazyLock::new(|| json!({"type": "cancel", "turn_id": "t.1", "session_id": "s"}));

fn written(value: &Value) -> Document {
    match value {
        Value::String(text) => Document::Text(plain(text)),
        Value::Array(items) => Document::Array(items.iter().map(written).collect()),
        Value::Object(members) => {
            Document::Object(members.iter().map(|(key, value)| (plain(key), written(value))).collect())
        }
        other => Document::Plain(other.to_string()),
    }
}

/// Prints as text, which most of it is.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A record: all or some of the fields of this one, in any order, some with another value, some that nobody knows or
/// that come twice; then edited.
fn record(full: &'static Value) -> impl Strategy<Value = Bytes> {
    let Value::Object(members) = full else { panic!("{full} is no object") };
    let members: Vec<(Text, Document)> =
        members.iter().map(|(key, value)| (plain(key), written(value))).collect();
    let count = members.len();
    let some = proptest::sample::subsequence(members.clone(), count / 2..=count);
    let other = (select(members), document()).prop_map(|((key, _), value)| (key, value));
    let unknown = (text(), document());
    let more = prop::collection::vec(prop_oneof![2 => other, 1 => unknown], 0..3);
    (prop_oneof![2 => some.clone().prop_map(|some| (some, Vec::new())), 1 => (some, more)], spaces(), edits())
        .prop_flat_map(|((some, more), spaces, edits)| {
            let members = Just([some, more].concat()).prop_shuffle();
            (members, Just(spaces), Just(edits))
        })
        .prop_map(|(members, spaces, edits)| Bytes(edited(Document::Object(members).write(&spaces), &edits)))
}

/// What is read is written and read again as the same.
fn is_stable<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<Option<T>, TestCaseError> {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return Ok(None) };
    let once = serde_json::to_string(&read).unwrap();
    let again: T = serde_json::from_str(&once).map_err(|e| TestCaseError::fail(format!("{e}: {once}")))?;
    prop_assert_eq!(serde_json::to_string(&again).unwrap(), once);
    Ok(Some(read))
}

#[test]
fn whole_records_keep_every_field() {
    fn keeps<T: DeserializeOwned + Serialize>(full: &Value) {
        let bytes = serde_json::to_vec(full).unwrap();
        let read: T = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), *full);
    }
    keeps::<StepEvent>(&EVENT);
    keeps::<Turn>(&TURN);
    keeps::<TurnResult>(&RESULT);
    keeps::<Control>(&CONTROL);
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn an_event_is_refused_or_stays_what_it_is(Bytes(bytes) in record(&EVENT)) {
        if let Some(event) = is_stable::<StepEvent>(&bytes)? {
            prop_assert!(!event.record_key().is_empty());
        }
    }

    #[test]
    fn a_result_and_a_request_are_refused_or_stay_what_they_are(
        Bytes(result) in record(&RESULT), Bytes(control) in record(&CONTROL),
    ) {
        is_stable::<TurnResult>(&result)?;
        is_stable::<Control>(&control)?;
    }

    #[test]
    fn a_turn_is_refused_with_a_reason_or_stays_what_it_is(Bytes(bytes) in record(&TURN)) {
        is_stable::<Turn>(&bytes)?;
        let input = std::str::from_utf8(&bytes).ok().and_then(|text| Hash::of_json(text).ok());
        match read_turn("agent.turns", 0, 7, None, Some(&bytes)) {
            Ok((identity, turn)) => {
                prop_assert_eq!(Some(&identity.input), input.as_ref());
                prop_assert!(turn.turn_id.is_none_or(|id| id == identity.turn));
                prop_assert!(turn.session_id.is_none_or(|id| id == identity.session));
            }
            Err(unreadable) => {
                let expected = if input.is_some() { code::INVALID_TURN } else { code::INVALID_JSON };
                prop_assert_eq!(unreadable.failure.code, expected);
                prop_assert!(serde_json::from_slice::<Turn>(&bytes).is_err() || input.is_none());
                let members = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&bytes);
                if let (Ok(members), true) = (members, input.is_some()) {
                    let text = |field| serde_json::from_str::<String>(members.get(field)?.get()).ok();
                    let turn = text("turn_id").and_then(|id| TurnId::new(&id).ok());
                    prop_assert_eq!(unreadable.answerable, turn.is_some());
                    prop_assert!(turn.is_none_or(|id| id == unreadable.identity.turn));
                    let session = text("session_id").and_then(|id| SessionId::new(&id).ok());
                    prop_assert!(session.is_none_or(|id| id == unreadable.identity.session));
                    prop_assert_eq!(unreadable.agent, text("agent"));
                }
            }
        }
    }

    #[test]
    fn an_error_has_the_one_code_that_was_written_or_none_is_read(
        codes in prop::collection::vec((select(vec![r#""code""#, r#""\u0063ode""#]), text()), 0..3),
        more in prop::collection::vec((text(), document()), 0..4),
        near in select(vec!["Code", "code ", "codes", "Message", "error", RESERVED]),
        mix in any::<Index>(),
    ) {
        let key = |written: &str| Text { written: written.into(), means: Some("code".into()) };
        let only = match codes.as_slice() {
            [(_, text)] => text.means.clone(),
            _ => None,
        };
        let mut members = more;
        members.push((plain("message"), Document::Text(plain("gone"))));
        members.push((plain(near), Document::Text(plain("another"))));
        members.extend(codes.into_iter().map(|(written, text)| (key(written), Document::Text(text))));
        let middle = mix.index(members.len());
        members.rotate_left(middle);
        let error = Document::Object(members).write(&[""]);
        let event = serde_json::from_str::<StepEvent>(&format!(r#"{{"type":"tool:result","error":{error}}}"#));
        let result = format!(r#"{{"turn_id":"t","session_id":"s","status":"failed","usage":{{}},"error":{error}}}"#);
        let result = serde_json::from_str::<TurnResult>(&result);
        prop_assert_eq!(event.is_ok(), result.is_ok());
        for failure in [event.ok().and_then(|event| event.error), result.ok().and_then(|result| result.error)] {
            prop_assert!(failure.is_none_or(|failure| Some(failure.code.as_ref()) == only.as_deref()), "{}", error);
        }
    }
}
