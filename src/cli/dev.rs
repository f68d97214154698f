//! `turnmill dev`: everything in one process.
//!
//! The pipeline is the worker's own, over real client connections to a broker in this process. What the
//! terminal shows is read back from the events topic, as `turnmill events` would.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::program::Program;
use super::{Error, Exit, print, timeline, worker as worker_command};
use crate::app::App;
use crate::config::{AgentSpec, Config, Loaded};
use crate::health::Health;
use crate::kafka::client::{self, Isolation};
use crate::kafka::embedded::Embedded;
use crate::kafka::producer::{Outgoing, Producer, Written};
use crate::kafka::reader::{Reader, Scope, Start, Stop};
use crate::record::{EventType, StepEvent, TurnStatus, read_turn};
use crate::worker;
use crate::worker::switches::Switches;

/// The turns that are played where no file is named.
const SAMPLE_TURNS: &str = include_str!("../../examples/turns.jsonl");
/// Enough to show that sessions run side by side, few enough to read.
const PARTITIONS: u32 = 4;

/// Try everything in one process: an embedded broker, a worker, sample turns, a timeline.
///
/// Without --config there is one agent, "support", with the sample tools and the scripted model. The
/// broker's address is printed; other clients on this machine may use it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The turns to play, one JSON object a line [default: the sample turns].
    #[arg(long, value_name = "FILE")]
    turns: Option<PathBuf>,
    /// End once every turn of the file has ended, instead of staying up for more.
    #[arg(long)]
    exit_when_done: bool,
}

/// Runs until everything has ended, or until a signal.
pub(crate) async fn run(args: Args, app: App, loaded: Option<Loaded>, json: bool) -> Result<Exit, Error> {
    let turns = match &args.turns {
        None => SAMPLE_TURNS.to_owned(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Error::new(Exit::Usage, format!("--turns {}: {e}", path.display())))?,
    };
    let mut loaded = loaded.unwrap_or_else(|| Loaded::from(sample_config()));
    let broker = Embedded::start(&loaded.config.topics, PARTITIONS)
        .map_err(|e| Error::new(Exit::Failed, e.to_string()))?;
    let kafka = &mut loaded.config.kafka;
    kafka.brokers = broker.bootstrap_servers().into();
    // What is configured for a real broker means nothing to this one, whose long polls wake nobody.
    kafka.properties = [("fetch.wait.max.ms".into(), "25".into())].into();
    let program = Program::new(app, loaded);
    let agents = program.bind()?;
    let config = program.loaded.config.clone();
    let say = |text: String| if json { Ok(()) } else { print::line(text) };
    say(format!("embedded broker at {} (it forgets everything when it ends)", config.kafka.brokers))?;

    let begun = Instant::now();
    let mut events = open(&config).await?;
    let sent = produce(&config, &turns).await?;
    say(format!("{} records on topic {}\n", sent.len(), config.topics.turns))?;

    let shutdown = CancellationToken::new();
    let signals = tokio::spawn(worker_command::signals(shutdown.clone()));
    let options = worker::Options {
        config: config.clone(),
        registry: program.registry,
        deps: program.deps,
        cache: program.cache,
        agents,
        switches: Switches::new(&config.switches),
        health: Health::default(),
    };
    let mut worker = tokio::spawn(worker::run_on(options, "embedded".into(), shutdown.clone()));
    let mut show = Show {
        stay: !args.exit_when_done,
        json,
        brokers: &config.kafka.brokers,
        waiting: sent.iter().map(|w| (w.partition, w.offset)).collect(),
        tally: Tally::default(),
    };
    let (shown, ended) = tokio::select! {
        shown = show.run(&mut events) => {
            // The worker ends before the broker does, also where nobody reads what is shown.
            shutdown.cancel();
            (shown, (&mut worker).await)
        }
        ended = &mut worker => (Ok(()), ended),
    };
    signals.abort();
    shown?;
    let ended = ended.map_err(|e| Error::new(Exit::Failed, format!("the worker failed: {e}")))?;
    ended.map_err(|error| worker_command::failed(&error))?;
    say(show.tally.summary(begun.elapsed()))?;
    Ok(Exit::Done)
}

/// What the terminal shows.
struct Show<'a> {
    /// Go on when everything has ended.
    stay: bool,
    /// Print events as they are on the log, and nothing else.
    json: bool,
    brokers: &'a str,
    /// Partition and offset of the records that have not ended.
    waiting: HashSet<(i32, i64)>,
    tally: Tally,
}

