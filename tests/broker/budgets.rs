//! How much a turn may use: what ends it, and that what was spent before a crash stays spent.

use serde_json::{Value, json};

use super::support::checks::runs_of;
use super::support::{Setup, call, calls, text, turn};

/// The turn with this budget.
fn within(mut turn: Value, budget: Value) -> Value {
    turn["budget"] = budget;
    turn
}

fn toll() -> Value {
    calls(&[call("toll", json!({}))])
}

#[test]
fn what_was_paid_before_a_crash_stays_paid() {
    let agent = "tools = [\"toll\", \"gate\"]\nmax_cost = \"1.00\"";
    let mill = Setup::ledger("cost").agent(agent).ready();
    let worker = mill.worker();
    let gate = calls(&[call("gate", json!({"file": "open"}))]);
    mill.send(&[turn("s", "t", &[toll(), gate, toll(), toll(), text("never said")])]);
    mill.wait_for_runs("gate", 1);
    worker.kill();
    std::fs::write(mill.path().join("open"), "").unwrap();
    let _worker = mill.worker();
    let result = mill.result("t");
    assert_eq!(result["status"], "failed", "{result}");
    let message = "reply m3 brings what the turn costs to as much as 1.50, and it may cost 1.00 (cost)";
    assert_eq!(result["error"], json!({"code": "cost_limit", "message": message}));
    assert_eq!(result["usage"]["cost"], "1.00");
    assert_eq!(runs_of(&mill.ledger(), "toll").len(), 2);
}

#[test]
fn a_turn_has_a_budget_of_its_own_within_that_of_its_agent() {
    let agent = "tools = [\"toll\", \"echo\"]\nmax_model_calls = 3\nmax_cost = \"0.50\"";
    let mill = Setup::ledger("budget").agent(agent).ready();
    let _worker = mill.worker();
    let echo = || calls(&[call("echo", json!({"text": "x"}))]);
    let tokens = |mut reply: Value| {
        reply["usage"] = json!({"input_tokens": 60, "output_tokens": 40});
        reply
    };
    let slow = json!({"text": "too late", "delay_ms": 600_000});
    mill.send(&[
        turn("a", "enough", &[echo(), toll(), text("done")]),
        turn("b", "agents", &[echo(), echo(), echo()]),
        within(turn("c", "more", &[toll(), toll()]), json!({"cost": "99", "model_calls": 99})),
        within(turn("d", "calls", &[echo(), echo()]), json!({"tool_calls": 1})),
        within(turn("e", "tokens", &[tokens(echo()), tokens(echo())]), json!({"tokens": 150})),
        within(turn("f", "answer", &[tokens(echo()), tokens(text("done"))]), json!({"tokens": 150})),
        within(turn("g", "seconds", &[slow]), json!({"seconds": 1})),
        within(turn("h", "misspelt", &[text("never")]), json!({"token": 1})),
    ]);
    let mut ended: Vec<(String, String)> = (mill.results(8).iter())
        .map(|result| {
            let code = result["error"]["code"].as_str().unwrap_or_default();
            (result["turn_id"].as_str().unwrap().to_owned(), code.to_owned())
        })
        .collect();
    ended.sort();
    let expected = [
        ("agents", "model_call_limit"),
        ("answer", ""),
        ("calls", "tool_call_limit"),
        ("enough", ""),
        ("misspelt", "invalid_turn"),
        ("more", "cost_limit"),
        ("seconds", "run_time_limit"),
        ("tokens", "token_limit"),
    ];
    let ended: Vec<(&str, &str)> = ended.iter().map(|(turn, code)| (turn.as_str(), code.as_str())).collect();
    assert_eq!(ended, expected);
    assert_eq!(mill.result("enough")["usage"]["cost"], "0.50");
    assert_eq!(mill.result("answer")["usage"].get("cost"), None);
}
