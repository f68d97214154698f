//! Results exactly once: what readers of committed records see.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::checks::{assert_all_completed, results_per_turn};
use super::support::{Mill, Setup, text, turn, until};

fn setup(name: &str) -> Setup {
    let setup = Setup::stock(name).exactly_once(true);
    setup.property("session.timeout.ms", 4000).property("heartbeat.interval.ms", 300)
}

/// Turns that end as fast as they can.
fn turns(from: usize, count: usize) -> Vec<Value> {
    (from..from + count).map(|n| turn(&format!("s{}", n % 50), &format!("t{n}"), &[text("ok")])).collect()
}

/// Waits until so many turns have a result that is committed.
fn wait_for_results(mill: &Mill, count: usize) {
    until(&format!("{count} results"), || (results_per_turn(mill).len() >= count).then_some(()));
}

#[test]
fn a_worker_that_sleeps_among_its_transactions_adds_no_result_when_it_wakes_up() {
    let mill = setup("sleeper").ready();
    let all = turns(0, 3000);
    mill.send(&all);
    let mut first = mill.ready_worker();
    wait_for_results(&mill, 300);
    first.signal("STOP");
    let _second = mill.ready_worker();
    wait_for_results(&mill, 600);
    first.signal("CONT");
    first.wait_for_log("partition revoked");
    assert_all_completed(&mill, &all, true);
    first.terminate().expect(0);
    mill.wait_until_committed();
    assert_all_completed(&mill, &all, true);
}

#[test]
fn a_worker_that_another_producer_fences_takes_its_partition_over_in_place() {
    let mill = setup("fenced").ready();
    let id = format!("{}-{}-0", mill.id, mill.topic("turns"));
    let mut worker = mill.ready_worker();
    let all = turns(0, 1500);
    for part in all.chunks(500) {
        let (before, after) = part.split_at(250);
        let ready = || worker.log().matches("partition ready").count();
        let owned = ready();
        mill.send(before);
        mill.cluster.fence(&id);
        // Idle it would not notice: the turns that come are what meets the fence.
        mill.send(after);
        until("the partition is taken over again", || (ready() > owned).then_some(()));
    }
    assert_all_completed(&mill, &all, true);
    mill.wait_until_committed();
    assert!(worker.running());
    assert_eq!(worker.log().matches("partition assigned").count(), 1, "{}", worker.log());
    worker.terminate().expect(0);
    assert_all_completed(&mill, &all, true);
}

#[test]
fn a_killed_workers_open_transaction_holds_up_nobody() {
    let mill = setup("killed-once").ready();
    let all = turns(0, 3000);
    mill.send(&all);
    for round in 1..=2 {
        let worker = mill.ready_worker();
        wait_for_results(&mill, round * 300);
        worker.kill();
    }
    let mut last = mill.worker();
    last.wait_for_log("partition assigned");
    let since = Instant::now();
    last.wait_for_log("partition ready");
    // Its transactions would time out after 15 s.
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}\n{}", since.elapsed(), last.log());
    assert_all_completed(&mill, &all, true);
    mill.wait_until_committed();
    assert_all_completed(&mill, &all, true);
}
