//! Ends that are not the model's last word: cancelled, too late, a process that dies each time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::support::checks::{assert_all_completed, in_both_modes, results_per_turn, runs_of};
use super::support::{Mill, Setup, call, calls, one_call, text, turn};

/// Workers that are missed are replaced soon.
fn hasty(name: &str) -> Setup {
    Setup::ledger(name).property("session.timeout.ms", 4000).property("heartbeat.interval.ms", 300)
}

fn note(session: &str, id: &str) -> Value {
    one_call(session, id, "note", json!({"text": id}))
}

fn in_ms(ms: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap() + ms
}

#[track_caller]
fn assert_failed(mill: &Mill, turn: &str, status: &str, code: &str) {
    let result = mill.result(turn);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!(status), &json!(code)), "{result}");
}

fn cancelled_turns(name: &str, exactly_once: bool) {
    let mill = Setup::ledger(name).exactly_once(exactly_once).ready();
    mill.run(&["cancel", "to-come", "--session", "s3"]).expect(0);
    let _worker = mill.ready_worker();
    mill.send(&[
        note("s", "finished"),
        one_call("s", "running", "patient", json!({"text": "x"})),
        note("s", "queued"),
        note("s", "after"),
        note("s3", "to-come"),
        note("s4", "to-come"),
    ]);
    mill.wait_for_runs("patient", 1);
    let mut thinking = text("never");
    thinking["delay_ms"] = json!(600_000);
    mill.send(&[turn("s2", "thinking", &[thinking]), note("s2", "after-thinking")]);
    mill.reader("events")
        .until("the start of the thinking turn", |r| r.iter().any(|r| r.json()["turn_id"] == "thinking"));
    for id in ["finished", "queued", "thinking", "running"] {
        mill.run(&["cancel", id]).expect(0);
    }
    for id in ["running", "queued", "thinking"] {
        assert_failed(&mill, id, "cancelled", "cancelled");
    }
    for id in ["finished", "after", "after-thinking"] {
        assert_eq!(mill.result(id)["status"], "completed");
    }
    mill.wait_until_committed();
    let counts = results_per_turn(&mill);
    assert!(counts.len() == 8 && counts.values().all(|count| *count == 1), "{counts:?}");
    let of = |session: &str| {
        let results = mill.records("results");
        let found = results
            .iter()
            .map(|r| r.json())
            .find(|r| r["session_id"] == session && r["turn_id"] == "to-come");
        found.unwrap()["status"].clone()
    };
    assert_eq!((of("s3"), of("s4")), (json!("cancelled"), json!("completed")), "another session's turn");
    let ledger = mill.ledger();
    let told: Vec<_> = runs_of(&ledger, "patient").iter().map(|run| &run["arguments"]).collect();
    assert_eq!(told, [&json!({"text": "x"}), &json!("cancelled")]);
    let mut notes: Vec<_> = runs_of(&ledger, "note").iter().map(|run| run["key"].as_str().unwrap()).collect();
    notes.sort_unstable();
    assert_eq!(notes, ["s/after/m0.c0", "s/finished/m0.c0", "s2/after-thinking/m0.c0", "s4/to-come/m0.c0"]);
    assert_eq!(mill.records("dead_letters").len(), 0);
}

#[test]
fn a_cancel_ends_a_turn_that_runs_waits_or_is_still_to_come_and_no_other() {
    in_both_modes("cancel", cancelled_turns);
}

#[test]
fn a_cancelled_turn_does_not_run_again_after_a_kill() {
    let mill = hasty("cancel-kill").ready();
    let first = mill.ready_worker();
    let steps = [calls(&[call("stuck", json!({"text": "x"}))]), calls(&[call("note", json!({"text": "y"}))])];
    mill.send(&[turn("s", "t", &[steps[0].clone(), steps[1].clone(), text("never")]), note("s", "next")]);
    mill.wait_for_runs("stuck", 1);
    mill.run(&["cancel", "t", "--session", "s"]).expect(0);
    // Its tool does not listen, so the turn cannot end before the worker does.
    first.kill();
    let _second = mill.worker();
    assert_failed(&mill, "t", "cancelled", "cancelled");
    assert_eq!(mill.result("next")["status"], "completed");
    mill.wait_until_committed();
    let ledger = mill.ledger();
    assert_eq!((runs_of(&ledger, "stuck").len(), runs_of(&ledger, "note").len()), (1, 1), "{ledger:?}");
}

