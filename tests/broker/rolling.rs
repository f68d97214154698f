//! A rolling restart: workers are replaced one by one while turns come in.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::admin::{admin, wait_until_ready};
use super::support::checks::assert_all_completed;
use super::support::process::Process;
use super::support::{Mill, Setup, call, calls, text, turn};

const WORKERS: usize = 3;
const DRAIN_MS: i64 = 5_000;
/// How long a step takes, the longest of a turn.
const STEP_MS: i64 = 400;

/// One turn of two steps every 50 ms, until it is told to stop.
fn produce(mill: &Mill, stop: &AtomicBool, sent: &Mutex<Vec<Value>>) {
    let note = |n: usize| calls(&[call("slow_note", json!({"text": n.to_string(), "ms": STEP_MS}))]);
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let next = turn(&format!("s{n}"), &format!("t{n}"), &[note(n), note(n), text("ok")]);
        mill.send([&next]);
        sent.lock().unwrap().push(next);
        n += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends the producer whatever becomes of the test.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One after the other goes, and the one that takes its place is ready before.
fn replace(mill: &Mill, workers: Vec<Process>) -> Vec<Process> {
    let mut new = Vec::new();
    for old in workers {
        let next = mill.ready_worker();
        wait_until_ready(&admin(&next));
        new.push(next);
        old.terminate().expect(0);
    }
    new
}

#[test]
fn a_rolling_restart_delays_turns_and_does_nothing_else_to_them() {
    let mill =
        Setup::ledger("rolling").partitions(6).worker(&format!("drain_timeout = \"{DRAIN_MS}ms\"")).ready();
    let workers: Vec<Process> = (0..WORKERS).map(|_| mill.worker()).collect();
    workers.iter().for_each(|worker| wait_until_ready(&admin(worker)));
    let (stop, sent) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let _workers = std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let producer = scope.spawn(|| produce(&mill, &stop, &sent));
        mill.results(40);
        let new = replace(&mill, workers);
        let after = sent.lock().unwrap().len() + 40;
        mill.results(after);
        stop.store(true, Ordering::Relaxed);
        producer.join().unwrap();
        new
    });

    let sent = sent.into_inner().unwrap();
    assert_all_completed(&mill, &sent, true);
    mill.wait_until_committed();
    assert_eq!(mill.records("dead_letters").len(), 0);
    let ledger = mill.ledger();
    let keys: HashSet<&str> = ledger.iter().filter_map(|run| run["key"].as_str()).collect();
    assert_eq!((ledger.len(), keys.len()), (2 * sent.len(), 2 * sent.len()), "a tool ran twice");

    let begun: HashMap<_, _> =
        mill.records("turns").iter().map(|r| (r.turn(), r.timestamp.unwrap())).collect();
    let results = mill.records("results");
    let mut took: Vec<i64> = results.iter().map(|r| r.timestamp.unwrap() - begun[&r.turn()]).collect();
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    // Past the capture of the test runner: a figure is to be seen.
    let _ = writeln!(
        std::io::stderr(),
        "rolling restart: {WORKERS} workers replaced under {} turns: 0 dead letters, 0 tools run twice; \
         a turn of {} ms took {median} ms in the median and {longest} ms at most",
        sent.len(),
        2 * STEP_MS
    );
    assert!(longest - 2 * STEP_MS <= DRAIN_MS + STEP_MS, "a turn took {longest} ms");
}
