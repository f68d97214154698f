//! Workers that die, sleep, or have a twin: what their successors do, and what they cannot do any more.

use serde_json::{Value, json};

use super::support::checks::{
    assert_all_completed, assert_one_input_per_key, in_both_modes, runs_of, skipped,
};
use super::support::topic::Sent;
use super::support::{Setup, call, calls, one_call, text, turn, until};

/// Workers that are missed are replaced soon.
fn hasty(name: &str, exactly_once: bool) -> Setup {
    let setup = Setup::ledger(name).exactly_once(exactly_once);
    setup.property("session.timeout.ms", 4000).property("heartbeat.interval.ms", 300)
}

fn note(session: &str, id: &str) -> Value {
    one_call(session, id, "note", json!({"text": id}))
}

/// One slow turn holds the watermark while a hundred behind it end.
fn what_ended_behind_a_slow_turn_is_skipped(name: &str, exactly_once: bool) {
    const FAST: usize = 100;
    let mill = hasty(name, exactly_once).ready();
    let first = mill.ready_worker();
    let slow = one_call("slow", "slow", "gate", json!({"file": "open"}));
    let mut turns = vec![slow];
    turns.extend((0..FAST).map(|n| note(&format!("s{}", n % 10), &format!("t{n}"))));
    mill.send(&turns);
    mill.wait_for_runs("gate", 1);
    mill.reader("events").until("the ends of the fast turns", |records| {
        records.iter().filter(|record| record.json()["type"] == "turn:end").count() >= FAST
    });
    first.kill();

    let second = mill.ready_worker();
    mill.wait_for_runs("gate", 2);
    until("the skipped turns", || (skipped(&second) == FAST).then_some(()));
    std::fs::write(mill.path().join("open"), "").unwrap();
    assert_all_completed(&mill, &turns, true);
    mill.wait_until_committed();
    let ledger = mill.ledger();
    assert_eq!(runs_of(&ledger, "note").len(), FAST);
    assert_eq!(runs_of(&ledger, "gate").len(), 2);
    assert_one_input_per_key(&ledger);
}

#[test]
fn what_ended_behind_a_slow_turn_is_skipped_after_a_kill() {
    in_both_modes("slow", what_ended_behind_a_slow_turn_is_skipped);
}

/// The worker sleeps while the model thinks, and wakes up with a reply when another has the partition.
fn a_reply_that_comes_after_a_takeover_is_void(name: &str, exactly_once: bool) {
    let mill = hasty(name, exactly_once).ready();
    let mut first = mill.ready_worker();
    let mut reply = calls(&[call("note", json!({"text": "x"}))]);
    reply["delay_ms"] = json!(2000);
    let turns = [turn("s", "t", &[reply, text("done")])];
    mill.send(&turns);
    mill.wait_for_event("turn:start", None);
    first.signal("STOP");
    let mut second = mill.ready_worker();
    second.wait_for_log("partition ready");
    first.signal("CONT");
    // Its own reply is on the log, behind the other's claim.
    mill.reader("events").until("the void reply", |records| {
        let events: Vec<Value> = records.iter().map(|record| record.json()).collect();
        let claims = records.iter().zip(&events).filter(|(_, event)| event["type"] == "claim");
        let claims: Vec<i64> = claims.map(|(record, _)| record.offset).collect();
        (records.iter().zip(&events)).any(|(record, event)| {
            event["position"] == "m0" && event["fence"] == claims[0] && claims.get(1) < Some(&record.offset)
        })
    });
    first.wait_for_log("partition revoked");
    assert_all_completed(&mill, &turns, true);
    // After its end it can do nothing more.
    let log = first.terminate().expect(0).stderr;
    mill.wait_until_committed();
    let (ledger, events) = (mill.ledger(), mill.events());
    assert_eq!(ledger.len(), 1, "{ledger:?}");
    let claim = events.of_type("claim")[1]["claim"]["member"].as_str().unwrap();
    assert!(claim.ends_with(&format!("-{}", ledger[0]["pid"])), "the sleeper's tool ran: {ledger:?}\n{log}");
    assert_eq!(events.types_at("t", "m0.c0"), ["tool:start", "tool:result"]);
    assert_all_completed(&mill, &turns, true);
}

#[test]
fn a_reply_that_comes_after_a_takeover_is_void_and_starts_no_tool() {
    in_both_modes("void-reply", a_reply_that_comes_after_a_takeover_is_void);
}

