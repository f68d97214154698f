//! Benchmarks on a real broker, side by side in one run, as ratios.
//!
//! | file | measures |
//! | --- | --- |
//! | `quick` | turns per second, beside a bare consume-produce loop |
//! | `confirm` | what it costs to read a step back |
//! | `recovery` | restore after a crash, with a small log and a large one |
//! | `run` | topics and processes of a run |
//!
//! `make bench-quick` and `make bench-recovery` start the broker and run them.

mod confirm;
mod quick;
mod recovery;
mod run;

fn main() -> run::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let asked = |name: &str| arguments.iter().any(|argument| argument == name);
    // `cargo test --benches` runs this too, without a broker and without the intent to measure.
    if !asked("--bench") {
        return Ok(());
    }
    let brokers = std::env::var("KAFKA_BOOTSTRAP_SERVERS").map_err(|_| "set KAFKA_BOOTSTRAP_SERVERS")?;
    if asked("quick") {
        quick::run(&brokers)?;
        confirm::run(&brokers)?;
    }
    if asked("recovery") {
        recovery::run(&brokers)?;
    }
    Ok(())
}
