//! Benchmarks on a real broker, side by side in one run, as ratios. How to run them is in `bench/README.md`.
//!
//! | file | measures |
//! | --- | --- |
//! | `race` | contestants side by side: bursts, and turns that come steadily |
//! | `bare` | bare clients: what can be done at all |
//! | `alone` | memory, start-up, a durable step, growth |
//! | `confirm` | what it costs a bare client to read a record back |
//! | `recovery` | restore after a crash, with a small log and a large one |
//! | `contestant` | who takes part |
//! | `run` | topics and processes of a run |
//! | `report` | the table, the chart, the raw data |

mod alone;
mod bare;
mod confirm;
mod contestant;
mod race;
mod recovery;
mod report;
mod run;

use std::path::{Path, PathBuf};

use contestant::{Contestant, RoundTrips};
use race::{Entrant, Race};
use report::Report;
use run::{Result, Settings, Work};

/// As the stock program has it: the bare clients are to be no slower for theirs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Partitions of the topics, where nothing else is said.
const PARTITIONS: i32 = 8;
const SESSIONS: usize = 2_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let asked = |name: &str| arguments.iter().any(|argument| argument == name);
    // `cargo test --benches` runs this too, without a broker and without the intent to measure.
    if !asked("--bench") {
        return Ok(());
    }
    let brokers = std::env::var("KAFKA_BOOTSTRAP_SERVERS").map_err(|_| "set KAFKA_BOOTSTRAP_SERVERS")?;
    let begun = std::time::Instant::now();
    let mut report = Report::default();
    // The first one says what is to be done; of a part, the others say which.
    match arguments.iter().skip(1).find(|argument| !argument.starts_with('-')).map(String::as_str) {
        Some("full") => full(&brokers, &mut report, |_| true)?,
        Some("part") => {
            report = Report::read(&folder());
            full(&brokers, &mut report, asked)?;
        }
        Some("quick") => quick(&brokers, &mut report)?,
        Some("recovery") => recovery::run(&brokers, &mut report)?,
        other => return Err(format!("full, part NAME .., quick or recovery; not {other:?}").into()),
    }
    println!("\n{}\n{:.0} minutes", report.table(), begun.elapsed().as_secs_f64() / 60.0);
    if asked("full") || asked("part") {
        println!("written: {}", folder().display());
    }
    Ok(())
}

const RESTATE: &str = "Restate 1.7";
const TURNMILL: &str = "Turnmill";
const BARE: &str = "bare loop";
const SAME_RECORDS: &str = "bare loop, the same records";
const ROUND_TRIPS: &str = "bare client, the same round trips";

/// With as many turns at once as [`busy`] has, as it is there.
const MANY_AT_ONCE: RoundTrips =
    // Start, reply and answer, of which only the answer is waited for; the result; the end.
    RoundTrips { linger_ms: "5", before: &[3], after: &[1], in_flight: 2_000 };

/// One after the other: three replies that make calls, and the answer. Nobody waits for the end.
const SELDOM: RoundTrips = RoundTrips { linger_ms: "0", before: &[1, 1, 1, 1], after: &[], in_flight: 2_000 };

/// As a user would run it who has much to do: more turns in flight than by default.
fn busy() -> Contestant {
    Contestant::Turnmill(Settings { max_in_flight: Some(2_000), ..Settings::default() })
}

fn turnmill(turns: usize) -> Entrant {
    Entrant { name: TURNMILL, contestant: busy(), turns }
}

fn bare(turns: usize) -> Entrant {
    Entrant { name: BARE, contestant: Contestant::Bare { linger_ms: "0", events: 0 }, turns }
}

