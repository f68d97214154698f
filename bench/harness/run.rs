//! Topics of a run, filled before it starts, and worker processes beside it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};

pub const WORKER: &str = env!("CARGO_BIN_EXE_turnmill");
/// How long a run may take to bring another result.
const PATIENCE: Duration = Duration::from_secs(90);

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a turn does. Contestants read it from the turn's metadata.
#[derive(Clone, Copy)]
pub struct Work {
    /// Durable steps, one after the other: of Turnmill, calls of the sample tool `echo`.
    pub steps: usize,
    /// How long they take in all; of Turnmill, one call of the sample tool `sleep`.
    pub work_ms: u64,
    /// Whether the steps are made together, by one reply.
    pub together: bool,
    /// How large the turn's input is, in bytes.
    pub input: usize,
}

impl Work {
    pub const NOTHING: Self = Self { steps: 0, work_ms: 0, together: false, input: 2 };
    pub const THREE_STEPS: Self = Self { steps: 3, ..Self::NOTHING };
    pub const SIXTY_MS: Self = Self { steps: 1, work_ms: 60, ..Self::NOTHING };
    /// One call that outlives the measurement.
    pub const SLEEP: Self = Self { steps: 1, work_ms: 3_600_000, ..Self::NOTHING };

    /// The replies of the scripted model.
    fn script(self) -> String {
        let call = |n: usize| match self.work_ms {
            0 => json!({"name": "echo", "arguments": {"text": format!("text {n}")}}),
            ms => json!({"name": "sleep", "arguments": {"ms": ms}}),
        };
        let calls: Vec<Value> = (0..self.steps).map(call).collect();
        let mut replies = match self.together {
            true => vec![json!({"calls": calls})],
            false => calls.into_iter().map(|call| json!({"calls": [call]})).collect(),
        };
        replies.push(json!({"text": "done"}));
        json!({"replies": replies}).to_string()
    }

    fn turn(self, id: &str, session: &str) -> String {
        let metadata = json!({
            "script": self.script(),
            "steps": self.steps.to_string(),
            "work_ms": self.work_ms.to_string(),
        });
        json!({"turn_id": id, "session_id": session, "agent": "support", "input": "x".repeat(self.input),
            "metadata": metadata})
        .to_string()
    }
}

/// How a worker is set up, where it is not by its defaults.
#[derive(Clone, Default)]
pub struct Settings {
    pub max_in_flight: Option<usize>,
    pub exactly_once: bool,
}

/// The topics of one run.
pub struct Run {
    pub brokers: String,
    pub name: String,
    pub partitions: i32,
    pub sessions: usize,
    pub turns: usize,
    folder: tempfile::TempDir,
}

/// A worker process; killed when it is dropped.
pub struct Worker {
    child: Child,
    pub log: PathBuf,
}

impl Worker {
    /// Drains and ends it.
    pub fn stop(&mut self) -> Result<()> {
        stop(&mut self.child)
    }