impl Show<'_> {
    /// Prints events as they are written, until everything has ended, or for ever. Cancel safe.
    async fn run(&mut self, events: &mut Reader) -> Result<(), Error> {
        while self.stay || !self.waiting.is_empty() {
            let Some(record) = events.next().await else {
                return Ok(());
            };
            let record = record.map_err(|e| Error::new(Exit::Failed, e.to_string()))?;
            let value = record.value.unwrap_or_default();
            let Ok(event) = serde_json::from_slice::<StepEvent>(&value) else {
                continue;
            };
            self.tally.add(&event);
            if self.json {
                print::line(String::from_utf8_lossy(&value))?;
            } else if event.kind != EventType::Claim {
                print::line(timeline::event(&event))?;
            }
            if let (EventType::TurnEnd, Some(offset)) = (event.kind, event.input_offset) {
                let last = self.waiting.remove(&(record.partition, offset)) && self.waiting.is_empty();
                if last && self.stay && !self.json {
                    self.hint()?;
                }
            }
        }
        Ok(())
    }

    fn hint(&mut self) -> Result<(), Error> {
        print::line(format!(
            "\nall turns have ended; waiting for more. From another terminal:\n  \
             TURNMILL__KAFKA__BROKERS={} turnmill submit --agent support --session s-1 --wait \\\n    \
             --metadata script='{{\"replies\":[{{\"text\":\"hi\"}}]}}' \"Say hi\"\n",
            self.brokers
        ))
    }
}

/// One agent with the sample tools.
fn sample_config() -> Config {
    let mut config = Config::default();
    config.tools.samples = true;
    config.agents.push(AgentSpec::new("support", "scripted").system("You help with orders.").tools(["*"]));
    config
}

async fn open(config: &Config) -> Result<Reader, Error> {
    let scope = Scope {
        partition: None,
        start: Start::Beginning,
        stop: Stop::Never,
        isolation: Isolation::ReadUncommitted,
    };
    (Reader::open(&config.kafka, &config.topics.events, scope).await)
        .map_err(|e| Error::new(Exit::Failed, e.to_string()))
}

/// Sends each line as it is, an unreadable one too, under its session where it names one.
async fn produce(config: &Config, turns: &str) -> Result<Vec<Written>, Error> {
    let failed = |e: String| Error::new(Exit::Failed, format!("the turns cannot be produced: {e}"));
    let producer =
        Producer::new(&client::producer(&config.kafka), "turns").map_err(|e| failed(client::explain(&e)))?;
    let mut receipts = Vec::new();
    for line in turns.lines().filter(|line| !line.trim().is_empty()) {
        let session = match read_turn("", 0, 0, None, Some(line.as_bytes())) {
            Ok((identity, _)) => Some(identity.session),
            Err(_) => None,
        };
        let record = Outgoing {
            topic: &config.topics.turns,
            key: session.as_ref().map(|s| s.as_str().as_bytes()),
            value: Some(line.as_bytes()),
            ..Outgoing::default()
        };
        receipts.push(producer.send(record).await.map_err(|e| failed(e.to_string()))?);
    }
    let mut written = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        written.push(receipt.wait().await.map_err(|e| failed(e.to_string()))?);
    }
    Ok(written)
}

/// What happened, counted.
#[derive(Default)]
struct Tally {
    completed: usize,
    failed: usize,
    dead_letters: usize,
    replies: usize,
    calls: usize,
    retries: u32,
    events: usize,
}

impl Tally {
    fn add(&mut self, event: &StepEvent) {
        self.events += 1;
        match event.kind {
            EventType::ModelReply => self.replies += 1,
            EventType::ToolResult => {
                self.calls += 1;
                self.retries += event.attempts.map_or(0, |attempts| attempts.saturating_sub(1));
            }
            EventType::TurnEnd => match event.turn_status {
                Some(TurnStatus::Completed) => self.completed += 1,
                Some(TurnStatus::DeadLetter) => self.dead_letters += 1,
                _ => self.failed += 1,
            },
            _ => {}
        }
    }

    fn summary(&self, took: Duration) -> String {
        let Self { completed, failed, dead_letters, replies, calls, retries, events } = self;
        format!(
            "\n{completed} turns completed, {failed} failed, {dead_letters} dead letters; \
             {replies} model replies, {calls} tool calls, {retries} retries; \
             {events} events on the log, in {:.1} s",
            took.as_secs_f64()
        )
    }
}