/// Of the others, those that can take part.
fn others(report: &mut Report) -> Vec<Entrant> {
    let other =
        |name, folder, env| Entrant { name, contestant: Contestant::Other { name: folder, env }, turns: 0 };
    let all = [
        // As the broker, it does not wait for the disk.
        other(RESTATE, "restate", &[("CONTESTANT_FSYNC", "off")]),
        other("Parallel Consumer 0.5", "parallel-consumer", &[]),
        other("DBOS 3.4", "dbos", &[]),
        other("calfkit 0.13", "calfkit", &[]),
    ];
    println!("preparing the other contestants");
    let mut able = Vec::new();
    for entrant in all {
        match entrant.contestant.prepare() {
            Ok(()) => {
                report.present(entrant.name);
                able.push(entrant);
            }
            Err(why) => report.absent(entrant.name, &why),
        }
    }
    able
}

fn race<'a>(brokers: &'a str, name: &'a str, work: Work, rounds: usize) -> Race<'a> {
    Race { brokers, name, work, partitions: PARTITIONS, sessions: SESSIONS, rounds }
}

/// Turnmill beside the bare loop: some minutes.
fn quick(brokers: &str, report: &mut Report) -> Result<()> {
    for (name, work, turns) in
        [("no tools", Work::NOTHING, 30_000), ("three tools", Work::THREE_STEPS, 10_000)]
    {
        let rates = race(brokers, name, work, 3).burst(&[turnmill(turns), bare(turns)], report)?;
        report.ratio(&format!("{}_vs_bare_loop", name.replace(' ', "_")), rates[TURNMILL] / rates[BARE]);
    }
    step(brokers, 1, report)
}

fn step(brokers: &str, rounds: usize, report: &mut Report) -> Result<()> {
    let bare: Vec<f64> =
        (0..rounds).map(|_| confirm::run(brokers).map(|(_, read)| read)).collect::<Result<_>>()?;
    alone::step(brokers, rounds, &bare, report)
}

