//! The other commands, as a shell sees them.

use serde_json::{Value, json};

use super::support::Setup;

#[test]
fn topics_are_checked_and_applied_once() {
    let mill = Setup::stock("topics").without_topics();
    let missing = mill.run(&["topics", "check"]).expect(2);
    assert_eq!(missing.stdout.matches("does not exist").count(), 6, "{}", missing.stdout);
    assert!(missing.stderr.contains("turnmill topics apply"), "{}", missing.stderr);

    let applied = mill.run(&["topics", "apply", "--partitions", "3", "--json"]).expect(0);
    assert_eq!(applied.json()[0]["actions"].as_array().unwrap().len(), 6);
    let again = mill.run(&["topics", "apply", "--json"]).expect(0);
    assert_eq!(again.json(), [json!({"actions": [], "problems": [], "unknown": []})]);
    let checked = mill.run(&["topics", "check", "--json"]).expect(0);
    let topics = checked.json()[0]["topics"].as_array().unwrap().clone();
    let of = |role: &str| topics.iter().find(|topic| topic["role"] == role).unwrap()["partitions"].clone();
    assert_eq!((of("turns"), of("events"), of("control")), (json!(3), json!(3), json!(1)));
    assert!(mill.run(&["check"]).expect(0).stdout.contains("everything is right"));
}

#[test]
fn the_tools_are_shown_with_their_agents_and_as_providers_take_them() {
    let mill = Setup::stock("tools").agent("tools = [\"add\", \"fl*\"]").without_topics();
    let text = mill.run(&["check", "--offline", "--tools"]).expect(0).stdout;
    let add = "tool add (read_only; support): ";
    assert!(text.lines().any(|line| line.starts_with(add)) && text.contains("no agent): "), "{text}");

    let all = mill.run(&["check", "--offline", "--tools", "--json"]).expect(0).json();
    let tools = all[0]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["echo", "add", "sleep", "flaky"], "in the order of their registration");
    let add = &tools[1];
    assert_eq!(add["agents"], json!(["support"]));
    assert_eq!(add["timeout"], "30s");
    assert_eq!(add["output"]["type"], "integer");
    assert_eq!((&add["cost_per_call"], &add["cache_ttl"]), (&json!("0"), &Value::Null));
    assert_eq!(add["source"], "registered by this program");
    let (anthropic, openai) = (&add["anthropic"], &add["openai"]);
    assert_eq!(anthropic["name"], "add");
    assert_eq!(anthropic["input_schema"]["properties"]["a"]["type"], "integer");
    assert_eq!(openai["type"], "function");
    assert_eq!(openai["function"]["parameters"], anthropic["input_schema"]);
    assert_eq!(openai["function"]["description"], anthropic["description"]);
}

#[test]
fn a_worker_without_topics_says_what_to_do() {
    let mill = Setup::stock("no-topics").without_topics();
    let worker = mill.run(&["worker"]).expect(2);
    assert!(worker.stderr.contains("does not exist"), "{}", worker.stderr);
    assert!(worker.stderr.contains("`turnmill topics apply`"), "{}", worker.stderr);
    let check = mill.run(&["check"]).expect(2);
    assert!(check.stdout.contains("does not exist"), "{}", check.stdout);
    mill.run(&["check", "--offline"]).expect(0);
    for command in [&["results"][..], &["events"], &["submit", "--agent", "support", "--session", "s", "x"]] {
        let ended = mill.run(command).expect(3);
        assert!(ended.stderr.contains("does not exist"), "{command:?}: {}", ended.stderr);
    }
}

#[test]
fn a_submitted_turn_is_waited_for_and_read_back() {
    let mill = Setup::stock("submit").partitions(2).ready();
    let _worker = mill.worker();
    let submit = |id: &str, script: &str, more: &[&str]| {
        let script = format!("script={script}");
        let line = ["submit", "--agent", "support", "--session", "s", "--turn-id", id, "--metadata", &script];
        mill.run(&[&line, more, &["hello"]].concat())
    };
    let echo =
        r#"{"replies": [{"calls": [{"name": "echo", "arguments": {"text": "hi"}}]}, {"text": "all done"}]}"#;
    let shown = submit("t1", echo, &["--wait"]).expect(0);
    assert!(shown.stdout.contains("completed") && shown.stdout.contains("all done"), "{}", shown.stdout);
    let failed = submit("t2", r#"{"replies": [{"error": "no answer"}]}"#, &["--wait", "--json"]).expect(1);
    let result = &failed.json()[0];
    assert_eq!((&result["turn_id"], &result["error"]["code"]), (&json!("t2"), &json!("model_error")));
    let sent = submit("t3", echo, &["--json"]).expect(0).json();
    assert_eq!((&sent[0]["turn_id"], &sent[0]["session_id"]), (&json!("t3"), &json!("s")));
    assert_eq!(mill.result("t3")["status"], "completed");

    let results = mill.run(&["results", "--session", "s", "--json"]).expect(0).json();
    let ids: Vec<_> = results.iter().map(|result| &result["turn_id"]).collect();
    assert_eq!(ids, ["t1", "t2", "t3"]);
    assert!(mill.run(&["results", "--turn", "t1"]).expect(0).stdout.contains("all done"));

    let events = mill.run(&["events", "--turn", "t1", "--json"]).expect(0).json();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        ["turn:start", "model:reply", "tool:start", "tool:result", "model:reply", "turn:output", "turn:end"]
    );
    let span = &results[0]["events"];
    let from = ["partition", "first_offset"].map(|field| span[field].to_string());
    let line = ["events", "--partition", &from[0], "--offset", &from[1], "--json"];
    assert_eq!(mill.run(&line).expect(0).json()[0], events[0]);
    let text = mill.run(&["events", "--turn", "t1"]).expect(0).stdout;
    assert!(text.contains("echo") && text.lines().count() >= types.len(), "{text}");

    let nothing = mill.run(&["events", "--turn", "t9"]).expect(3);
    assert!(nothing.stderr.contains("t9"), "{}", nothing.stderr);
    mill.run(&["results", "--turn", "t9"]).expect(3);
}

#[test]
fn a_result_that_does_not_come_is_not_waited_for_for_ever() {
    let mill = Setup::stock("late").ready();
    let line = [
        "submit",
        "--agent",
        "support",
        "--session",
        "s",
        "--turn-id",
        "t",
        "--wait",
        "--timeout",
        "1s",
        "x",
    ];
    let late = mill.run(&line).expect(1);
    assert!(late.stderr.contains("turnmill results --turn t --follow"), "{}", late.stderr);
}

#[test]
fn a_mistake_in_the_configuration_is_told_with_its_place() {
    let mill = Setup::stock("wrong").more("[worker_]\nmax_in_flight = 0\n").without_topics();
    for command in [&["worker"][..], &["topics", "check"], &["results"]] {
        let ended = mill.run(command).expect(2);
        assert!(ended.stderr.contains("worker_"), "{command:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("turnmill.toml"), "{command:?}: {}", ended.stderr);
    }
    let check = mill.run(&["check"]).expect(2);
    assert!(check.stdout.contains("worker_"), "{}", check.stdout);
}
