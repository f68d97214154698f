//! One run in one delivery mode, from its topics to its figures.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::checks::{Evidence, Found};
use crate::faults::{Fault, Faults};
use crate::fleet::{Fleet, Place, State};
use crate::ledger::Ledger;
use crate::observer::Observer;
use crate::rng::Rng;
use crate::table::accepted;
use crate::topics::{self, Compaction, PARTITIONS, Raw, See};
use crate::turns::{Progress, Turns};

/// How long no turn may end before we take it that none ever will.
const STUCK: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    AtLeastOnce,
    ExactlyOnce,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        }
    }
}

pub struct Options<'a> {
    pub mode: Mode,
    /// The worker's.
    pub program: &'a Path,
    /// Where the evidence goes.
    pub dir: &'a Path,
    pub seed: u64,
    /// How long harm is done.
    pub time: Duration,
    /// And until there were so many kills.
    pub kills: usize,
}

/// What came of it.
pub struct Report {
    pub figures: String,
    pub violations: Vec<String>,
    pub kills: usize,
    pub turns: usize,
    pub dir: PathBuf,
}

struct Names {
    id: String,
}

impl Names {
    fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.id)
    }

    fn config(&self, brokers: &str, mode: Mode) -> String {
        let Self { id } = self;
        let topics: String = ["turns", "events", "results", "dead_letters", "status", "control"].iter().fold(
            String::new(),
            |mut text, name| {
                let _ = writeln!(text, "{name} = {:?}", self.topic(name));
                text
            },
        );
        format!(
            r#"[kafka]
brokers = "{brokers}"
group_id = "{id}"

[kafka.properties]
"session.timeout.ms" = 2000
"heartbeat.interval.ms" = 500
"reconnect.backoff.max.ms" = 1000

[topics]
{topics}
[worker]
drain_timeout = "2s"
delivery = "{}"
max_redeliveries = 1000

[[agents]]
name = "chaos"
system = "You are hard to kill."
model = "nonces"
tools = ["*"]
max_duration = "1day"
"#,
            mode.as_str()
        )
    }
}

/// Runs it.
pub fn run(options: &Options<'_>, broker: &Broker) -> Report {
    let Options { mode, seed, .. } = *options;
    let begin = Instant::now();
    let dir = options.dir.join(mode.as_str());
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let names = Names { id: format!("chaos-{seed}-{}-{}", mode.as_str(), std::process::id()) };
    fs::write(dir.join("turnmill.toml"), names.config(&broker.address, mode)).unwrap();
    let mut rng = Rng::new(seed ^ mode as u64);
    let ledger = Ledger::open(rng.next());
    let place =
        Place { program: options.program.into(), dir: dir.clone(), ledger: ledger.address.to_string() };
    let applied =
        place.command(&["topics", "apply", "--partitions", &PARTITIONS.to_string()]).output().unwrap();
    assert!(applied.status.success(), "topics apply: {}", String::from_utf8_lossy(&applied.stderr));

    let see = if mode == Mode::ExactlyOnce { See::Committed } else { See::All };
    let progress = Arc::new(Progress::default());
    let (events, results) = (names.topic("events"), names.topic("results"));
    let observer = Observer::start(&broker.address, &events, &results, see, Arc::clone(&progress));
    let mut fleet = Fleet::new(place, Compaction::new(&broker.address, &events));
    fleet.start_after(Duration::ZERO);
    fleet.start_after(Duration::ZERO);
    let turns =
        Turns::start(&broker.address, &names.topic("turns"), Rng::new(rng.next()), Arc::clone(&progress));
    let mut faults = Faults::new(&mut fleet, broker, &progress, Rng::new(rng.next()));
    let mut told = Instant::now();
    faults.run(options.time, options.kills, || {
        if told.elapsed() > Duration::from_secs(20) {
            told = Instant::now();
            tell(mode, begin, &progress);
        }
    });
    let counts = faults.counts.clone();
    let harm = begin.elapsed();
    turns.stop();
    let mut violations: Vec<String> = settle(&mut fleet, &progress).into_iter().collect();
    let recovery = begin.elapsed() - harm;
    violations.extend(wait_for_offsets(&broker.address, &names));
    violations.extend(end(&mut fleet));
    fleet.end_compaction();

    let history = observer.stop();
    let evidence = Evidence {
        exactly_once: mode == Mode::ExactlyOnce,
        turns: topics::read(&broker.address, &names.topic("turns"), See::All),
        results: topics::read(&broker.address, &results, see),
        dead_letters: topics::read(&broker.address, &names.topic("dead_letters"), see),
        events: topics::read(&broker.address, &events, see),
        history,
        calls: ledger.calls(),
    };
    violations.extend(events_command(&fleet, &evidence.events));
    violations.append(&mut fleet.violations);
    violations.extend(fleet.panics());
    let sent = progress.sent.load(Ordering::SeqCst);
    if evidence.turns.len() != sent {
        violations.push(format!("{sent} turns were sent, and {} are on the topic", evidence.turns.len()));
    }
    let history = accepted(&evidence.history, evidence.exactly_once);
    let left = accepted(&evidence.events, evidence.exactly_once);
    let found = evidence.compare(&history, &left);
    let Found { duplicate_results, reruns, unknown_outcomes, compacted, .. } = found;
    violations.extend(found.violations);

    let count = |fault| counts.get(&fault).copied().unwrap_or(0);
    let figures = format!(
        "{}: {} turns, {} kills, {} stops, {} ends, {} added, {} broker restarts, {} workers, {} claims, {} events \
         ({} void, {compacted} compacted away), {} tool runs ({reruns} reruns, {unknown_outcomes} unknown outcomes), \
         {duplicate_results} results again, {} exits unasked, {} violations; {:.0} s of harm, {:.0} s of recovery, {:.0} s in all",
        mode.as_str(),
        evidence.turns.len(),
        count(Fault::Kill),
        count(Fault::Stop),
        count(Fault::End),
        count(Fault::Add),
        count(Fault::Broker),
        fleet.started,
        history.claims,
        evidence.history.len(),
        history.void,
        evidence.calls.len(),
        fleet.exits.values().sum::<usize>(),
        violations.len(),
        harm.as_secs_f64(),
        recovery.as_secs_f64(),
        begin.elapsed().as_secs_f64(),
    );
    for (reason, times) in &fleet.exits {
        eprintln!("chaos: {times} workers ended unasked: {reason}");
    }
    let report = Report { figures, kills: count(Fault::Kill), turns: evidence.turns.len(), violations, dir };
    report.keep(&evidence);
    report
}

