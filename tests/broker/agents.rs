//! Agents in code, tools that call tools, and agents that call agents, through the binary and a broker.

use serde_json::{Value, json};

use super::support::checks::{assert_one_input_per_key, runs_of};
use super::support::{Mill, Setup, call, calls, text, turn};

/// A turn for this agent of the program's.
fn turn_for(agent: &str, input: &str) -> Value {
    json!({"turn_id": "t", "session_id": "s", "agent": agent, "input": input})
}

/// A worker is killed while the tool `stuck` runs at this position, and another goes on; the result.
fn killed_in_the_middle(mill: &Mill, turn: &Value, position: &str) -> Value {
    let first = mill.ready_worker();
    mill.send([turn]);
    mill.wait_for_runs("stuck", 1);
    mill.wait_for_event("tool:start", Some(position));
    first.kill();
    let _second = mill.worker();
    let result = mill.result("t");
    assert_eq!(result["status"], "completed", "{result}");

    let ledger = mill.ledger();
    assert_one_input_per_key(&ledger);
    let runs = runs_of(&ledger, "stuck");
    let key = json!(format!("s/t/{position}"));
    let attempts: Vec<_> = runs.iter().map(|run| (&run["key"], &run["attempt"])).collect();
    assert_eq!(attempts, [(&key, &json!(1)), (&key, &json!(2))]);
    assert_eq!(runs_of(&ledger, "note").len(), 1, "what was recorded is not done again");
    result
}

#[test]
fn code_goes_on_after_a_kill_with_what_it_was_told_before() {
    let mill = Setup::ledger("code").ready();
    let result = killed_in_the_middle(&mill, &turn_for("clerk", "A-7"), "stuck#0");
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("noted A-7 ") && output.ends_with(" at attempt 1"), "{output}");
    assert_eq!((&result["usage"]["model_calls"], &result["usage"]["tool_calls"]), (&json!(0), &json!(2)));
    let events = mill.events();
    assert_eq!(events.types_at("t", "step:uuid#0"), ["step"]);
    let step = events.at("t", "step:look%2Fit%20up");
    assert_eq!(step.len(), 2);
    assert_eq!(
        (&step[0]["effect"], &step[0]["attempt"], &step[0]["status"]),
        (&json!("read"), &json!(1), &Value::Null)
    );
    assert_eq!((&step[1]["status"], &step[1]["attempts"]), (&json!("ok"), &json!(1)));
    assert_eq!(step[1]["idempotency_key"], "s/t/step:look%2Fit%20up");
    // As people read them.
    let lines = mill.run(&["events", "--turn", "t"]).expect(0).stdout;
    assert!(lines.contains("s/t/step:look%2Fit%20up") && lines.contains("s/t/note#0"), "{lines}");
}

#[test]
fn an_agent_that_a_model_calls_goes_on_after_a_kill_inside_its_call() {
    let mill = Setup::ledger("called").agent("sub_agents = [\"clerk\"]").ready();
    let asked = calls(&[call("clerk", json!({"input": "B-8"}))]);
    let turn = turn("s", "t", &[asked, text("it is noted")]);
    let result = killed_in_the_middle(&mill, &turn, "m0.c0/stuck#0");
    assert_eq!(result["output"], "it is noted");
    assert_eq!((&result["usage"]["model_calls"], &result["usage"]["tool_calls"]), (&json!(2), &json!(3)));
    let events = mill.events();
    assert_eq!(events.types_at("t", "m0.c0"), ["tool:start", "tool:start", "tool:result"]);
    let end = events.result("t", "m0.c0");
    assert_eq!(
        (&end["tool"], &end["agent"], &end["usage"]["tool_calls"]),
        (&json!("clerk"), &json!("support"), &json!(2))
    );
    assert_eq!(events.at("t", "m0.c0/note#0")[0]["agent"], "clerk");
}

#[test]
fn a_tool_that_calls_tools_goes_on_after_a_kill_inside_its_call() {
    let mill = Setup::ledger("nested").ready();
    let turn = turn("s", "t", &[calls(&[call("relay", json!({"text": "C-9"}))]), text("relayed")]);
    let result = killed_in_the_middle(&mill, &turn, "m0.c0/stuck#0");
    assert_eq!((&result["output"], &result["usage"]["tool_calls"]), (&json!("relayed"), &json!(3)));
    assert_eq!(mill.events().types_at("t", "m0.c0/note#0"), ["tool:start", "tool:result"]);
}

#[test]
fn a_direct_call_of_what_needs_a_person_fails_the_turn_and_nothing_runs_after_it() {
    // No agent's list has it.
    let mill = Setup::ledger("direct-gate").agent("tools = [\"note\"]").ready();
    let _worker = mill.worker();
    mill.send(&[turn_for("payer", "go")]);
    let result = mill.result("t");
    assert_eq!(
        (&result["status"], &result["error"]["code"]),
        (&json!("failed"), &json!("tool_registration_error"))
    );
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("\"pay_out\"") && message.contains("pay_out#0"), "{message}");
    let ledger = mill.ledger();
    assert_eq!(ledger.iter().map(|run| &run["key"]).collect::<Vec<_>>(), ["s/t/note#0"]);
    assert!(mill.events().at("t", "pay_out#0").is_empty());
}

#[test]
fn a_drain_does_not_wait_for_code_that_waits_for_no_step() {
    let mill = Setup::ledger("idle").worker(r#"drain_timeout = "10m""#).ready();
    let first = mill.ready_worker();
    let mut turn = turn_for("idler", "go");
    turn["metadata"] = json!({"idle": "yes"});
    mill.send([&turn]);
    mill.wait_for_event("tool:result", Some("note#0"));
    first.terminate().expect(0);
    std::fs::write(mill.path().join("open"), "").unwrap();
    let _second = mill.worker();
    assert_eq!(mill.result("t")["output"], "done");
    let keys: Vec<_> = mill.ledger().iter().map(|run| run["key"].clone()).collect();
    assert_eq!(keys, ["s/t/note#0", "s/t/note#1"]);
}

#[test]
fn the_agents_are_shown_and_what_is_wrong_with_them_has_its_line() {
    let mill = Setup::ledger("agents").agent("sub_agents = [\"clerk\"]").without_topics();
    let text = mill.run(&["check", "--offline", "--tools"]).expect(0).stdout;
    assert!(text.contains("agent clerk (model scripted, in code): tools none; agents none"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("agent support (model scripted): tools ")
            && line.ends_with("; agents clerk")),
        "{text}"
    );
    let all = mill.run(&["check", "--offline", "--tools", "--json"]).expect(0).json();
    let clerk =
        all[0]["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == "clerk").unwrap().clone();
    assert_eq!(clerk["in_code"], true);
    assert_eq!(clerk["anthropic"]["description"], "Writes things down.");
    assert_eq!(clerk["anthropic"]["input_schema"]["required"], json!(["input"]));

    mill.reconfigure("sub_agents = [\"clerk\"]", "sub_agents = [\"clark\"]");
    let text = mill.run(&["check", "--offline"]).expect(2).stdout;
    assert!(
        text.contains("sub_agents[0]: agent \"support\": no agent is called \"clark\"; there are "),
        "{text}"
    );
}
