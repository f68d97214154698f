//! What a tool, or a second copy of a turn, makes of a turn's end.

use serde_json::json;

use super::support::topic::Sent;
use super::support::{Setup, call, calls, one_call, text, turn};

#[test]
fn a_poison_error_sends_the_record_to_the_dead_letters_and_answers_with_a_failure() {
    let mill = Setup::ledger("poison").ready();
    let _worker = mill.worker();
    mill.send(&[
        one_call("s", "bad", "poison", json!({"text": "never again"})),
        one_call("s", "good", "note", json!({"text": "after"})),
    ]);
    let results = mill.results(2);
    assert_eq!(results[0]["status"], "failed");
    assert_eq!(results[0]["error"]["code"], "poison");
    assert_eq!(results[1]["status"], "completed");

    let dead = mill.records("dead_letters");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].header("turnmill.error.code"), Some("poison"));
    assert!(dead[0].header("turnmill.error.message").unwrap().contains("never again"));
    assert_eq!(dead[0].json()["turn_id"], "bad");
    // Its retry = 3 is not for such an error.
    assert_eq!(mill.ledger().iter().filter(|run| run["tool"] == "poison").count(), 1);
}

#[test]
fn a_fatal_error_fails_the_turn_and_leaves_no_dead_letter() {
    let mill = Setup::ledger("fatal").ready();
    let _worker = mill.worker();
    mill.send(&[one_call("s", "t", "fatal", json!({"text": "broken"}))]);
    let result = mill.result("t");
    assert_eq!(result["status"], "failed");
    assert_eq!(result["error"]["code"], "tool_fatal");
    assert!(result["error"]["message"].as_str().unwrap().contains("broken"));
    mill.wait_until_committed();
    assert_eq!(mill.records("dead_letters").len(), 0);
    assert_eq!(mill.ledger().len(), 1);
}

#[test]
fn a_turn_that_comes_twice_runs_once_and_its_id_is_not_taken_for_another() {
    let mill = Setup::ledger("twice").ready();
    let _worker = mill.worker();
    let turn = one_call("s", "t", "note", json!({"text": "once"}));
    // The same turn: its fields in another order, and white space.
    let mut fields: Vec<_> = turn.as_object().unwrap().iter().collect();
    fields.reverse();
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name:?} : {value}")).collect();
    let same = format!("{{ {} }}", fields.join(" , "));
    let other = one_call("s", "t", "note", json!({"text": "twice"}));
    mill.send(&[turn]);
    mill.send_record(Sent { key: Some(b"s"), value: Some(same.as_bytes()), ..Default::default() });
    mill.send(&[other]);
    mill.wait_until_committed();

    let runs: Vec<_> = mill.ledger().iter().map(|run| run["arguments"]["text"].clone()).collect();
    assert_eq!(runs, ["once"]);
    assert_eq!(mill.records("results").len(), 1);
    let dead = mill.records("dead_letters");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].header("turnmill.error.code"), Some("turn_id_reused"));
    assert_eq!(dead[0].header("turnmill.original.offset"), Some("2"));
}

#[test]
fn one_turn_id_in_two_sessions_is_two_turns() {
    let mill = Setup::ledger("sessions").ready();
    let _worker = mill.worker();
    mill.send(&[
        one_call("a", "t", "note", json!({"text": "a"})),
        one_call("b", "t", "note", json!({"text": "b"})),
    ]);
    assert!(mill.results(2).iter().all(|result| result["status"] == "completed"));
    let mut keys: Vec<_> = mill.ledger().iter().map(|run| run["key"].clone()).collect();
    keys.sort_unstable_by_key(ToString::to_string);
    assert_eq!(keys, ["a/t/m0.c0", "b/t/m0.c0"]);
}

#[test]
fn a_result_that_no_record_holds_fails_its_call_and_the_turn_goes_on() {
    let mill = Setup::ledger("large").ready();
    let _worker = mill.worker();
    let big = |bytes: usize| call("big", json!({"bytes": bytes}));
    mill.send(&[turn("s", "t", &[calls(&[big(1_200_000), big(900_000)]), text("went on")])]);
    let result = mill.result("t");
    assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("went on")));

    let events = mill.events();
    let large = events.result("t", "m0.c0");
    assert_eq!((&large["status"], &large["error"]["code"]), (&json!("error"), &json!("result_too_large")));
    let message = large["error"]["message"].as_str().unwrap();
    assert!(message.contains("big") && message.contains(" 1200"), "the size is not told: {message}");
    assert_eq!(events.result("t", "m0.c1")["output"].as_str().unwrap().len(), 900_000);
    assert_eq!(mill.ledger().len(), 2);
}