/// Two processes believe that they are the same member. Whoever is fenced ends, and is started again by
/// whatever runs it.
fn twins(name: &str, exactly_once: bool) {
    const TURNS: usize = 160;
    let mill = hasty(name, exactly_once).partitions(2).property("group.instance.id", "twin").ready();
    let turns: Vec<Value> = (0..TURNS)
        .map(|n| {
            let slow = call("slow_note", json!({"text": n.to_string(), "ms": 200}));
            let note = call("note", json!({"text": n.to_string()}));
            turn(&format!("s{}", n % 8), &format!("t{n}"), &[calls(&[slow]), calls(&[note]), text("done")])
        })
        .collect();
    mill.send(&turns);
    let mut worker = mill.ready_worker();
    for twin in 1..=2 {
        mill.wait_for_runs("slow_note", twin * 16);
        let older = std::mem::replace(&mut worker, mill.ready_worker());
        // It hears of it at its next heartbeat.
        let ended = older.wait();
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("fatal error"), "{}", ended.stderr);
    }
    assert_all_completed(&mill, &turns, exactly_once);
    mill.wait_until_committed();
    let ledger = mill.ledger();
    assert_one_input_per_key(&ledger);
    let workers: std::collections::HashSet<_> = ledger.iter().map(|run| &run["pid"]).collect();
    assert!(workers.len() >= 2, "one worker had done everything: {workers:?}");
    assert_eq!(mill.records("dead_letters").len(), 0);
}

#[test]
fn of_two_workers_with_one_instance_id_the_older_ends_and_no_turn_is_lost() {
    in_both_modes("twins", twins);
}

#[test]
fn a_worker_that_gets_its_own_partition_back_never_runs_a_session_twice_at_once() {
    let mill = hasty("own-back", false).ready();
    let mut worker = mill.ready_worker();
    let turns = [
        one_call("s", "blocks", "block_gate", json!({"file": "open"})),
        note("s", "next"),
        one_call("other", "other", "gate", json!({"file": "open"})),
    ];
    mill.send(&turns);
    mill.wait_for_runs("block_gate", 1);
    mill.wait_for_runs("gate", 1);
    // Out of the group, and nobody else in it.
    worker.signal("STOP");
    let empty = || !mill.cluster.has_members(&mill.id);
    until("the end of the membership", || empty().then_some(()));
    worker.signal("CONT");
    worker.wait_for_log("partition revoked");
    // It is still in its tools: it must not take the partition again before they have ended.
    assert_eq!(worker.log().matches("partition assigned").count(), 1);
    std::fs::write(mill.path().join("open"), "").unwrap();
    assert_all_completed(&mill, &turns, true);
    mill.wait_until_committed();
    assert_eq!(worker.log().matches("partition assigned").count(), 2);
    // What ran when it lost the partition is on the log, and none of it ran again.
    let ledger = mill.ledger();
    let blocked: Vec<bool> =
        runs_of(&ledger, "block_gate").iter().map(|run| run["arguments"] == "ended").collect();
    assert_eq!(blocked, [false, true], "not a beginning and an end: {ledger:?}");
    assert_eq!((runs_of(&ledger, "gate").len(), runs_of(&ledger, "note").len()), (1, 1));
}

#[test]
fn a_partition_that_goes_and_comes_back_takes_its_running_sessions_along() {
    let mill = hasty("there-and-back", false).partitions(2).worker(r#"drain_timeout = "1s""#).ready();
    let first = mill.ready_worker();
    // Two partitions, so that the second worker gets one of them.
    let turns: Vec<Value> = (0..2)
        .map(|n| {
            let steps: Vec<Value> = (0..30)
                .map(|step| calls(&[call("slow_note", json!({"text": step.to_string(), "ms": 200}))]))
                .chain([text("done")])
                .collect();
            turn(&format!("s{n}"), &format!("t{n}"), &steps)
        })
        .collect();
    for (partition, turn) in (0..).zip(&turns) {
        let value = turn.to_string();
        mill.send_record(Sent {
            partition: Some(partition),
            value: Some(value.as_bytes()),
            ..Sent::default()
        });
    }
    mill.wait_for_runs("slow_note", 4);
    let second = mill.ready_worker();
    let runs = mill.ledger().len();
    mill.wait_for_runs("slow_note", runs + 4);
    second.terminate().expect(0);
    assert_all_completed(&mill, &turns, true);
    let ledger = mill.ledger();
    assert_one_input_per_key(&ledger);
    // Every call takes 200 ms: none of a session begins before the one before it has ended.
    for session in ["s0", "s1"] {
        let key = |run: &&Value| run["key"].as_str().unwrap().starts_with(&format!("{session}/"));
        let times: Vec<f64> = ledger.iter().filter(key).map(|run| run["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted_by(|a, b| b - a > 0.19), "{session}: {times:?}");
        assert_eq!(times.len(), 30, "a call that had the time to end ran again");
    }
    assert!(first.log().matches("partition assigned").count() >= 3);
}
