//! Chaos on a real broker: workers killed, stopped, ended and added, the broker restarted, turns sent all along; at
//! the end everything is compared with everything.
//!
//! `make chaos` runs ten minutes, `make chaos-short` less than two; without an argument, as in `cargo test`, it is
//! the short form.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | options and the summary |
//! | `run` | one run in one delivery mode |
//! | `broker`, `topics` | a broker of our own; reading and setting its topics |
//! | `fleet`, `faults` | the workers, and what befalls them |
//! | `turns`, `ledger`, `observer` | what goes in, what the tools do, what is written meanwhile |
//! | `table` | the accepted table, made again from the events alone |
//! | `checks` | what must hold at the end |
//! | `rng` | chance, from a seed |
//!
//! | variable | is |
//! | --- | --- |
//! | `TURNMILL_CHAOS_SEED` | the seed of the faults, the turns and their times; else another each time. The machine's own timing is not in it |
//! | `TURNMILL_CHAOS_SECONDS` | how long harm is done, in each mode |
//! | `TURNMILL_CHAOS_KEEP` | set: the logs and the records are kept though all is well |
//! | `KAFKA_BOOTSTRAP_SERVERS` | that cluster, which is not restarted |

mod broker;
mod checks;
mod faults;
mod fleet;
mod ledger;
mod observer;
mod rng;
mod run;
mod table;
mod topics;
mod turns;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use broker::Broker;
use run::{Mode, Options, Report};

const USAGE: &str = "usage: cargo test --test chaos -- [--short | --long] [--at-least-once | --exactly-once]";
/// How many violations are shown; the rest is in the file.
const SHOWN: usize = 20;

/// What was asked for; None: nothing of this test.
fn plan() -> Option<(Vec<Mode>, Duration, usize)> {
    let (mut modes, mut time, mut kills) = (vec![Mode::AtLeastOnce, Mode::ExactlyOnce], 25, 0);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--short" => {}
            "--long" => (time, kills) = (300, 100),
            "--at-least-once" => modes = vec![Mode::AtLeastOnce],
            "--exactly-once" => modes = vec![Mode::ExactlyOnce],
            "--help" => {
                println!("{USAGE}");
                return None;
            }
            "--list" => {
                println!("chaos: test");
                return None;
            }
            // Flags of the usual harness, and the names of other tests.
            flag if flag.starts_with('-') => {}
            name if "chaos".contains(name) => {}
            _ => return None,
        }
    }
    let given = |name| std::env::var(name).ok().map(|text: String| text.parse().expect(name));
    Some((modes, Duration::from_secs(given("TURNMILL_CHAOS_SECONDS").unwrap_or(time)), kills))
}

fn main() -> ExitCode {
    let Some((modes, time, kills)) = plan() else {
        return ExitCode::SUCCESS;
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed =
        std::env::var("TURNMILL_CHAOS_SEED").ok().map(|text| text.parse().expect("TURNMILL_CHAOS_SEED"));
    let seed = seed.unwrap_or(u64::from(since.subsec_nanos()) ^ since.as_secs());
    let begin = Instant::now();
    println!("chaos: seed {seed}, {time:?} in each of {} modes", modes.len());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let dir = target.join("chaos").join(seed.to_string());
    fs::create_dir_all(&dir).unwrap();
    // A copy: whoever builds meanwhile does not change it.
    let program = dir.join("worker");
    fs::copy(fleet::program(), &program).unwrap();
    let broker = Broker::up(&target.join("kafka-chaos"));
    let mut reports = Vec::new();
    for mode in modes {
        let report = run::run(&Options { mode, program: &program, dir: &dir, seed, time, kills }, &broker);
        println!("chaos: {}", report.figures);
        reports.push(report);
    }
    drop(broker);
    fs::remove_file(&program).unwrap();
    // Only where nothing is left in it.
    let _ = fs::remove_dir(&dir);
    summary(&reports, seed, begin.elapsed())
}

fn summary(reports: &[Report], seed: u64, time: Duration) -> ExitCode {
    for report in reports.iter().filter(|report| !report.violations.is_empty()) {
        for violation in report.violations.iter().take(SHOWN) {
            eprintln!("chaos: VIOLATION: {violation}");
        }
        eprintln!(
            "chaos: {} violations; logs and records are in {}",
            report.violations.len(),
            report.dir.display()
        );
    }
    let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
    let violations = sum(|report| report.violations.len());
    println!(
        "chaos: {}: {violations} violations, {} turns, {} kills, seed {seed}, {:.0} s",
        if violations == 0 { "passed" } else { "FAILED" },
        sum(|report| report.turns),
        sum(|report| report.kills),
        time.as_secs_f64()
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
