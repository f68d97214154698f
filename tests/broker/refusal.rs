//! Tools that require approval: nobody can be asked, so a worker refuses them.

use serde_json::json;

use super::support::{Mill, Setup, one_call};

/// The worker and the check end with the same code, and both say all of this; the group was never joined.
fn assert_refused(mill: &Mill, code: i32, says: &[&str]) {
    let worker = mill.run(&["worker"]).expect(code);
    let check = mill.run(&["check"]).expect(code);
    for text in says {
        assert!(worker.stderr.contains(text), "the worker does not say {text:?}:\n{}", worker.stderr);
        assert!(check.stdout.contains(text), "the check does not say {text:?}:\n{}", check.stdout);
    }
    assert!(!mill.cluster.has_group(&mill.id), "the worker joined the group");
    assert_eq!(mill.records("events").len(), 0);
}

#[test]
fn an_agent_with_a_gated_tool_stops_the_worker_before_it_joins() {
    let mill = Setup::ledger("refused").agent(r#"tools = ["note", "refund"]"#).ready();
    mill.send(&[one_call("s", "t", "note", json!({"text": "x"}))]);
    assert_refused(&mill, 4, &["\"support\"", "\"refund\"", "registered by this program", "approval"]);
    assert_eq!(mill.ledger().len(), 0);
}

#[test]
fn a_tool_that_a_person_must_approve_for_some_arguments_is_refused_too() {
    let mill = Setup::ledger("refused-predicate").agent(r#"tools = ["note", "pay_out"]"#).ready();
    assert_refused(&mill, 4, &["\"support\"", "\"pay_out\"", "registered by this program", "approval"]);
}

#[test]
fn a_pattern_that_picks_a_gated_tool_is_refused_too() {
    let mill = Setup::ledger("refused-pattern").agent(r#"tools = ["*"]"#).ready();
    assert_refused(&mill, 4, &["\"support\"", "\"refund\""]);
}

#[test]
fn every_refusal_is_reported_beside_every_other_problem() {
    let other = "[[agents]]\nname = \"other\"\nmodel = \"gpt-9\"\ntools = [\"nothing\", \"ref*\"]\n";
    let mill = Setup::ledger("refused-and-wrong").agent(r#"tools = ["refund"]"#).more(other).ready();
    assert_refused(&mill, 2, &["\"support\"", "\"other\"", "\"refund\"", "gpt-9", "nothing"]);
}

#[test]
fn an_mcp_server_with_gated_tools_is_refused_without_being_started() {
    let server = "[[mcp_servers]]\nname = \"github\"\ncommand = [\"touch\", \"started\"]\n\
                  requires_approval = [\"delete_issue\"]\n";
    let mill = Setup::stock("refused-mcp").more(server).ready();
    assert_refused(&mill, 4, &["\"github\"", "delete_issue", "approval"]);
    assert!(!mill.path().join("started").exists());
}

#[test]
fn an_mcp_server_without_gated_tools_is_not_in_this_version() {
    let server = "[[mcp_servers]]\nname = \"github\"\ncommand = [\"touch\", \"started\"]\n";
    let mill = Setup::stock("mcp").more(server).ready();
    assert_refused(&mill, 2, &["\"github\"", "no MCP client yet"]);
    assert!(!mill.path().join("started").exists());
}

#[test]
fn a_turn_that_names_a_gated_tool_fails_before_anything_runs() {
    let agent = "tools = [\"note\"]\nturn_tools = [\"refund\", \"pay_out\", \"ping\"]";
    let mill = Setup::ledger("turn-tools").agent(agent).ready();
    let _worker = mill.worker();
    let naming = |id: &str, tools: &[&str], called: &str| {
        let mut turn = one_call(id, id, called, json!({"order": "7", "text": "x"}));
        turn["tools"] = json!(tools);
        turn
    };
    mill.send(&[
        naming("gated", &["refund"], "refund"),
        naming("gated-among-others", &["note", "refund"], "note"),
        naming("gated-sometimes", &["pay_out"], "pay_out"),
        naming("not-allowed", &["fatal"], "fatal"),
        naming("not-there", &["nothing"], "nothing"),
    ]);
    for result in mill.results(5) {
        assert_eq!(result["status"], "failed", "{result}");
        assert_eq!(result["error"]["code"], "tool_registration_error", "{result}");
    }
    let message = |turn: &str| mill.result(turn)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message("gated").contains("\"refund\"") && message("gated").contains("approval"));
    assert!(message("gated-sometimes").contains("approval"));
    assert!(message("not-allowed").contains("turn_tools"));
    let events = mill.events();
    assert!(events.of_type("tool:start").is_empty() && events.of_type("model:reply").is_empty());

    // What the agent allows may be picked, and replaces its own list.
    mill.send(&[naming("allowed", &["ping"], "note")]);
    assert_eq!(mill.result("allowed")["status"], "completed");
    let note = mill.events().result("allowed", "m0.c0")["error"]["message"].clone();
    assert_eq!(note, "unknown tool 'note'; available: ping");
    assert_eq!(mill.ledger().len(), 0);
}
