//! What is lost or late on the way to the brokers, topics that go away, records as large as they may be.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::checks::{
    assert_all_completed, assert_one_input_per_key, in_both_modes, results_per_turn, runs_of,
};
use super::support::proxy::{Fate, Proxy};
use super::support::{Mill, Setup, brokers, call, calls, text, turn, until};

fn hasty(setup: Setup) -> Setup {
    setup.property("session.timeout.ms", 4000).property("heartbeat.interval.ms", 300)
}

/// A turn of two steps.
fn two_notes(session: &str, id: &str) -> Value {
    let note = |text: &str| calls(&[call("note", json!({"text": format!("{id} {text}")}))]);
    turn(session, id, &[note("a"), note("b"), text("done")])
}

/// One turn, and what becomes of the first request to produce with `text` in it.
fn with_fate(name: &str, text: &'static str, fate: Fate) -> (Mill, Proxy) {
    let proxy = Proxy::start(brokers());
    let mill = Setup::ledger(name).brokers(proxy.address()).ready();
    let worker = mill.ready_worker();
    proxy.next(text, fate);
    let turns = [two_notes("s", "t")];
    mill.send(&turns);
    proxy.wait_for_fate();
    assert_all_completed(&mill, &turns, true);
    mill.wait_until_committed();
    assert_eq!(worker.log().matches("partition assigned").count(), 1);
    (mill, proxy)
}

/// Nothing of it ran twice or is on the log twice.
fn assert_unharmed(mill: &Mill) {
    assert_eq!(mill.ledger().len(), 2);
    let events = mill.events();
    for (position, types) in [
        ("m0", &["model:reply"][..]),
        ("m0.c0", &["tool:start", "tool:result"]),
        ("m1", &["model:reply"]),
        ("m1.c0", &["tool:start", "tool:result"]),
        ("m2", &["model:reply"]),
    ] {
        assert_eq!(events.types_at("t", position), types, "{position}");
    }
}

