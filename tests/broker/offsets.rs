//! What admins do to groups, offsets and topics while no worker runs, and what a worker makes of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::support::checks::{assert_all_completed, in_both_modes, skipped};
use super::support::topic::Sent;
use super::support::{Mill, Setup, one_call, text, turn, until};

const TURNS: usize = 20;

fn notes(from: usize) -> Vec<Value> {
    let note = |n| one_call(&format!("s{}", n % 5), &format!("t{n}"), "note", json!({"text": "x"}));
    (from..from + TURNS).map(note).collect()
}

/// Turns that have all ended; no worker runs.
fn ended(mill: &Mill) -> Vec<Value> {
    let worker = mill.ready_worker();
    let turns = notes(0);
    mill.send(&turns);
    mill.results(TURNS);
    mill.wait_until_committed();
    worker.terminate().expect(0);
    turns
}

/// A new worker reads everything again, runs nothing of it again and goes on with what is new. Its log.
fn assert_skips_what_has_ended(mill: &Mill, turns: Vec<Value>) -> String {
    let more = notes(TURNS);
    mill.send(&more);
    let worker = mill.ready_worker();
    until("the turns that were skipped", || (skipped(&worker) == TURNS).then_some(()));
    assert_all_completed(mill, &[turns, more].concat(), true);
    mill.wait_until_committed();
    assert_eq!(mill.ledger().len(), 2 * TURNS, "a turn that had ended ran again");
    assert_eq!(mill.records("dead_letters").len(), 0);
    let log = worker.log();
    worker.terminate().expect(0);
    log
}

fn a_group_made_anew_repeats_nothing(name: &str, exactly_once: bool) {
    let mill = Setup::ledger(name).exactly_once(exactly_once).ready();
    let turns = ended(&mill);
    mill.cluster.delete_group(&mill.id);
    assert_skips_what_has_ended(&mill, turns);
}

#[test]
fn a_group_that_was_deleted_and_comes_back_repeats_nothing() {
    in_both_modes("group-deleted", a_group_made_anew_repeats_nothing);
}

#[test]
fn a_recovery_point_moves_on_with_the_log_where_the_watermark_does_not() {
    let mill = Setup::ledger("refreshed").ready();
    ended(&mill);
    let events = mill.topic("events");
    for _ in 0..2 {
        mill.ready_worker().terminate().expect(0);
        let (_, metadata) = mill.cluster.commit_of(&mill.id, &mill.topic("turns"), 0);
        // Behind the claim of the worker that has just left.
        let end = mill.cluster.ends(&events)[0];
        assert!(metadata.contains(&format!(" r={end} floor={} ", end - 1)), "{end}: {metadata}");
    }
}

#[test]
fn offsets_that_were_moved_back_with_their_metadata_repeat_nothing() {
    let mill = Setup::ledger("moved").ready();
    let turns = ended(&mill);
    let topic = mill.topic("turns");
    let (offset, metadata) = mill.cluster.commit_of(&mill.id, &topic, 0);
    assert!(metadata.starts_with(&format!("turnmill/1 w={offset} ")), "{metadata}");
    mill.cluster.move_offset(&mill.id, &topic, 0, 0, &metadata);
    let log = assert_skips_what_has_ended(&mill, turns);
    assert!(log.contains("the recovery point cannot be used"), "{log}");
    assert!(log.contains(&format!("belongs to the watermark {offset}")), "{log}");
}

#[test]
fn offsets_that_were_moved_back_without_metadata_repeat_nothing() {
    let mill = Setup::ledger("wiped").exactly_once(true).ready();
    let turns = ended(&mill);
    mill.cluster.move_offset(&mill.id, &mill.topic("turns"), 0, 0, "");
    assert_skips_what_has_ended(&mill, turns);
}

#[test]
fn a_commit_whose_metadata_was_wiped_is_told_of_and_repeats_nothing() {
    let mill = Setup::ledger("wiped-at-end").ready();
    let turns = ended(&mill);
    // One below the end, as a tool that keeps no metadata writes it.
    let offset = i64::try_from(TURNS).unwrap() - 1;
    mill.cluster.move_offset(&mill.id, &mill.topic("turns"), 0, offset, "");
    let worker = mill.ready_worker();
    mill.wait_until_committed();
    assert_eq!((skipped(&worker), mill.ledger().len()), (1, TURNS));
    assert_all_completed(&mill, &turns, true);
    let log = worker.log();
    assert!(
        log.contains("the recovery point cannot be used") && log.contains("no metadata of ours"),
        "{log}"
    );
}

