//! What is measured of a worker alone: memory of turns in flight, start-up, what a durable step adds, and how the cost of
//! a turn grows.

use std::time::Instant;

use crate::contestant::Contestant;
use crate::race::Race;
use crate::report::{RATE, Report};
use crate::run::{Result, Run, Settings, Work, each, median, well};

const PARTITIONS: i32 = 8;

/// Resident memory for each of many turns whose tools sleep, in bytes.
pub fn memory(brokers: &str, report: &mut Report) -> Result<()> {
    const TURNS: usize = 10_000;
    println!("\n{TURNS} turns in flight, each with a tool that sleeps");
    let settings = Settings { max_in_flight: Some(TURNS), ..Settings::default() };
    let mut run = Run::new(brokers, "flight", PARTITIONS, TURNS)?.filled(Work::THREE_STEPS, 500)?;
    let worker = run.worker("worker", &settings)?;
    run.work_off()?;
    let before = worker.memory()?;
    run.fill(Work::SLEEP, TURNS)?;
    run.tool_starts(500 * 3 + TURNS)?;
    let after = worker.memory()?;
    drop(worker);
    let each = (after - before) as f64 / TURNS as f64;
    report.row("10,000 turns in flight", "Turnmill", "bytes a turn", vec![each]);
    report.row("10,000 turns in flight", "Turnmill, whole process", "MiB", vec![after as f64 / 1048576.0]);
    report.ratio("bytes_per_turn_in_flight", each);
    Ok(())
}

/// From the start of the process to the first result.
pub fn start_up(brokers: &str, rounds: usize, report: &mut Report) -> Result<()> {
    println!("\nstart-up to the first result");
    let mut took = Vec::new();
    for _ in 0..rounds {
        let run = Run::new(brokers, "start", PARTITIONS, 1)?.filled(Work::THREE_STEPS, 1)?;
        let (results, begun) = (run.results()?, Instant::now());
        let mut worker = run.worker("worker", &Settings::default())?;
        each(&results, 1, well)?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        worker.stop()?;
    }
    report.row("start-up to the first result", "Turnmill", "ms", took);
    Ok(())
}

/// How long one turn takes after the other, in milliseconds: the median.
fn one_by_one(brokers: &str, work: Work, turns: usize) -> Result<f64> {
    let mut run = Run::new(brokers, "one", 1, 1)?;
    let mut worker = run.worker("worker", &Settings::default())?;
    let (results, producer) = (run.results()?, run.producer("0")?);
    let mut took = Vec::new();
    for turn in 0..turns + 20 {
        let begun = Instant::now();
        run.send(&producer, work)?;
        each(&results, 1, well)?;
        if turn >= 20 {
            took.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    worker.stop()?;
    Ok(median(&took))
}

/// What a durable step adds to a turn, in milliseconds: a reply and a call are two. From turns of few and of many steps.
pub fn step(brokers: &str, rounds: usize, bare: &[f64], report: &mut Report) -> Result<()> {
    const FEW: usize = 2;
    const MANY: usize = 22;
    println!("\none turn after the other: what a durable step adds");
    let mut added = Vec::new();
    for _ in 0..rounds {
        let [few, many] = [FEW, MANY].map(|steps| one_by_one(brokers, Work { steps, ..Work::NOTHING }, 60));
        added.push((many? - few?) / (2 * (MANY - FEW)) as f64);
    }
    report.row("a produce and its read-back", "bare client", "ms", bare.to_vec());
    let added = report.row("a durable step", "Turnmill", "ms", added);
    report.ratio("step_over_bare_produce", added / median(bare));
    Ok(())
}

/// How the cost of a turn grows: with its steps, with sessions, with partitions.
pub fn growth(brokers: &str, report: &mut Report) -> Result<()> {
    const ROUNDS: usize = 3;
    let worker = Contestant::Turnmill(Settings { max_in_flight: Some(1_000), ..Settings::default() });
    let rates = |work, partitions, sessions, turns| -> Result<Vec<f64>> {
        let race = Race { brokers, name: "growth", work, partitions, sessions, rounds: ROUNDS };
        (0..ROUNDS).map(|_| race.rate(&worker, turns)).collect()
    };
    println!("\ngrowth: a turn of so many steps");
    for steps in [1, 4, 16, 64, 256] {
        // As many as are in flight, or it would be their waits that count.
        let turns = (80_000 / (steps + 1)).max(1_000);
        let rates = rates(Work { steps, ..Work::NOTHING }, PARTITIONS, 1_000, turns)?;
        let each = rates.into_iter().map(|rate| 1e6 / rate / steps as f64).collect();
        report.row("growth", &format!("Turnmill, {steps} steps"), "µs a step", each);
    }
    println!("\ngrowth: so many sessions, so many partitions");
    for sessions in [100, 1_000, 10_000] {
        let rates = rates(Work::NOTHING, PARTITIONS, sessions, 30_000)?;
        report.row("growth", &format!("Turnmill, {sessions} sessions"), RATE, rates);
    }
    for partitions in [1, 4, 16, 64] {
        let rates = rates(Work::NOTHING, partitions, 1_000, 30_000)?;
        report.row("growth", &format!("Turnmill, {partitions} partitions"), RATE, rates);
    }
    Ok(())
}