    /// Resident memory, in bytes.
    pub fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
        Ok(kib * 1024)
    }

    /// Waits until so many lines of its log say this.
    pub fn says(&self, message: &str, count: usize) -> Result<Vec<Value>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = std::fs::read_to_string(&self.log)?;
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let said: Vec<Value> = lines.filter(|line| line["message"] == message).collect();
            if said.len() >= count {
                return Ok(said);
            }
            if Instant::now() > deadline {
                return Err(format!("the worker has not said {message:?} {count} times:\n{log}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How long a process may take to end before it is killed.
const STOP: Duration = Duration::from_secs(30);

/// Asks a process to end, and waits until it has; it is killed where it is dropped.
pub fn stop(child: &mut Child) -> Result<()> {
    Command::new("kill").arg(child.id().to_string()).status()?;
    let by = Instant::now() + STOP;
    while child.try_wait()?.is_none() && Instant::now() < by {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// Creates the topics.
    pub fn new(brokers: &str, name: &str, partitions: i32, sessions: usize) -> Result<Self> {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        let name = format!("bench-{name}-{nanos}");
        let folder = tempfile::tempdir()?;
        let run = Self { brokers: brokers.into(), name, partitions, sessions, turns: 0, folder };
        let config = run.config(&Settings::default())?;
        let applied = Command::new(WORKER)
            .args(["topics", "apply", "--partitions", &partitions.to_string(), "--config"])
            .arg(config)
            .stdout(Stdio::null())
            .status()?;
        if !applied.success() {
            return Err("topics apply failed".into());
        }
        Ok(run)
    }

    /// With this many more turns on the turns topic.
    pub fn filled(mut self, work: Work, turns: usize) -> Result<Self> {
        self.fill(work, turns)?;
        Ok(self)
    }

    /// Starts a worker, as its release binary.
    pub fn worker(&self, name: &str, settings: &Settings) -> Result<Worker> {
        let log = self.folder.path().join(format!("{name}.log"));
        let child = Command::new(WORKER)
            .args(["worker", "--config"])
            .arg(self.config(settings)?)
            .stderr(std::fs::File::create(&log)?)
            .spawn()?;
        Ok(Worker { child, log })
    }

    /// A folder that is the run's own.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn topic(&self, kind: &str) -> String {
        format!("{}.{kind}", self.name)
    }

    fn config(&self, settings: &Settings) -> Result<PathBuf> {
        let topics = ["turns", "events", "results", "dead_letters", "status", "control"]
            .map(|kind| format!("{kind} = \"{}\"\n", self.topic(kind)))
            .concat();
        let delivery = if settings.exactly_once { "exactly-once" } else { "at-least-once" };
        let in_flight = settings.max_in_flight.map(|most| format!("max_in_flight = {most}\n"));
        let toml = format!(
            "[kafka]\nbrokers = \"{}\"\ngroup_id = \"{}\"\n\
             [kafka.properties]\n\"session.timeout.ms\" = 6000\n[topics]\n{topics}\
             [worker]\ndelivery = \"{delivery}\"\n{}[tools]\nsamples = true\n\
             [[agents]]\nname = \"support\"\nmodel = \"scripted\"\ntools = [\"echo\", \"sleep\"]\n\
             max_tool_calls = 1000\n",
            self.brokers,
            self.name,
            in_flight.unwrap_or_default(),
        );
        let path = self.folder.path().join("turnmill.toml");
        std::fs::write(&path, toml)?;
        Ok(path)
    }

    pub fn fill(&mut self, work: Work, turns: usize) -> Result<()> {
        let made = self.make(work, turns);
        self.send_all(&made)
    }

    /// The next turns: session and value of each.
    pub fn make(&mut self, work: Work, turns: usize) -> Vec<(String, String)> {
        let numbers = self.turns..self.turns + turns;
        self.turns += turns;
        let turn = |n: usize| {
            let session = format!("s-{}", n % self.sessions);
            let value = work.turn(&format!("t-{n}"), &session);
            (session, value)
        };
        numbers.map(turn).collect()
    }

    /// Puts turns onto their topic, all at once.
    pub fn send_all(&self, turns: &[(String, String)]) -> Result<()> {
        let producer = self.producer("5")?;
        for turn in turns {
            self.hand_over(&producer, turn)?;
        }
        Ok(producer.flush(Duration::from_secs(60))?)
    }

    /// A producer of turns.
    pub fn producer(&self, linger_ms: &str) -> Result<BaseProducer> {
        let mut config = client(&self.brokers);
        config.set("partitioner", "murmur2_random").set("linger.ms", linger_ms);
        Ok(config.set("queue.buffering.max.messages", "1000000").create()?)
    }

    /// Hands one more turn over.
    pub fn send(&mut self, producer: &BaseProducer, work: Work) -> Result<()> {
        self.make(work, 1).iter().try_for_each(|turn| self.hand_over(producer, turn))
    }

    fn hand_over(&self, producer: &BaseProducer, (session, value): &(String, String)) -> Result<()> {
        let topic = self.topic("turns");
        loop {
            match producer.send(BaseRecord::to(&topic).key(session).payload(value)) {
                Ok(()) => return Ok(()),
                Err((error, _)) if producer.in_flight_count() == 0 => return Err(error.into()),
                Err(_) => drop(producer.flush(Duration::from_secs(60))),
            }
        }
    }

    /// A reader of the results, from the first on.
    pub fn results(&self) -> Result<BaseConsumer> {
        self.reader("results")
    }

    /// A reader of a topic of the run, from the first record on.
    pub fn reader(&self, kind: &str) -> Result<BaseConsumer> {
        let reader: BaseConsumer = client(&self.brokers)
            .set("group.id", "bench")
            .set("fetch.wait.max.ms", "50")
            .set("fetch.queue.backoff.ms", "20")
            .set("isolation.level", "read_committed")
            .create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            list.add_partition_offset(&self.topic(kind), partition, Offset::Beginning)?;
        }
        reader.assign(&list)?;
        Ok(reader)
    }

    /// Waits until so many starts of tools are on the events topic.
    pub fn tool_starts(&self, count: usize) -> Result<()> {
        let reader = self.reader("events")?;
        let mut seen = 0;
        while seen < count {
            each(&reader, 1, |message| {
                let value = message.payload().unwrap_or_default();
                let start = b"\"type\":\"tool:start\"";
                seen += usize::from(value.windows(start.len()).any(|window| window == start));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Waits until all turns have their results.
    pub fn work_off(&self) -> Result<()> {
        each(&self.results()?, self.turns, well).map_err(|error| format!("{}: {error}", self.name).into())
    }
}

/// A result says that its turn has ended well.
///
/// # Errors
/// It says something else.
pub fn well(message: &BorrowedMessage<'_>) -> Result<()> {
    let value = String::from_utf8_lossy(message.payload().unwrap_or_default());
    match value.contains("\"status\":\"completed\"") || value.contains("\"status\": \"completed\"") {
        true => Ok(()),
        false => Err(format!("a turn has not ended well: {value:.500}").into()),
    }
}

/// Takes in so many records.
pub fn each(
    reader: &BaseConsumer,
    count: usize,
    mut take: impl FnMut(&BorrowedMessage<'_>) -> Result<()>,
) -> Result<()> {
    let mut heard = Instant::now();
    for seen in 0..count {
        let message = loop {
            if let Some(message) = reader.poll(Duration::from_millis(100)) {
                break message?;
            }
            if heard.elapsed() > PATIENCE {
                return Err(format!("{seen} of {count} records came").into());
            }
        };
        heard = Instant::now();
        take(&message)?;
    }
    Ok(())
}

pub fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("auto.offset.reset", "earliest");
    config
}

/// The middle of some figures.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
