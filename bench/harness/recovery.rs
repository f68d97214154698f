//! What a restore takes after a crash, with much and with little in the log, and the same work in flight.

use crate::report::Report;
use crate::run::{Result, Run, Settings, Work, Worker};

const PARTITIONS: i32 = 4;
const SESSIONS: usize = 500;
/// Turns that run when the worker is killed.
const IN_FLIGHT: usize = 20;
/// Events of a turn without tools.
const EVENTS: usize = 4;
const ROUNDS: usize = 5;

/// A log with this many events, a worker killed over work in flight, and the restores of those that follow, in
/// milliseconds.
fn restores(brokers: &str, events: usize) -> Result<Vec<f64>> {
    let settings = Settings { max_in_flight: Some(1_000), ..Settings::default() };
    let mut run =
        Run::new(brokers, "recovery", PARTITIONS, SESSIONS)?.filled(Work::NOTHING, events / EVENTS)?;
    let worker = run.worker("first", &settings)?;
    run.work_off()?;
    run.fill(Work::SLEEP, IN_FLIGHT)?;
    run.tool_starts(IN_FLIGHT)?;
    drop(worker);
    (0..ROUNDS).map(|round| ready(&run.worker(&format!("round-{round}"), &settings)?)).collect()
}

/// The longest restore of a worker's partitions, as its log tells.
fn ready(worker: &Worker) -> Result<f64> {
    let said = worker.says("partition ready", usize::try_from(PARTITIONS)?)?;
    Ok(said.iter().filter_map(|line| line["took_ms"].as_f64()).fold(0.0, f64::max))
}

/// A small log and a large one.
pub fn run(brokers: &str, report: &mut Report) -> Result<()> {
    println!("\nrestore after a crash, {IN_FLIGHT} turns in flight on {PARTITIONS} partitions");
    let small = report.row("restore after a crash", "10,000 events", "ms", restores(brokers, 10_000)?);
    let large = report.row("restore after a crash", "1,000,000 events", "ms", restores(brokers, 1_000_000)?);
    report.ratio("recovery_1m_over_10k", large / small);
    Ok(())
}
