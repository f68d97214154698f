//! Kills, drains and signals: what runs again and what does not.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::topic::Sent;
use super::support::{Mill, Setup, call, calls, one_call, text, turn};

fn runs_of<'a>(ledger: &'a [Value], tool: &str) -> Vec<&'a Value> {
    ledger.iter().filter(|run| run["tool"] == tool).collect()
}

fn assert_completed(mill: &Mill, turn: &str) {
    let result = mill.result(turn);
    assert_eq!(result["status"], "completed", "{result}");
}

#[test]
fn a_killed_workers_turn_goes_on_and_only_the_tool_that_ran_runs_again() {
    let mill = Setup::ledger("kill").ready();
    let first = mill.ready_worker();
    let stuck = json!({"text": "b"});
    let replies =
        [calls(&[call("note", json!({"text": "a"}))]), calls(&[call("stuck", stuck.clone())]), text("ok")];
    mill.send(&[turn("s", "t", &replies)]);
    mill.wait_for_runs("stuck", 1);
    // A start is not awaited before the tool runs; without it on the log, the attempt would not be known.
    mill.wait_for_event("tool:start", Some("m1.c0"));
    first.kill();
    let _second = mill.worker();

    let result = mill.result("t");
    assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("ok")));
    let ledger = mill.ledger();
    assert_eq!(runs_of(&ledger, "note").len(), 1);
    let runs = runs_of(&ledger, "stuck");
    let attempts: Vec<_> = runs.iter().map(|run| &run["attempt"]).collect();
    assert_eq!(attempts, [1, 2]);
    assert!(runs.iter().all(|run| run["key"] == "s/t/m1.c0" && run["arguments"] == stuck));
    assert_ne!(runs[0]["pid"], runs[1]["pid"]);

    let events = mill.events();
    for (position, replies) in [("m0", 1), ("m1", 1), ("m2", 1)] {
        assert_eq!(events.at("t", position).len(), replies, "{position}");
    }
    assert_eq!(events.types_at("t", "m0.c0"), ["tool:start", "tool:result"]);
    assert_eq!(events.types_at("t", "m1.c0"), ["tool:start", "tool:start", "tool:result"]);
    assert_eq!(events.result("t", "m1.c0")["attempts"], 2);
    let starts: Vec<_> = events.of_type("turn:start").iter().map(|event| &event["attempt"]).collect();
    assert_eq!(starts, [1, 2]);
}

#[test]
fn a_tool_that_outlasts_the_poll_interval_costs_no_membership() {
    let mill = Setup::ledger("long-tool").property("max.poll.interval.ms", 6000).ready();
    let worker = mill.ready_worker();
    mill.send(&[one_call("s", "t", "slow_note", json!({"text": "long", "ms": 9000}))]);

    assert_completed(&mill, "t");
    mill.wait_until_committed();
    let ledger = mill.ledger();
    assert_eq!(ledger.iter().map(|run| &run["attempt"]).collect::<Vec<_>>(), [1]);
    assert_eq!(mill.records("results").len(), 1);
    assert_eq!(mill.events().of_type("claim").len(), 1);
    assert_eq!(worker.log().matches("partition assigned").count(), 1);
}

#[test]
fn sigterm_lets_the_running_tool_finish_and_leaves_the_rest_to_the_next_worker() {
    let mill = Setup::ledger("drain").ready();
    let mut first = mill.ready_worker();
    let turns: Vec<Value> = (0..3)
        .map(|n| {
            let note = call("note", json!({"text": n.to_string()}));
            let gate = call("gate", json!({"file": "open"}));
            turn("s", &format!("t{n}"), &[calls(&[gate]), calls(&[note]), text("done")])
        })
        .collect();
    mill.send(&turns);
    mill.wait_for_runs("gate", 1);
    first.signal("TERM");
    first.wait_for_log("draining");
    assert!(first.running());
    std::fs::write(mill.path().join("open"), "").unwrap();
    let ended = first.wait().expect(0);
    assert!(ended.stderr.contains("worker ended"), "{}", ended.stderr);
    // What ran has its result on the log, and nothing began after it.
    assert_eq!(mill.ledger().len(), 1);
    assert_eq!(mill.events().types_at("t0", "m0.c0"), ["tool:start", "tool:result"]);
    assert_eq!(mill.records("results").len(), 0);

    let _second = mill.worker();
    assert!(mill.results(3).iter().all(|result| result["status"] == "completed"));
    let mut keys: Vec<_> = mill.ledger().iter().map(|run| run["key"].as_str().unwrap().to_owned()).collect();
    keys.sort_unstable();
    let each = ["s/t0/m0.c0", "s/t0/m1.c0", "s/t1/m0.c0", "s/t1/m1.c0", "s/t2/m0.c0", "s/t2/m1.c0"];
    assert_eq!(keys, each);
    assert_eq!(mill.records("results").len(), 3);
}