#[test]
fn an_append_that_is_lost_on_the_way_is_sent_again() {
    let (mill, _proxy) = with_fate("lost", r#""type":"model:reply""#, Fate::Lost);
    assert_unharmed(&mill);
}

#[test]
fn an_append_whose_acknowledgement_is_lost_is_on_the_log_once() {
    let (mill, _proxy) = with_fate("unanswered", r#""type":"model:reply""#, Fate::Unanswered);
    assert_unharmed(&mill);
}

#[test]
fn an_append_that_fails_restarts_the_partition_and_counts_for_nothing_when_it_arrives() {
    let proxy = Proxy::start(brokers());
    let mill =
        Setup::ledger("failed-append").brokers(proxy.address()).property("message.timeout.ms", 2000).ready();
    let mut worker = mill.ready_worker();
    proxy.next(r#""type":"tool:result""#, Fate::Held);
    let turns = [two_notes("s", "t")];
    mill.send(&turns);
    proxy.wait_for_fate();
    until("a second claim", || (worker.log().matches("partition ready").count() == 2).then_some(()));
    proxy.let_go();
    assert_all_completed(&mill, &turns, true);
    mill.wait_until_committed();
    assert!(worker.log().contains("partition restarted"), "{}", worker.log());
    let ledger = mill.ledger();
    assert_one_input_per_key(&ledger);
    // A try on another connection may have brought the result onto the log before the second claim; then it counts.
    let mut keys: Vec<_> = ledger.iter().map(|run| run["key"].as_str().unwrap()).collect();
    assert!(keys.len() <= 3, "{keys:?}");
    keys.dedup();
    assert_eq!(keys, ["s/t/m0.c0", "s/t/m1.c0"]);
    assert!(worker.running());
}

/// For longer than the session's timeout nothing gets through.
fn network_stalls(name: &str, exactly_once: bool) {
    let proxy = Proxy::start(brokers());
    let mill =
        hasty(Setup::ledger(name)).exactly_once(exactly_once).brokers(proxy.address()).partitions(2).ready();
    let mut worker = mill.ready_worker();
    let turns: Vec<Value> = (0..200).map(|n| two_notes(&format!("s{}", n % 20), &format!("t{n}"))).collect();
    mill.send(&turns[..100]);
    mill.wait_for_runs("note", 50);
    proxy.stall(true);
    mill.send(&turns[100..]);
    std::thread::sleep(Duration::from_secs(7));
    proxy.stall(false);
    assert_all_completed(&mill, &turns, exactly_once);
    mill.wait_until_committed();
    let ledger = mill.ledger();
    assert_one_input_per_key(&ledger);
    // At most what was in the middle ran again: a call in each of the sessions.
    assert!((400..=420).contains(&ledger.len()), "{} runs", ledger.len());
    assert!(worker.running());
    assert_eq!(mill.records("dead_letters").len(), 0);
}

#[test]
fn a_network_that_stalls_for_longer_than_the_session_loses_nothing() {
    in_both_modes("stall", network_stalls);
}

/// A topic that goes away while the worker runs, and comes back.
fn topic_goes_away(name: &str, topic: &str, exactly_once: bool) {
    let mill = (Setup::ledger(name).exactly_once(exactly_once))
        .property("message.timeout.ms", 3000)
        .property("topic.metadata.refresh.interval.ms", 500)
        .property("topic.metadata.propagation.max.ms", 1000)
        .ready();
    let mut worker = mill.ready_worker();
    let turns: Vec<Value> = (0..30).map(|n| two_notes(&format!("s{}", n % 5), &format!("t{n}"))).collect();
    mill.send(&turns[..10]);
    assert_all_completed(&mill, &turns[..10], true);
    mill.wait_until_committed();
    mill.cluster.delete_topic(&mill.topic(topic));
    let (began, before) = (Instant::now(), worker.log().lines().count());
    mill.send(&turns[10..20]);
    // It tries again, later each time.
    until("three tries", || (worker.log().matches("partition restarts").count() >= 3).then_some(()));
    let lines = worker.log().lines().count() - before;
    assert!(lines < 20 + 10 * began.elapsed().as_secs() as usize, "{lines} lines in {:?}", began.elapsed());
    mill.run(&["topics", "apply", "--partitions", "1"]).expect(0);
    mill.send(&turns[20..]);
    let due = if topic == "results" { &turns[10..] } else { &turns[..] };
    assert_all_completed(&mill, due, exactly_once);
    mill.wait_until_committed();
    assert!(worker.running());
    assert_eq!(worker.log().matches("partition assigned").count(), 1);
    let ledger = mill.ledger();
    assert_one_input_per_key(&ledger);
    assert_eq!(mill.records("dead_letters").len(), 0);
    assert_eq!(results_per_turn(&mill).len(), due.len());
}

#[test]
fn a_results_topic_that_goes_away_and_comes_back_loses_no_turn() {
    in_both_modes("results-away", |name, exactly_once| topic_goes_away(name, "results", exactly_once));
}

#[test]
fn an_events_topic_that_goes_away_and_comes_back_loses_no_turn() {
    topic_goes_away("events-away", "events", false);
}

/// Records of every size about a bound: each is answered.
fn sizes(name: &str, exactly_once: bool) {
    let mill = Setup::ledger(name).exactly_once(exactly_once).ready();
    let mut worker = mill.ready_worker();
    let padded = |id: &str, size: usize| {
        let mut turn = two_notes("s", id);
        turn["input"] = json!("");
        let left = size - turn.to_string().len();
        turn["input"] = json!("x".repeat(left));
        turn
    };
    // What the broker takes of these is 1,048,588 bytes with a batch around it.
    let mut sent = 0;
    for size in (1_048_400..1_048_600).step_by(20) {
        mill.send(&[padded(&format!("in-{size}"), size)]);
        sent += 1;
    }
    let taken = usize::try_from(mill.cluster.ends(&mill.topic("turns"))[0]).unwrap();
    assert!(0 < taken && taken < sent, "{taken} of {sent}: not about the bound");
    // The client's bound is 1,000,000 bytes.
    let outputs: Vec<Value> = (998_600..1_000_200)
        .step_by(200)
        .map(|size| turn("s", &format!("out-{size}"), &[text(&"y".repeat(size))]))
        .collect();
    mill.send(&outputs);
    mill.results(taken + outputs.len());
    mill.wait_until_committed();
    let results: Vec<Value> = mill.records("results").iter().map(|record| record.json()).collect();
    assert_eq!(results.len(), taken + outputs.len());
    let completed = results.iter().filter(|result| result["status"] == "completed").count();
    assert!(completed >= taken && completed < results.len(), "{completed} of {}", results.len());
    for result in results.iter().filter(|result| result["status"] != "completed") {
        assert_eq!(result["error"]["code"], "record_too_large", "{result}");
    }
    assert_eq!(runs_of(&mill.ledger(), "note").len(), 2 * taken);
    assert!(worker.running());
    assert_eq!(worker.log().matches("partition assigned").count(), 1);
}

#[test]
fn records_of_every_size_about_the_bounds_are_answered() {
    in_both_modes("sizes", sizes);
}
