//! The workers: started, killed, stopped, continued, ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::topics::{Compaction, Lag};

/// How long a worker may take to end after SIGTERM: the drain, the last records, the last commit.
const LEAVE: Duration = Duration::from_secs(45);

/// Where the workers run.
pub struct Place {
    pub program: PathBuf,
    pub dir: PathBuf,
    pub ledger: String,
}

impl Place {
    /// A command of the worker's program.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            // The settings of whoever runs the test are not ours.
            if name.to_string_lossy().starts_with("TURNMILL") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.args(args).arg("--config").arg(self.dir.join("turnmill.toml"));
        command.env("LEDGER", &self.ledger).current_dir(&self.dir).stdin(Stdio::null());
        command
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// By SIGSTOP.
    Stopped {
        until: Instant,
        /// Or until soon after somebody takes a partition over, beyond so many times: one that comes back just then
        /// does its worst.
        claims: Option<usize>,
    },
    /// After SIGTERM.
    Leaving {
        by: Instant,
    },
}

struct Worker {
    number: usize,
    child: Child,
    log: PathBuf,
    state: State,
    /// It has checked the topics.
    bound: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        signal(&self.child.id().to_string(), name);
    }
}

pub struct Fleet {
    place: Place,
    compaction: Compaction,
    workers: Vec<Worker>,
    /// When those that are yet to come are due.
    coming: Vec<Instant>,
    pub started: usize,
    /// Ends that nobody asked for, by their reason.
    pub exits: BTreeMap<String, usize>,
    pub violations: Vec<String>,
}

impl Fleet {
    pub fn new(place: Place, compaction: Compaction) -> Self {
        Self {
            place,
            compaction,
            workers: Vec::new(),
            coming: Vec::new(),
            started: 0,
            exits: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Those that work or are about to.
    pub fn count(&self) -> usize {
        self.those(|state| state == State::Running).len() + self.coming.len()
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.workers.len()
    }

    /// The workers in this state, by their number.
    pub fn those(&self, fits: impl Fn(State) -> bool) -> Vec<usize> {
        self.workers.iter().filter(|w| fits(w.state)).map(|w| w.number).collect()
    }

    pub fn start_after(&mut self, wait: Duration) {
        self.coming.push(Instant::now() + wait);
    }

    /// `kill -9`, and it is gone.
    pub fn kill(&mut self, number: usize) {
        self.workers.retain(|worker| worker.number != number);
    }

    pub fn stop(&mut self, number: usize, time: Duration, claims: Option<usize>) {
        self.change(number, "STOP", State::Stopped { until: Instant::now() + time, claims });
    }

    /// A partition was taken over: some of those that are stopped go on after this time.
    pub fn claimed(&mut self, count: usize, wait: Duration) {
        let soon = Instant::now() + wait;
        for worker in &mut self.workers {
            if let State::Stopped { until, claims: Some(before) } = worker.state
                && before < count
            {
                worker.state = State::Stopped { until: until.min(soon), claims: None };
            }
        }
    }

    pub fn end(&mut self, number: usize) {
        self.change(number, "TERM", State::Leaving { by: Instant::now() + LEAVE });
    }

    fn change(&mut self, number: usize, signal: &str, state: State) {
        if let Some(worker) = self.workers.iter_mut().find(|worker| worker.number == number) {
            worker.signal(signal);
            worker.state = state;
        }
    }

    /// Continues those that were stopped; at once, if asked to.
    pub fn go_on(&mut self, all: bool) {
        for worker in &mut self.workers {
            if let State::Stopped { until, .. } = worker.state
                && (all || until <= Instant::now())
            {
                worker.signal("CONT");
                worker.state = State::Running;
            }
        }
    }

    /// Does what is due. Nothing starts while the broker is away, since it could not be told to be patient.
    pub fn tick(&mut self, broker_is_up: bool) {
        self.go_on(false);
        self.reap();
        for worker in self.workers.iter_mut().filter(|worker| !worker.bound) {
            worker.bound = worker.log().contains("worker started");
        }
        if !broker_is_up {
            return;
        }
        let due = self.coming.iter().filter(|at| **at <= Instant::now()).count();
        if due > 0 && self.compaction.set(Lag::Allowed) {
            self.coming.retain(|at| *at > Instant::now());
            (0..due).for_each(|_| self.start());
        }
        if self.workers.iter().all(|worker| worker.bound) {
            self.compaction.set(Lag::Hard);
        }
    }

    /// Leaves the events as they are, to be read.
    pub fn end_compaction(&mut self) {
        while !self.compaction.set(Lag::Allowed) {}
    }

    fn start(&mut self) {
        let number = self.started;
        self.started += 1;
        let log = self.place.dir.join(format!("worker-{number}.log"));
        let mut command = self.place.command(&["worker"]);
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        self.workers.push(Worker { number, child, log, state: State::Running, bound: false });
    }

    fn reap(&mut self) {
        let now = Instant::now();
        let (mut exits, mut violations) = (Vec::new(), Vec::new());
        self.workers.retain_mut(|worker| {
            let leaving = match worker.state {
                State::Leaving { by } => Some(by),
                _ => None,
            };
            let number = worker.number;
            let Some(status) = worker.child.try_wait().unwrap() else {
                if leaving.is_some_and(|by| by < now) {
                    violations.push(format!("worker {number} has not ended {LEAVE:?} after SIGTERM"));
                    return false;
                }
                return true;
            };
            // SIGTERM at its very beginning, before anything listens, is the end too.
            let unheard = !worker.bound && status.signal().is_some();
            if leaving.is_none() || !(status.success() || unheard) {
                exits.push(format!("{status}: {}", reason(&worker.log())));
            }
            false
        });
        self.violations.extend(violations);
        for exit in exits {
            *self.exits.entry(exit).or_default() += 1;
        }
    }

    /// What no worker may ever say.
    pub fn panics(&self) -> Vec<String> {
        let logs = (0..self.started).map(|n| (n, self.place.dir.join(format!("worker-{n}.log"))));
        logs.filter(|(_, log)| fs::read_to_string(log).is_ok_and(|text| text.contains("panicked at")))
            .map(|(number, _)| format!("worker {number} panicked"))
            .collect()
    }
}

/// Why a worker ended, as it says itself.
fn reason(log: &str) -> String {
    log.lines().next_back().unwrap_or("it said nothing").chars().take(300).collect()
}

pub fn signal(pid: &str, name: &str) {
    // A process that has just ended is no matter.
    let _ = Command::new("kill").args(["-s", name, pid]).stderr(Stdio::null()).status();
}

/// The worker's program, built if it is not as new as the rest: `cargo test --test chaos` alone does not build it.
pub fn program() -> PathBuf {
    let stock = Path::new(env!("CARGO_BIN_EXE_turnmill"));
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/chaos_worker.rs"));
    let program = stock.with_file_name("examples").join("chaos_worker");
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    if changed(&program) < changed(stock).max(changed(source)) {
        let profile = match stock.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--example", "chaos_worker", "--profile", profile]);
        // What cargo told this test about its package would make it build dependencies again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                build.env_remove(&name);
            }
        }
        let built = build.status().expect("cargo runs");
        assert!(built.success(), "the worker is not built: {built}");
    }
    program
}
