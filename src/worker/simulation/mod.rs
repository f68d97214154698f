//! Takeovers, simulated: the shipped supervisor, driver and journal on a simulated log, in seeded histories of everything that
//! can go wrong. Model and tools never answer twice the same, so that what is made up for shows.
//!
//! Not simulated: the poll thread (it is imitated), cancels and deadlines, events that are lost (`tests/broker/offsets.rs`),
//! and several partitions, which share nothing but their process.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the tests |
//! | `history` | what happens next, by seeded choice |
//! | `process` | a worker process: the shipped supervisor, and a simulated poll thread |
//! | `log` | the events partition: late appends, compaction, transactions, lagging readers |
//! | `outside` | model, tools, results |
//! | `coded` | an agent in code, and a tool that calls tools |
//! | `world` | what outlives the processes; the rules that a history can be run without |
//! | `check` | what must hold at the end |
//! | `rng` | choices that come again with their seed |

mod check;
mod coded;
mod history;
mod log;
mod outside;
mod process;
mod rng;
mod world;

use history::{Told, play};
use world::Rule;

/// Each with its own seed, played one after the other on a clock that moves only when nothing else can happen.
fn histories(
    seeds: std::ops::Range<u64>,
    exactly_once: bool,
    without: Option<Rule>,
) -> Result<Told, (u64, String)> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut all = Told::default();
    for seed in seeds {
        let told = runtime.block_on(play(seed, exactly_once, without)).map_err(|broken| (seed, broken))?;
        all.turns += told.turns;
        all.claims += told.claims;
        all.processes += told.processes;
        all.events += told.events;
    }
    Ok(all)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// `TURNMILL_HISTORIES` of them, or else this many; `TURNMILL_SEED` plays one.
fn seeds() -> std::ops::Range<u64> {
    match number("TURNMILL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TURNMILL_HISTORIES").unwrap_or(100_000).div_ceil(2),
    }
}

fn hold(exactly_once: bool) {
    let begun = std::time::Instant::now();
    let told = histories(seeds(), exactly_once, None)
        .unwrap_or_else(|(seed, broken)| panic!("seed {seed}, exactly once {exactly_once}: {broken}"));
    println!("{} histories, {told:?}, {:?}", seeds().count(), begun.elapsed());
}

#[test]
fn takeovers_at_least_once() {
    hold(false);
}

#[test]
fn takeovers_exactly_once() {
    hold(true);
}

/// The rules, and the mode that each is left out in.
const RULES: [(Rule, bool); 10] = [
    (Rule::FenceInKey, false),
    (Rule::UniqueClaim, false),
    (Rule::Floor, false),
    (Rule::MadeFrom, false),
    (Rule::Confirmation, false),
    (Rule::StepBoundary, false),
    (Rule::FinishedTurns, false),
    (Rule::ReadCommitted, true),
    (Rule::InitTransactions, true),
    (Rule::CommittedEnd, true),
];

#[test]
fn without_any_one_of_the_rules_a_promise_is_broken() {
    for (rule, exactly_once) in RULES {
        match histories(0..100_000, exactly_once, Some(rule)) {
            Ok(told) => panic!("nothing was broken without {rule:?}: {told:?}"),
            // That would be the test's own fault, and no promise.
            Err((seed, broken))
                if broken.starts_with("a worker stopped") || broken.starts_with("a supervisor") =>
            {
                panic!("without {rule:?}, seed {seed}: {broken}")
            }
            Err((seed, broken)) => println!("without {rule:?}, seed {seed}: {broken}"),
        }
    }
}
