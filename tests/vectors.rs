//! The formats on the wire, against the vectors in `tests/vectors/`.
//!
//! A vector never changes: logs that were written with it are out there. A format that must change gets
//! a version, and files of its own beside these. `tests/vectors/make.py` computed them without Turnmill.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use turnmill::record::StepEvent;
use turnmill::turn::{
    CallResult, Definition, Engine, Failure, Hash, IdempotencyKey, Next, OnToolError, Outcome, Position,
    SessionId, Setup, TurnId, canonical, code, step_input, transcript_hash,
};

/// The version of every format here.
const FORMAT: u64 = 1;

fn vectors(file: &str, text: &str, field: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(text).unwrap();
    assert_eq!(all["format"], FORMAT, "{file} is of another format version");
    let found = all[field].as_array().unwrap().clone();
    assert!(!found.is_empty(), "{file} has no {field}");
    found
}

macro_rules! vectors {
    ($name:literal, $field:literal) => {
        vectors(concat!($name, ".json"), include_str!(concat!("vectors/", $name, ".json")), $field)
    };
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// `{"call": [0, 1]}`, `{"child": [PARENT, CHILD]}` ..
fn position(make: &Value) -> Position {
    let (form, of) = make.as_object().unwrap().iter().next().unwrap();
    match form.as_str() {
        "reply" => Position::reply(number(of)),
        "call" => Position::call(number(&of[0]), number(&of[1]) as usize),
        "direct" => Position::direct(text(&of[0]), number(&of[1])),
        "direct_with_id" => Position::direct_with_id(text(&of[0]), text(&of[1])),
        "step" => Position::step(text(of)),
        "once" => Position::once(text(of)),
        "approval" => Position::approval(text(&of[0]), number(&of[1])),
        "approval_with_id" => Position::approval_with_id(text(&of[0]), text(&of[1])),
        "value" => Position::value(text(&of[0]), number(&of[1])),
        "child" => position(&of[0]).child(&position(&of[1])),
        other => panic!("no position is made by {other}"),
    }
}

#[test]
fn positions() {
    let mut forms = HashSet::new();
    for vector in vectors!("positions", "positions") {
        let made = position(&vector["make"]);
        assert_eq!(made.as_str(), text(&vector["position"]), "{}", vector["make"]);
        assert!(made.as_str().bytes().all(|b| b.is_ascii_graphic()), "{made} is printable ASCII");
        forms.extend(vector["make"].as_object().unwrap().keys().cloned());
    }
    assert_eq!(forms.len(), 10, "every form has a vector: {forms:?}");
}

#[test]
fn positions_of_different_steps_differ() {
    let mut seen = std::collections::HashMap::new();
    for vector in vectors!("positions", "positions") {
        // Nesting has no brackets: (a/b)/c and a/(b/c) are one place.
        let place = match vector["make"].get("child") {
            Some(_) => vector["position"].to_string(),
            None => vector["make"].to_string(),
        };
        let other = seen.insert(vector["position"].clone(), place.clone());
        assert!(other.as_ref().is_none_or(|other| *other == place), "{other:?} and {place}");
    }
}

#[test]
fn idempotency_keys() {
    for vector in vectors!("keys", "keys") {
        let session = SessionId::new(text(&vector["session"])).unwrap();
        let turn = TurnId::new(text(&vector["turn"])).unwrap();
        let key = match &vector["make"] {
            Value::Null => IdempotencyKey::of_turn(&session, &turn),
            make => IdempotencyKey::new(&session, &turn, &position(make)),
        };
        assert_eq!(key.as_str(), text(&vector["key"]), "{vector}");
        assert!(key.as_str().len() <= 255 && key.as_str().bytes().all(|b| b.is_ascii_graphic()), "{key}");
    }
}

#[test]
fn canonical_json_and_its_hash() {
    for vector in vectors!("canonical", "canonical") {
        let (title, json) = (text(&vector["title"]), text(&vector["json"]));
        assert_eq!(canonical::canonicalize(json).unwrap(), text(&vector["canonical"]), "{title}");
        assert_eq!(Hash::of_json(json).unwrap().as_str(), text(&vector["sha256"]), "{title}");
    }
}

#[test]
fn what_has_no_canonical_form_is_refused() {
    for json in vectors!("canonical", "refused") {
        let found = canonical::canonicalize(text(&json));
        assert!(found.is_err(), "{json} became {found:?}");
    }
}

#[test]
fn transcripts_and_calls() {
    for vector in vectors!("transcripts", "transcripts") {
        play(&vector);
    }
}

#[test]
fn inputs_of_steps() {
    for vector in vectors!("steps", "steps") {
        assert_eq!(step_input(&position(&vector["make"])).as_str(), text(&vector["input"]));
    }
}

/// Plays a transcript's steps, and compares every hash on the way and every message at the end.
fn play(vector: &Value) {
    let title = text(&vector["title"]);
    let mut tools = Vec::new();
    for (tool, hash) in list(&vector["tools"]).zip(list(&vector["definitions"])) {
        let (name, description) = (text(&tool["name"]), text(&tool["description"]));
        let definition = Definition::new(name, description, tool["parameters"].clone());
        assert_eq!(definition.hash().as_str(), text(hash), "{title}: the definition of {name}");
        tools.push(Arc::new(definition));
    }
    let mut engine = Engine::new(Setup {
        system: vector["system"].as_str().map(Into::into),
        input: serde_json::from_value(vector["input"].clone()).unwrap(),
        tools,
        on_tool_error: OnToolError::TellModel,
    });
    for (number, step) in list(&vector["steps"]).enumerate() {
        let Next::Model { input } = engine.next() else { panic!("{title}, m{number}: {:?}", engine.next()) };
        let number = u32::try_from(number).unwrap();
        let position = Position::reply(number);
        assert_eq!(input.as_str(), text(&step["input"]), "{title}, {position}");
        engine.reply(number, serde_json::from_value(step["reply"].clone()).unwrap());
        if let Next::Calls(calls) = engine.next() {
            assert_eq!(calls.len(), list(&step["calls"]).len(), "{title}, {position}");
            let mut results = Vec::new();
            for (call, expected) in calls.iter().zip(list(&step["calls"])) {
                assert_eq!(call.position.as_str(), text(&expected["position"]), "{title}");
                assert_eq!(call.input.as_str(), text(&expected["input"]), "{title}, {}", call.position);
                let result = result(&expected["result"]);
                results.push(CallResult { position: call.position.clone(), result });
            }
            engine.results(results);
        } else {
            assert_eq!(step["calls"], json!([]), "{title}, {position}");
        }
    }
    assert_eq!(serde_json::to_value(engine.messages()).unwrap(), vector["messages"], "{title}");
    // The hash after the last message, as the engine would say it of one more reply, and as code is told it.
    let end = engine.messages().to_vec();
    assert_eq!(transcript_hash(&end).as_str(), text(&vector["end"]), "{title}, at its end");
    let again =
        Engine::new(Setup { system: None, input: end, tools: vec![], on_tool_error: OnToolError::TellModel });
    let Next::Model { input, .. } = again.next() else { panic!("{title}: {:?}", again.next()) };
    assert_eq!(input.as_str(), text(&vector["end"]), "{title}, at its end");
    if vector["steps"].as_array().unwrap().last().unwrap()["calls"] == json!([]) {
        assert!(matches!(engine.next(), Next::End(Outcome::Completed { .. })), "{title}");
    }
}

fn list(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().unwrap().iter()
}

fn result(value: &Value) -> Result<String, Failure> {
    match &value["error"] {
        Value::Null => Ok(text(&value["output"]).into()),
        error => {
            let code = code::ALL.iter().find(|code| error[0] == **code).unwrap();
            Err(Failure::new(code, text(&error[1])))
        }
    }
}

#[test]
fn record_keys_of_events() {
    let mut kinds = HashSet::new();
    for vector in vectors!("record_keys", "record_keys") {
        let event: StepEvent = serde_json::from_str(&vector["event"].to_string()).unwrap();
        assert_eq!(event.record_key(), text(&vector["key"]), "{}", vector["event"]);
        kinds.insert(event.kind);
    }
    assert_eq!(kinds.len(), 8, "every type has a vector: {kinds:?}");
}