#[test]
fn tools_that_outlast_the_drain_run_again_under_their_keys() {
    let mill = Setup::ledger("drain-timeout").worker(r#"drain_timeout = "1s""#).ready();
    let first = mill.ready_worker();
    // One can be cancelled, one is on a thread that cannot.
    let both = ["stuck", "block"].map(|tool| call(tool, json!({"text": "x"})));
    mill.send(&[turn("s", "t", &[calls(&both), text("done")])]);
    let tools = [("stuck", "m0.c0"), ("block", "m0.c1")];
    for (tool, position) in tools {
        mill.wait_for_runs(tool, 1);
        mill.wait_for_event("tool:start", Some(position));
    }
    first.terminate().expect(0);
    let events = mill.events();
    for (_, position) in tools {
        assert_eq!(events.types_at("t", position), ["tool:start"]);
    }

    let _second = mill.worker();
    assert_completed(&mill, "t");
    let ledger = mill.ledger();
    for (tool, position) in tools {
        let runs: Vec<_> = runs_of(&ledger, tool).iter().map(|run| (&run["key"], &run["attempt"])).collect();
        let key = json!(format!("s/t/{position}"));
        assert_eq!(runs, [(&key, &json!(1)), (&key, &json!(2))]);
    }
}

#[test]
fn a_tool_that_outlasts_a_revocation_runs_again_on_the_other_worker() {
    let mill = Setup::ledger("revoked").partitions(2).worker(r#"drain_timeout = "1s""#).ready();
    let mut first = mill.ready_worker();
    for partition in [0, 1] {
        let id = partition.to_string();
        let value = one_call(&id, &id, "stuck", json!({"text": "x"})).to_string();
        let value = Some(value.as_bytes());
        mill.send_record(Sent { partition: Some(partition), value, ..Sent::default() });
    }
    mill.wait_for_runs("stuck", 2);
    let _second = mill.worker();
    let moved = mill.results(1);
    assert_eq!(moved[0]["status"], "completed");

    let ledger = mill.ledger();
    let [one, other, again] = &ledger[..] else { panic!("{ledger:?}") };
    assert_eq!(again["key"], json!(format!("{0}/{0}/m0.c0", moved[0]["turn_id"].as_str().unwrap())));
    assert_eq!((&again["attempt"], &one["pid"]), (&json!(2), &other["pid"]));
    assert_ne!(again["pid"], one["pid"]);
    // What stayed goes on as it was.
    assert!(first.running());
}

#[test]
fn a_worker_that_was_thought_dead_adds_nothing_to_a_turn_that_another_has_ended() {
    let mill = Setup::ledger("zombie").ready();
    let mut first = mill.ready_worker();
    let gate = calls(&[call("gate", json!({"file": "open"}))]);
    let note = calls(&[call("note", json!({"text": "x"}))]);
    mill.send(&[turn("s", "t", &[gate, note, text("done")])]);
    mill.wait_for_runs("gate", 1);
    first.signal("STOP");
    let _second = mill.ready_worker();
    mill.wait_for_runs("gate", 2);
    std::fs::write(mill.path().join("open"), "").unwrap();
    assert_completed(&mill, "t");
    first.signal("CONT");
    first.wait_for_log("partition revoked");
    // After its end it can write nothing more.
    first.terminate().expect(0);
    let ledger = mill.ledger();
    assert_eq!(runs_of(&ledger, "note").len(), 1, "{ledger:?}");
    assert_eq!(mill.records("results").len(), 1);
}

#[test]
fn a_second_sigterm_ends_the_process_at_once() {
    let mill = Setup::ledger("second-signal").worker(r#"drain_timeout = "1h""#).ready();
    let mut worker = mill.ready_worker();
    mill.send(&[one_call("s", "t", "stuck", json!({"text": "x"}))]);
    mill.wait_for_runs("stuck", 1);
    worker.signal("TERM");
    worker.wait_for_log("draining");
    assert!(worker.running());
    worker.terminate().expect(1);
}

#[test]
fn a_worker_can_be_ended_in_the_middle_of_a_rebalance() {
    let mill = Setup::stock("ended-in-rebalance").partitions(4).ready();
    for round in 0..3 {
        let first = mill.ready_worker();
        let mut second = mill.worker();
        second.wait_for_log("worker started");
        // At another moment of the second one's joining each time.
        std::thread::sleep(Duration::from_millis(100 * round));
        first.signal("TERM");
        second.signal("INT");
        first.wait().expect(0);
        second.wait().expect(0);
    }
}

#[test]
fn a_worker_waits_for_brokers_and_can_be_ended_meanwhile() {
    let mill = Setup::stock("no-broker").brokers("127.0.0.1:1").without_topics();
    let mut worker = mill.worker();
    worker.wait_for_log("waiting for the brokers");
    worker.terminate().expect(0);
    let check = mill.run(&["check"]).expect(1);
    assert!(check.stdout.contains("127.0.0.1:1"), "{}", check.stdout);
}