#[test]
fn an_answer_that_no_record_holds_fails_the_turn() {
    let mill = Setup::stock("large-answer").property("message.max.bytes", 100_000).ready();
    let _worker = mill.worker();
    mill.send(&[turn("s", "t", &[json!({"text": "x".repeat(150_000)})]), turn("s", "next", &[text("ok")])]);
    let results = mill.results(2);
    assert_eq!(results[0]["error"]["code"], "record_too_large", "{}", results[0]);
    assert_eq!(results[1]["output"], "ok");
}

#[test]
fn the_model_and_results_have_another_text_than_the_operator() {
    let mill = Setup::ledger("two-texts").ready();
    let worker = mill.worker();
    let locked = |fatal: bool| calls(&[call("locked", json!({"fatal": fatal}))]);
    mill.send(&[turn("a", "told", &[locked(false), text("ok")]), turn("b", "failed", &[locked(true)])]);
    assert_eq!(mill.result("told")["status"], "completed");
    let failed = mill.result("failed");
    let error = json!({"code": "tool_fatal", "message": "tool locked: The account is locked."});
    assert_eq!(failed["error"], error);
    mill.wait_until_committed();

    let events = mill.events();
    let operator = "row 17 of db-3 is locked";
    let error = json!({"code": "tool_error", "message": "The account is locked.", "detail": operator});
    assert_eq!(events.result("told", "m0.c0")["error"], error);
    assert_eq!(events.result("failed", "m0.c0")["error"]["detail"], operator);
    assert!(worker.log().contains(operator), "{}", worker.log());
    let shown = mill.run(&["events", "--turn", "told"]).expect(0).stdout;
    assert!(shown.contains(&format!("tool_error: The account is locked. ({operator})")), "{shown}");
    // Neither is retried.
    assert_eq!(mill.ledger().len(), 2);
}

#[test]
fn a_failed_tool_ends_the_turn_of_an_agent_that_wants_it_so() {
    let agent = "tools = [\"flaky\", \"note\"]\non_tool_error = \"fail_turn\"";
    let mill = Setup::ledger("fail-turn").agent(agent).ready();
    let _worker = mill.worker();
    let flaky = |times: u32| call("flaky", json!({"fail_times": times}));
    let wrong = calls(&[call("nope", json!({})), call("note", json!({"txt": 1})), flaky(1)]);
    mill.send(&[
        turn(
            "a",
            "failed",
            &[calls(&[flaky(9), call("note", json!({"text": "beside"}))]), text("never said")],
        ),
        turn("b", "mended", &[wrong, text("went on")]),
    ]);
    let failed = mill.result("failed");
    assert_eq!(failed["status"], "failed", "{failed}");
    assert_eq!(failed["error"], json!({"code": "tool_error", "message": "attempt 4 failed, as asked"}));
    // The other call of the reply ran to its end.
    assert_eq!(mill.events().result("failed", "m0.c1")["status"], "ok");
    // What the model gets wrong is the model's to mend.
    assert_eq!(mill.result("mended")["output"], "went on");
    mill.wait_until_committed();
    assert_eq!(mill.records("dead_letters").len(), 0);
}

#[test]
fn an_odd_result_or_a_panic_is_its_calls_alone() {
    let mill = Setup::ledger("odd").ready();
    let mut worker = mill.worker();
    let odd = |how: &str| call("odd", json!({"how": how}));
    let all =
        [odd("not a number"), odd("deep"), odd("panic"), odd("utf-16"), call("note", json!({"text": "ok"}))];
    mill.send(&[turn("s", "t", &[calls(&all), text("went on")])]);
    assert_eq!(mill.result("t")["output"], "went on");
    let events = mill.events();
    let code = |position: &str| events.result("t", position)["error"]["code"].clone();
    assert_eq!(["m0.c0", "m0.c1", "m0.c2"].map(code), ["invalid_result", "invalid_result", "tool_panicked"]);
    for position in ["m0.c0", "m0.c1", "m0.c2"] {
        let message = events.result("t", position)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("odd") && !message.contains("as it should"), "{message}");
    }
    assert_eq!(events.result("t", "m0.c3")["output"], "h\0\u{e9}\0");
    assert_eq!(events.result("t", "m0.c4")["output"], "ok");
    assert!(worker.running());
}
