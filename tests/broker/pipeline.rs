//! Many turns, several workers, rebalances.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::support::topic::Sent;
use super::support::{Mill, Setup, call, calls, one_call, text, turn};

/// The turns of each session have their first results in the order of `sent`, all completed.
fn assert_completed_in_order(sent: &[Value], results: &[Value]) {
    let mut due: HashMap<&Value, Vec<&Value>> = HashMap::new();
    for turn in sent {
        due.entry(&turn["session_id"]).or_default().push(&turn["turn_id"]);
    }
    let (mut came, mut seen): (HashMap<_, Vec<_>>, _) = (HashMap::new(), HashSet::new());
    for result in results {
        assert_eq!(result["status"], "completed", "{result}");
        if seen.insert((&result["session_id"], &result["turn_id"])) {
            came.entry(&result["session_id"]).or_default().push(&result["turn_id"]);
        }
    }
    assert_eq!(came, due);
}

fn assert_no_dead_letters(mill: &Mill) {
    assert_eq!(mill.records("dead_letters").len(), 0);
}

#[test]
fn a_thousand_turns_come_out_completed_and_in_order_while_a_second_worker_joins() {
    let mill = Setup::stock("thousand").partitions(4).ready();
    let turns: Vec<Value> = (0..1000)
        .map(|n| one_call(&format!("s{}", n % 50), &format!("t{n}"), "echo", json!({"text": n.to_string()})))
        .collect();
    let (before, after) = turns.split_at(500);
    let _first = mill.ready_worker();
    mill.send(before);
    let _second = mill.ready_worker();
    mill.send(after);

    assert_completed_in_order(&turns, &mill.results(1000));
    mill.wait_until_committed();
    assert_no_dead_letters(&mill);
    let events = mill.events();
    let ended: HashSet<_> = events.of_type("turn:end").iter().map(|end| end["turn_id"].as_str()).collect();
    assert_eq!(ended.len(), 1000);
    let workers: HashSet<_> =
        (events.of_type("claim").iter()).filter_map(|claim| claim["claim"]["member"].as_str()).collect();
    assert_eq!(workers.len(), 2);
}

#[test]
fn a_rebalance_lets_running_tools_finish_and_repeats_nothing() {
    // Only a worker that has really gone loses its partitions here.
    let mill = Setup::ledger("rebalance").partitions(4).property("session.timeout.ms", 30_000).ready();
    let mut first = mill.ready_worker();
    let turns: Vec<Value> = (0..24)
        .map(|n| {
            let gate = calls(&[call("gate", json!({"file": "open"}))]);
            let note = calls(&[call("note", json!({"text": n.to_string()}))]);
            turn(&format!("s{}", n % 8), &format!("t{n}"), &[gate, note, text("done")])
        })
        .collect();
    for (turn, partition) in turns.iter().zip((0..4).cycle()) {
        let value = turn.to_string();
        let value = Some(value.as_bytes());
        mill.send_record(Sent { partition: Some(partition), value, ..Sent::default() });
    }
    mill.wait_for_runs("gate", 8);
    let _second = mill.worker();
    first.wait_for_log("partition revoked");
    std::fs::write(mill.path().join("open"), "").unwrap();

    assert_completed_in_order(&turns, &mill.results(24));
    mill.wait_until_committed();
    assert_no_dead_letters(&mill);
    let ledger = mill.ledger();
    let keys: HashSet<_> = ledger.iter().filter_map(|run| run["key"].as_str()).collect();
    assert_eq!((keys.len(), ledger.len()), (48, 48), "a call ran twice, or never");
    let workers: HashSet<_> = ledger.iter().map(|run| &run["pid"]).collect();
    assert_eq!(workers.len(), 2, "the second worker got nothing to do");
}

#[test]
fn kills_at_any_moment_lose_nothing_and_give_no_key_two_inputs() {
    const KILLS: usize = 3;
    let mill = (Setup::ledger("kills").partitions(2))
        .property("session.timeout.ms", 4000)
        .property("heartbeat.interval.ms", 300)
        .ready();
    let turns: Vec<Value> = (0..60)
        .map(|n| {
            let note = |step: &str| call("note", json!({"text": format!("{n} {step}")}));
            let slow = call("slow_note", json!({"text": n.to_string(), "ms": 50}));
            let replies = [calls(&[note("a"), slow]), calls(&[note("b")]), text("done")];
            turn(&format!("s{}", n % 10), &format!("t{n}"), &replies)
        })
        .collect();
    mill.send(&turns);
    for kill in 1..=KILLS {
        let worker = mill.worker();
        mill.wait_for_runs("note", kill * 25);
        worker.kill();
    }
    let _last = mill.worker();

    assert_completed_in_order(&turns, &mill.results(60));
    mill.wait_until_committed();
    assert_no_dead_letters(&mill);
    let ledger = mill.ledger();
    let mut inputs: HashMap<_, HashSet<_>> = HashMap::new();
    for run in &ledger {
        inputs.entry(run["key"].as_str()).or_default().insert(run["arguments"].to_string());
    }
    assert_eq!(inputs.len(), 180);
    assert!(inputs.values().all(|inputs| inputs.len() == 1), "{inputs:?}");
    // A kill hits at most the two calls of one reply in each of ten sessions.
    assert!(ledger.len() <= 180 + KILLS * 20, "{} runs", ledger.len());
}

#[test]
fn no_more_turns_run_at_once_than_are_allowed() {
    let mill = Setup::stock("in-flight").worker("max_in_flight = 3").ready();
    let turns: Vec<Value> =
        (0..30).map(|n| one_call(&format!("s{n}"), &format!("t{n}"), "sleep", json!({"ms": 20}))).collect();
    mill.send(&turns);
    let _worker = mill.worker();
    assert_completed_in_order(&turns, &mill.results(30));
    let (mut running, mut most) = (0, 0);
    for event in &mill.events().0 {
        match event["type"].as_str() {
            Some("turn:start") => running += 1,
            Some("turn:end") => running -= 1,
            _ => {}
        }
        most = most.max(running);
    }
    assert_eq!(most, 3);
}

#[test]
fn partitions_that_are_added_are_worked_on_without_a_restart() {
    let mill = Setup::stock("widened").property("topic.metadata.refresh.interval.ms", 500).ready();
    let _worker = mill.ready_worker();
    mill.run(&["topics", "apply", "--partitions", "3"]).expect(0);
    let turns: Vec<Value> = (0..3).map(|n| turn(&format!("s{n}"), &format!("t{n}"), &[text("ok")])).collect();
    for (partition, turn) in (0..).zip(&turns) {
        let value = turn.to_string();
        let value = Some(value.as_bytes());
        mill.send_record(Sent { partition: Some(partition), value, ..Sent::default() });
    }
    assert_completed_in_order(&turns, &mill.results(3));
    let partitions: HashSet<_> = mill.records("events").iter().map(|event| event.partition).collect();
    assert_eq!(partitions.len(), 3);
}
