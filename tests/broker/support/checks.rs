//! What must hold whatever happens.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::topic::Record;
use super::{Mill, process::Process};

/// Runs a test in both modes of delivery, side by side: most of their time they wait.
pub fn in_both_modes(name: &str, test: impl Fn(&str, bool) + Sync) {
    std::thread::scope(|scope| {
        let once = scope.spawn(|| test(&format!("{name}-once"), true));
        test(name, false);
        once.join().expect("exactly-once");
    });
}

/// The runs of a tool in a ledger.
pub fn runs_of<'a>(ledger: &'a [Value], tool: &str) -> Vec<&'a Value> {
    ledger.iter().filter(|run| run["tool"] == tool).collect()
}

/// How many turns a worker has skipped because they had ended.
pub fn skipped(worker: &Process) -> usize {
    worker.log().matches("turn has ended before, skipped").count()
}

/// No idempotency key has run with two inputs.
#[track_caller]
pub fn assert_one_input_per_key(ledger: &[Value]) {
    let mut inputs: HashMap<_, HashSet<_>> = HashMap::new();
    for run in ledger {
        inputs.entry(run["key"].as_str()).or_default().insert(run["arguments"].to_string());
    }
    inputs.retain(|_, inputs| inputs.len() > 1);
    assert!(inputs.is_empty(), "keys with more than one input: {inputs:?}");
}

/// How often each turn has a result now, by its session and id.
pub fn results_per_turn(mill: &Mill) -> HashMap<(String, String), usize> {
    let mut counts = HashMap::new();
    for record in mill.records("results") {
        *counts.entry(record.turn()).or_default() += 1;
    }
    counts
}

/// Every one of the turns has a result, and they are all completed; with `once`, none has two.
#[track_caller]
pub fn assert_all_completed(mill: &Mill, turns: &[Value], once: bool) {
    mill.results(turns.len());
    let results: Vec<Value> = mill.records("results").iter().map(Record::json).collect();
    for result in &results {
        assert_eq!(result["status"], "completed", "{result}");
    }
    let counts = results_per_turn(mill);
    for turn in turns {
        let id = |field: &str| turn[field].as_str().unwrap_or_default().to_owned();
        let count = counts.get(&(id("session_id"), id("turn_id"))).copied().unwrap_or_default();
        assert!(if once { count == 1 } else { count >= 1 }, "{count} results of {turn}");
    }
    assert_eq!(counts.len(), turns.len());
}