#[test]
fn a_turn_whose_time_is_over_fails_and_a_model_that_hangs_holds_nothing_up() {
    let mill = Setup::ledger("deadline").ready();
    let _worker = mill.ready_worker();
    let with = |mut turn: Value, deadline: i64| {
        turn["deadline_ms"] = json!(deadline);
        turn
    };
    let mut hangs = calls(&[call("note", json!({"text": "x"}))]);
    hangs["delay_ms"] = json!(60_000);
    let began = Instant::now();
    mill.send(&[
        with(note("s", "past"), in_ms(-1000)),
        with(turn("s", "hangs", &[hangs, text("never")]), in_ms(2000)),
        with(note("s", "in-time"), in_ms(600_000)),
    ]);
    for id in ["past", "hangs"] {
        assert_failed(&mill, id, "failed", "deadline_exceeded");
    }
    assert_eq!(mill.result("in-time")["status"], "completed");
    mill.wait_until_committed();
    assert!(began.elapsed() < Duration::from_secs(30));
    let ledger = mill.ledger();
    assert_eq!(ledger.len(), 1, "{ledger:?}");
    let events = mill.events();
    assert!(events.at("past", "m0").is_empty() && events.at("hangs", "m0").is_empty());
    assert_eq!(mill.records("dead_letters").len(), 0);
}

/// Each worker dies of the turn; a static member is replaced at once.
fn crash_loop(name: &str, exactly_once: bool) {
    let mill = (Setup::ledger(name).worker("max_redeliveries = 2").exactly_once(exactly_once))
        .property("group.instance.id", "one")
        .ready();
    mill.send(&[
        note("s", "before"),
        one_call("s", "bad", "abort", json!({"text": "x"})),
        note("s", "after"),
    ]);
    let mut worker = mill.worker();
    let mut died = 0;
    while results_per_turn(&mill).len() < 3 {
        if !worker.running() {
            let ended = std::mem::replace(&mut worker, mill.worker()).wait();
            assert_eq!(ended.code, None, "not by a signal: {}", ended.stderr);
            died += 1;
            assert!(died < 6, "the turn kills every worker");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_failed(&mill, "bad", "failed", "crash_loop");
    mill.wait_until_committed();
    for id in ["before", "after"] {
        assert_eq!(mill.result(id)["status"], "completed");
    }
    let dead = mill.records("dead_letters");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].header("turnmill.error.code"), Some("crash_loop"));
    assert_eq!(dead[0].json()["turn_id"], "bad");
    // It was delivered, and delivered again at most twice.
    assert!((2..=3).contains(&died), "{died} workers died");
    assert_eq!(runs_of(&mill.ledger(), "abort").len(), died);
    assert_eq!(mill.records("results").len(), 3);
}

#[test]
fn a_turn_that_kills_its_workers_is_a_dead_letter_and_the_next_goes_on() {
    in_both_modes("crash-loop", crash_loop);
}

#[test]
fn a_tool_that_must_not_run_twice_is_reported_as_unknown_after_a_kill() {
    let mill = hasty("report").ready();
    let first = mill.ready_worker();
    let report = call("report_gate", json!({"file": "open"}));
    let both = calls(&[report, call("gate", json!({"file": "open"}))]);
    let turns = [turn("s", "t", &[both, text("done")])];
    mill.send(&turns);
    mill.wait_for_runs("report_gate", 1);
    mill.wait_for_runs("gate", 1);
    first.kill();
    let _second = mill.worker();
    mill.wait_for_runs("gate", 2);
    std::fs::write(mill.path().join("open"), "").unwrap();
    assert_all_completed(&mill, &turns, true);
    assert_eq!(runs_of(&mill.ledger(), "report_gate").len(), 1);
    let events = mill.events();
    assert_eq!(events.types_at("t", "m0.c0"), ["tool:start", "tool:result"]);
    let result = events.result("t", "m0.c0");
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("error"), &json!("unknown_outcome")));
    assert_eq!(events.result("t", "m0.c1")["status"], "ok");

    // Where nothing dies it is a tool like any other.
    let turns = [&turns[..], &[one_call("s", "calm", "report_gate", json!({"file": "open"}))]].concat();
    mill.send(&turns[1..]);
    assert_all_completed(&mill, &turns, true);
    assert_eq!(mill.events().result("calm", "m0.c0")["output"], "it is open");
}
