//! What a model gets wrong: the turn goes on, and the model is told.

use serde_json::{Value, json};

use super::support::{Events, Mill, Setup, call, calls, one_call, text, turn};

/// Runs the turns, which all complete, and hands back their events.
fn run(mill: &Mill, turns: &[Value]) -> Events {
    let _worker = mill.worker();
    mill.send(turns);
    for result in mill.results(turns.len()) {
        assert_eq!(result["status"], "completed", "{result}");
        assert_eq!(result["output"], "done", "{result}");
    }
    mill.events()
}

/// The call has this error on the log, and nothing of it ran.
#[track_caller]
fn assert_refused(events: &Events, turn: &str, position: &str, code: &str) -> String {
    assert_eq!(events.types_at(turn, position), ["tool:result"], "{turn} {position}");
    let result = events.result(turn, position);
    assert_eq!(result["status"], "error", "{result}");
    assert_eq!(result["error"]["code"], code, "{result}");
    assert!(result["output"].is_null(), "{result}");
    result["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn malformed_arguments_are_a_failed_call_and_run_nothing() {
    let mill = Setup::ledger("arguments").ready();
    let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let malformed = [
        ("brace-quote", r#"{"{""#),
        ("brace", "{"),
        ("two-objects", r#"{"text":"a"}{"text":"b"}"#),
        ("objects-apart", r#"{"text":"a"} {"text":"b"}"#),
        ("unterminated", r#"{"text": "never ends"#),
        ("lone-surrogate", r#"{"text":"\udc00"}"#),
        ("deep", &deep),
        ("array", r#"["text"]"#),
        ("text", r#""text""#),
        ("null-for-text", "null"),
        ("nothing-for-text", ""),
        ("wrong-type", r#"{"text": 1}"#),
    ];
    let turns: Vec<Value> = malformed.iter().map(|(id, raw)| one_call(id, id, "note", json!(raw))).collect();
    let events = run(&mill, &turns);
    for (id, raw) in malformed {
        let message = assert_refused(&events, id, "m0.c0", "invalid_arguments");
        assert!(message.starts_with("invalid arguments"), "{id}: {message:.200}");
        // What the model wrote is on the log, in its reply.
        assert_eq!(events.at(id, "m0")[0]["reply"]["calls"][0]["arguments"], raw, "{id}");
    }
    assert_eq!(mill.ledger().len(), 0);
}

#[test]
fn an_error_that_quotes_large_arguments_many_times_fits_its_record() {
    let mill = Setup::ledger("quoting").ready();
    let row = json!({"a": "x", "b": "x", "c": "x", "d": "x", "e": "x", "f": "x"});
    let grid = json!({"rows": {"r".repeat(250_000): row}});
    let events = run(&mill, &[one_call("s", "t", "grid", grid)]);
    assert_refused(&events, "t", "m0.c0", "invalid_arguments");
}

#[test]
fn missing_arguments_are_none_and_the_schema_decides() {
    let mill = Setup::ledger("no-arguments").ready();
    let nothing =
        [("null", json!("null")), ("empty", json!("")), ("blank", json!(" \n")), ("object", json!({}))];
    let turns: Vec<Value> = nothing.iter().map(|(id, raw)| one_call(id, id, "ping", raw.clone())).collect();
    let events = run(&mill, &turns);
    for (id, _) in nothing {
        let result = events.result(id, "m0.c0");
        assert_eq!((&result["arguments"], &result["output"]), (&json!({}), &json!("pong")), "{id}");
    }
    assert_eq!(mill.ledger().len(), 4);
}

#[test]
fn text_is_kept_exactly() {
    let mill = Setup::stock("text").ready();
    let echo = |id: &str, raw: &str| one_call(id, id, "echo", json!(raw));
    let turns = [
        echo("pair", r#"{"text":"\ud83d\ude00"}"#),
        echo("nul", r#"{"text":"a\u0000b"}"#),
        echo("controls", r#"{"text":"\u0001\u001f\r\n\u2028"}"#),
    ];
    let events = run(&mill, &turns);
    let text = |id: &str| events.result(id, "m0.c0")["output"].clone();
    assert_eq!(text("pair"), "😀");
    assert_eq!(text("nul"), "a\0b");
    assert_eq!(text("controls"), "\u{1}\u{1f}\r\n\u{2028}");
    assert_eq!(events.result("nul", "m0.c0")["arguments"], json!({"text": "a\0b"}));
}

#[test]
fn a_reply_cut_off_at_its_token_limit_runs_none_of_its_calls() {
    let mill = Setup::ledger("cut-off").ready();
    let mut cut = calls(&[call("note", json!({"text": "whole"})), call("note", json!(r#"{"text": "cu"#))]);
    cut["stop_reason"] = "max_tokens".into();
    let events = run(&mill, &[turn("s", "t", &[cut, text("done")])]);
    for position in ["m0.c0", "m0.c1"] {
        assert_refused(&events, "t", position, "reply_truncated");
    }
    assert_eq!(mill.ledger().len(), 0);
}

#[test]
fn an_unknown_tool_is_answered_with_the_names_of_those_there_are() {
    let mill = Setup::stock("unknown-tool").agent(r#"tools = ["sleep", "echo"]"#).ready();
    let unknown = calls(&[
        call("x", json!({})),
        call("", json!("")),
        call("add", json!({"a": 1, "b": 2})),
        call("echo", json!({"text": "known"})),
    ]);
    let events = run(&mill, &[turn("s", "t", &[unknown, text("done")])]);
    for (position, name) in [("m0.c0", "x"), ("m0.c1", ""), ("m0.c2", "add")] {
        let message = assert_refused(&events, "t", position, "unknown_tool");
        // In the order of their registration, not of the agent's list.
        assert_eq!(message, format!("unknown tool '{name}'; available: echo, sleep"));
    }
    assert_eq!(events.result("t", "m0.c3")["output"], "known");
}

#[test]
fn call_ids_that_are_missing_empty_or_used_twice_mix_no_results_up() {
    let mill = Setup::stock("call-ids").ready();
    let with_id = |id: Value, text: &str| {
        let mut call = call("echo", json!({"text": text}));
        call["id"] = id;
        call
    };
    let same = || vec![with_id(json!("same"), "a"), with_id(json!("same"), "b")];
    let none = vec![with_id(json!(""), "c"), with_id(Value::Null, "d"), call("echo", json!({"text": "e"}))];
    let events = run(&mill, &[turn("s", "t", &[calls(&same()), calls(&same()), calls(&none), text("done")])]);
    let outputs = ["m0.c0", "m0.c1", "m1.c0", "m1.c1", "m2.c0", "m2.c1", "m2.c2"]
        .map(|position| events.result("t", position)["output"].clone());
    assert_eq!(outputs, ["a", "b", "a", "b", "c", "d", "e"]);
}

#[test]
fn parallel_calls_run_side_by_side_and_each_has_its_result_at_its_position() {
    let mill = Setup::ledger("parallel").ready();
    let five: Vec<Value> = (0..5).map(|n| call("echo", json!({"text": n.to_string()}))).collect();
    // Each waits for the others.
    let meet: Vec<Value> = (0..5).map(|_| call("meet", json!({"count": 5}))).collect();
    let events = run(&mill, &[turn("s", "t", &[calls(&five), calls(&meet), text("done")])]);
    for n in 0..5 {
        let position = format!("m0.c{n}");
        assert_eq!(events.types_at("t", &position), ["tool:start", "tool:result"]);
        let result = events.result("t", &position);
        assert_eq!((&result["output"], &result["cause"]), (&json!(n.to_string()), &json!("m0")));
        assert_eq!(result["idempotency_key"], format!("s/t/{position}"));
        assert_eq!(events.result("t", &format!("m1.c{n}"))["status"], "ok");
    }
    assert_eq!(mill.ledger().len(), 5);
}

#[test]
fn a_failed_call_is_told_to_the_model_and_retries_keep_their_key() {
    let mill = Setup::stock("retries").ready();
    let flaky = |times: u32| call("flaky", json!({"fail_times": times}));
    let events = run(&mill, &[turn("s", "t", &[calls(&[flaky(2), flaky(9)]), text("done")])]);
    let (mended, failed) = (events.result("t", "m0.c0"), events.result("t", "m0.c1"));
    assert_eq!((&mended["status"], &mended["attempts"]), (&json!("ok"), &json!(3)));
    assert_eq!((&failed["error"]["code"], &failed["attempts"]), (&json!("tool_error"), &json!(4)));
}

#[test]
fn a_model_that_fails_fails_the_turn() {
    let mill = Setup::stock("model-error").ready();
    let _worker = mill.worker();
    mill.send(&[
        turn("a", "error", &[json!({"error": "no answer"})]),
        turn("b", "exhausted", &[calls(&[call("echo", json!({"text": "x"}))])]),
    ]);
    mill.results(2);
    assert_eq!(mill.result("error")["error"], json!({"code": "model_error", "message": "no answer"}));
    assert_eq!(mill.result("exhausted")["error"]["code"], "script_exhausted");
}

#[test]
fn a_turn_makes_no_more_calls_than_its_agent_allows() {
    let mill = Setup::ledger("limit").agent("tools = [\"note\"]\nmax_tool_calls = 3").ready();
    let _worker = mill.worker();
    let notes = |count: usize| calls(&vec![call("note", json!({"text": "x"})); count]);
    mill.send(&[
        turn("a", "all", &[notes(2), notes(1), text("done")]),
        turn("b", "more", &[notes(2), notes(2), text("done")]),
    ]);
    mill.results(2);
    assert_eq!(mill.result("all")["output"], "done");
    assert_eq!(mill.result("more")["error"]["code"], "tool_call_limit");
    assert_eq!(mill.ledger().len(), 5);
}
