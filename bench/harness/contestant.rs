//! Who takes part: Turnmill, a bare loop, and programs of `bench/contestants/`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::bare;
use crate::run::{self, Result, Run, Settings, Worker};

/// How long a contestant may take until it is ready.
const START: Duration = Duration::from_secs(120);

/// What takes the turns of a run and publishes a result for each.
#[derive(Clone)]
pub enum Contestant {
    /// The release binary.
    Turnmill(Settings),
    /// A loop that reads a record, writes a result, and commits now and then: the limit. Its
    /// `linger.ms` says how long the client gathers. With events it writes and reads on as many records as a worker.
    Bare { linger_ms: &'static str, events: usize },
    /// A bare client that waits for what a durable turn has to wait for, and does nothing else.
    RoundTrips(RoundTrips),
    /// A program in `bench/contestants/`.
    Other { name: &'static str, env: &'static [(&'static str, &'static str)] },
}

/// What a bare client makes of each record: events, a result that it waits for, and events after that.
#[derive(Clone)]
pub struct RoundTrips {
    pub linger_ms: &'static str,
    /// So many events are handed over together, and read back before the next ones.
    pub before: &'static [usize],
    pub after: &'static [usize],
    /// How many turns are in flight.
    pub in_flight: usize,
}

/// One that runs; killed when it is dropped.
pub enum Running {
    Turnmill(Worker),
    Bare(Arc<AtomicBool>, Option<JoinHandle<std::result::Result<(), String>>>),
    Other(Child),
}

impl Contestant {
    /// Starts it on the topics of a run; it is ready, or about to be.
    pub fn start(&self, run: &Run) -> Result<Running> {
        match self {
            Self::Turnmill(settings) => Ok(Running::Turnmill(run.worker("worker", settings)?)),
            Self::Bare { linger_ms, events } => bare::repeat(run, linger_ms, *events),
            Self::RoundTrips(trips) => bare::round_trips(run, trips),
            Self::Other { name, env } => other(run, name, env),
        }
    }

    /// Whether it can take part, or why not: builds it.
    pub fn prepare(&self) -> std::result::Result<(), String> {
        let Self::Other { name, .. } = self else { return Ok(()) };
        let built = Command::new(folder(name).join("prepare")).stdout(Stdio::null()).status();
        match built {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("bench/contestants/{name}/prepare ended with {status}")),
            Err(error) => Err(format!("bench/contestants/{name}/prepare cannot be run: {error}")),
        }
    }
}

impl Running {
    /// Ends it.
    pub fn stop(mut self) -> Result<()> {
        match &mut self {
            Self::Turnmill(worker) => worker.stop()?,
            Self::Bare(over, thread) => {
                over.store(true, Ordering::Relaxed);
                if let Some(thread) = thread.take() {
                    thread.join().map_err(|_| "the bare loop panicked")??;
                }
            }
            Self::Other(child) => run::stop(child)?,
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Turnmill(_) => {}
            Self::Bare(over, _) => over.store(true, Ordering::Relaxed),
            Self::Other(child) => {
                // Its group: whatever it has started too.
                let _ = Command::new("kill")
                    .args(["-9", "--", &format!("-{}", child.id())])
                    .stderr(Stdio::null())
                    .status();
                let _ = child.wait();
            }
        }
    }
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bench/contestants").join(name)
}

fn other(run: &Run, name: &str, env: &[(&str, &str)]) -> Result<Running> {
    let state = run.folder().join("state");
    std::fs::create_dir_all(&state)?;
    let mut child = Command::new(folder(name).join("run"))
        .envs(env.iter().copied())
        .env("KAFKA_BOOTSTRAP_SERVERS", &run.brokers)
        .env("TURNS_TOPIC", run.topic("turns"))
        .env("RESULTS_TOPIC", run.topic("results"))
        .env("GROUP_ID", &run.name)
        .env("STATE_DIR", &state)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(run.folder().join("contestant.log"))?)
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let running = Running::Other(child);
    let (said, line) = std::sync::mpsc::channel();
    // To its end: who writes to a pipe that nobody reads is killed.
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(std::io::Result::ok).for_each(|line| drop(said.send(line)));
    });
    let line = line.recv_timeout(START).unwrap_or_default();
    if line.trim() != "ready" {
        let log = std::fs::read_to_string(run.folder().join("contestant.log")).unwrap_or_default();
        return Err(format!("{name} did not get ready: {line:?}\n{log}").into());
    }
    Ok(running)
}