/// Every part that is wanted. One that fails is said, and does not keep the others from being measured.
fn full(brokers: &str, report: &mut Report, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let with_others = ["nothing", "burst", "slow", "steadily", "busy"];
    let others = if with_others.into_iter().any(&wanted) { others(report) } else { Vec::new() };
    let part = |report: &mut Report, name: &str, measure: &dyn Fn(&mut Report) -> Result<()>| {
        if !wanted(name) {
            return Ok(());
        }
        match measure(report) {
            Ok(()) => report.present(name),
            Err(error) => report.absent(name, &error.to_string()),
        }
        report.write(&folder())
    };
    let with = |turns, name: &'static str| {
        let other = others.iter().find(|entrant| entrant.name == name);
        other.map(|other| Entrant { name, contestant: other.contestant.clone(), turns })
    };
    let plain =
        |turns| Entrant { name: TURNMILL, contestant: Contestant::Turnmill(Settings::default()), turns };

    part(report, "nothing", &|report| {
        let gathers = |name, events, turns| {
            let contestant = Contestant::Bare { linger_ms: "5", events };
            Entrant { name, contestant, turns }
        };
        // The events of a turn without tools: its start, its reply, its answer, its end.
        let as_much = gathers(SAME_RECORDS, 4, 40_000);
        let mut entrants =
            vec![turnmill(60_000), bare(100_000), gathers("bare loop, linger 5 ms", 0, 100_000), as_much];
        entrants.push(Entrant {
            name: ROUND_TRIPS,
            contestant: Contestant::RoundTrips(MANY_AT_ONCE),
            turns: 60_000,
        });
        entrants.extend(with(20_000, "Parallel Consumer 0.5"));
        let rates = race(brokers, "no tools", Work::NOTHING, 5).burst(&entrants, report)?;
        report.ratio("no_tools_vs_bare_loop", rates[TURNMILL] / rates[BARE]);
        report.ratio("no_tools_vs_bare_loop_same_records", rates[TURNMILL] / rates[SAME_RECORDS]);
        report.ratio("no_tools_vs_bare_round_trips", rates[TURNMILL] / rates[ROUND_TRIPS]);
        report.ratio("bare_loop_same_records_vs_bare_loop", rates[SAME_RECORDS] / rates[BARE]);
        Ok(())
    })?;
    part(report, "burst", &|report| {
        let mut entrants = vec![turnmill(20_000)];
        entrants.extend(with(8_000, RESTATE));
        entrants.extend(with(20_000, "Parallel Consumer 0.5"));
        let rates = race(brokers, "three durable steps", Work::THREE_STEPS, 3).burst(&entrants, report)?;
        if let Some(restate) = rates.get(RESTATE) {
            report.ratio("three_steps_vs_restate_burst", rates[TURNMILL] / restate);
        }
        Ok(())
    })?;
    part(report, "slow", &|report| {
        // Those that have a hundredth of the rate, with as many sessions as they work off in some seconds.
        let few =
            Race { sessions: 50, ..race(brokers, "three durable steps, 50 sessions", Work::THREE_STEPS, 3) };
        let mut entrants = vec![plain(10_000)];
        entrants.extend(with(600, "DBOS 3.4"));
        entrants.extend(with(300, "calfkit 0.13"));
        few.burst(&entrants, report)?;
        Ok(())
    })?;
    part(report, "steadily", &|report| {
        let least = Entrant { name: ROUND_TRIPS, contestant: Contestant::RoundTrips(SELDOM), turns: 0 };
        let mut entrants = vec![plain(0), least];
        entrants.extend(with(0, RESTATE));
        let steady = race(brokers, "three durable steps, 200 turns/s", Work::THREE_STEPS, 3);
        let p50s = steady.steady(200, 20, &entrants, report)?;
        report.ratio("p50_over_bare_round_trips_at_200", p50s[TURNMILL] / p50s[ROUND_TRIPS]);
        if let Some(restate) = p50s.get(RESTATE) {
            report.ratio("restate_p50_over_ours_at_200", restate / p50s[TURNMILL]);
            report.ratio("restate_p50_over_bare_round_trips_at_200", restate / p50s[ROUND_TRIPS]);
        }
        Ok(())
    })?;
    part(report, "busy", &|report| {
        let hot = Race { sessions: 20, ..race(brokers, "20 sessions, 60 ms a turn", Work::SIXTY_MS, 3) };
        let mut entrants = vec![plain(4_000)];
        entrants.extend(with(4_000, RESTATE));
        entrants.extend(with(4_000, "Parallel Consumer 0.5"));
        let rates = hot.burst(&entrants, report)?;
        report.ratio("hot_sessions_of_ideal", rates[TURNMILL] / (20.0 / 0.060));
        Ok(())
    })?;
    part(report, "flight", &|report| alone::memory(brokers, report))?;
    part(report, "step", &|report| step(brokers, 3, report))?;
    part(report, "recovery", &|report| recovery::run(brokers, report))?;
    part(report, "start-up", &|report| alone::start_up(brokers, 5, report))?;
    part(report, "side-by-side", &|report| {
        let together = Work { together: true, ..Work::THREE_STEPS };
        race(brokers, "three tools side by side", together, 3).burst(&[turnmill(15_000)], report)?;
        Ok(())
    })?;
    part(report, "sizes", &|report| {
        for (name, input, turns) in [
            ("input of 1 KiB", 1 << 10, 20_000),
            ("input of 64 KiB", 1 << 16, 2_000),
            ("input of 512 KiB", 1 << 19, 250),
        ] {
            let work = Work { input, ..Work::NOTHING };
            race(brokers, name, work, 3).burst(&[turnmill(turns), bare(turns)], report)?;
        }
        Ok(())
    })?;
    part(report, "delivery", &|report| {
        let exactly = Contestant::Turnmill(Settings { max_in_flight: Some(2_000), exactly_once: true });
        let exactly = Entrant { name: "Turnmill, exactly once", contestant: exactly, turns: 10_000 };
        let by_delivery = race(brokers, "three tools, by delivery", Work::THREE_STEPS, 3);
        let rates = by_delivery.burst(&[turnmill(10_000), exactly], report)?;
        report.ratio("exactly_once_over_at_least_once", rates["Turnmill, exactly once"] / rates[TURNMILL]);
        Ok(())
    })?;
    part(report, "growth", &|report| alone::growth(brokers, report))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/results")
}