fn tell(mode: Mode, begin: Instant, progress: &Progress) {
    let (sent, results) = (progress.sent.load(Ordering::SeqCst), progress.results.load(Ordering::SeqCst));
    eprintln!(
        "chaos: {}: {:.0?}, {sent} turns sent, {results} have a result",
        mode.as_str(),
        begin.elapsed()
    );
}

/// Two healthy workers, until every turn has a result.
fn settle(fleet: &mut Fleet, progress: &Progress) -> Option<String> {
    let (mut last, mut since) = (progress.waiting(), Instant::now());
    loop {
        fleet.tick(true);
        while fleet.count() < 2 {
            fleet.start_after(Duration::ZERO);
        }
        let waiting = progress.waiting();
        if waiting == 0 {
            return None;
        }
        if waiting != last {
            (last, since) = (waiting, Instant::now());
        }
        if since.elapsed() > STUCK {
            return Some(format!("{waiting} turns have no result, and none came for {STUCK:?}"));
        }
        sleep(Duration::from_millis(50));
    }
}

fn wait_for_offsets(brokers: &str, names: &Names) -> Option<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let offsets = topics::offsets(brokers, &names.id, &names.topic("turns"));
        if offsets.as_ref().is_ok_and(|all| all.iter().all(|(end, committed)| end == committed)) {
            return None;
        }
        if Instant::now() > deadline {
            return Some(format!("ends of the turns and committed offsets: {offsets:?}"));
        }
        sleep(Duration::from_millis(200));
    }
}

/// All workers end by SIGTERM.
fn end(fleet: &mut Fleet) -> Vec<String> {
    let before = fleet.exits.clone();
    for number in fleet.those(|state| state == State::Running) {
        fleet.end(number);
    }
    while fleet.processes() > 0 {
        fleet.tick(true);
        sleep(Duration::from_millis(20));
    }
    let new = fleet.exits.keys().filter(|reason| fleet.exits.get(*reason) != before.get(*reason));
    new.map(|reason| format!("a healthy worker did not end well: {reason}")).collect()
}

/// `turnmill events` from offset 0 shows what is on the log.
fn events_command(fleet: &Fleet, events: &[Raw]) -> Vec<String> {
    let mut wrong = Vec::new();
    for partition in 0..PARTITIONS {
        let number = partition.to_string();
        let args = ["events", "--json", "--partition", &number, "--offset", "0"];
        let shown = fleet.place().command(&args).output().unwrap();
        let text = String::from_utf8_lossy(&shown.stdout);
        let own = events.iter().filter(|raw| raw.partition == partition).map(|raw| raw.value.as_str());
        if !shown.status.success() || !text.lines().eq(own) {
            let why = String::from_utf8_lossy(&shown.stderr);
            wrong.push(format!(
                "turnmill events of partition {partition} differ from the topic ({}): {why}",
                shown.status
            ));
        }
    }
    wrong
}

impl Report {
    /// Leaves the evidence of a violation, and nothing where there is none.
    fn keep(&self, evidence: &Evidence) {
        if self.violations.is_empty() && std::env::var_os("TURNMILL_CHAOS_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.dir);
            return;
        }
        let write =
            |name: &str, lines: Vec<String>| fs::write(self.dir.join(name), lines.join("\n")).unwrap();
        let dump = |records: &[Raw]| records.iter().map(Raw::line).collect();
        write("violations.txt", self.violations.clone());
        write("turns.txt", dump(&evidence.turns));
        write("results.txt", dump(&evidence.results));
        write("history.txt", dump(&evidence.history));
        write("events.txt", dump(&evidence.events));
        write("ledger.txt", evidence.calls.iter().map(|call| call.json().to_string()).collect());
    }
}