/// Turns that have ended behind one that has not, and whose events were deleted, come again.
fn deleted_events(name: &str, exactly_once: bool) {
    let mill = Setup::ledger(name).exactly_once(exactly_once).ready();
    let worker = mill.ready_worker();
    mill.send(&[turn("s", "first", &[text("ok")])]);
    mill.wait_until_committed();
    mill.send(&[one_call("s", "held", "gate", json!({"file": "open"}))]);
    mill.wait_for_runs("gate", 1);
    mill.send(&notes(0));
    mill.results(1 + TURNS);
    worker.kill();
    mill.cluster.delete_records(&mill.topic("events"));

    std::fs::write(mill.path().join("open"), "").unwrap();
    let worker = mill.ready_worker();
    // Clocks may differ by a minute, so that what is sent now could be as old as what was deleted.
    let later = SystemTime::now() + Duration::from_secs(120);
    let later = later.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let new = turn("s", "new", &[text("ok")]).to_string();
    mill.send_record(Sent {
        key: Some(b"s"),
        value: Some(new.as_bytes()),
        timestamp: Some(i64::try_from(later).unwrap()),
        ..Sent::default()
    });
    mill.result("new");
    mill.wait_until_committed();
    let log = worker.log();
    assert!(log.contains("the recovery point cannot be used"), "{log}");
    worker.terminate().expect(0);
    let (letters, runs) = (mill.records("dead_letters"), mill.ledger().len());
    if exactly_once {
        let codes =
            letters.iter().filter(|r| r.header("turnmill.error.code") == Some("journal_expired")).count();
        assert_eq!((letters.len(), codes), (1 + TURNS, 1 + TURNS), "what may have ended ran again");
        assert_eq!((runs, mill.records("results").len()), (1 + TURNS, 2 + TURNS));
    } else {
        assert_eq!((letters.len(), runs), (0, 2 + 2 * TURNS));
    }
}

#[test]
fn turns_whose_events_were_deleted_run_again_or_are_dead_letters_where_that_could_be_twice() {
    in_both_modes("events-deleted", deleted_events);
}

#[test]
fn another_group_on_the_same_events_topic_is_refused_and_the_owner_goes_on() {
    let mill = Setup::ledger("foreign-group").ready();
    let mut owner = mill.ready_worker();
    mill.send(&[turn("s", "before", &[text("ok")])]);
    mill.result("before");
    mill.reconfigure("group_id = \"", "group_id = \"other-");
    let refused = mill.run(&["worker"]).expect(4);
    assert!(refused.stderr.contains(&mill.id), "the owner is not named: {}", refused.stderr);
    mill.send(&[turn("s", "after", &[text("ok")])]);
    mill.result("after");
    assert!(owner.running());
    owner.terminate().expect(0);

    // Nor is it harmed when it comes again.
    mill.reconfigure("group_id = \"other-", "group_id = \"");
    let _owner = mill.ready_worker();
    mill.send(&[turn("s", "again", &[text("ok")])]);
    mill.result("again");
    assert_eq!(mill.records("results").len(), 3);
}

#[test]
fn another_turns_topic_on_the_same_events_topic_is_refused() {
    let mill = Setup::ledger("foreign-turns").ready();
    let owner = mill.ready_worker();
    owner.terminate().expect(0);
    mill.reconfigure(".turns\"", ".other-turns\"");
    mill.run(&["topics", "apply", "--partitions", "1"]).expect(0);
    let refused = mill.run(&["worker"]).expect(4);
    assert!(refused.stderr.contains(&mill.topic("turns")), "{}", refused.stderr);
    mill.reconfigure(".other-turns\"", ".turns\"");
    let _owner = mill.ready_worker();
    mill.send(&[turn("s", "t", &[text("ok")])]);
    mill.result("t");
    mill.cluster.delete_topic(&mill.topic("other-turns"));
}

#[test]
fn an_events_topic_made_anew_is_told_of_and_turns_go_on() {
    let mill = Setup::ledger("events-anew").ready();
    let mut turns = ended(&mill);
    mill.cluster.delete_topic(&mill.topic("events"));
    mill.run(&["topics", "apply", "--partitions", "1"]).expect(0);
    let more = notes(TURNS);
    mill.send(&more);
    turns.extend(more);
    let worker = mill.ready_worker();
    assert_all_completed(&mill, &turns, true);
    mill.wait_until_committed();
    assert_eq!(mill.ledger().len(), 2 * TURNS);
    let log = worker.log();
    assert!(log.contains("another events topic of the same name"), "{log}");
    worker.terminate().expect(0);
    // What is committed now belongs to the new topic.
    let mut again = mill.ready_worker();
    mill.send(&[turn("s", "last", &[text("ok")])]);
    mill.result("last");
    assert!(again.running() && !again.log().contains("cannot be used"), "{}", again.log());
}
