//! Turns per second of a worker, beside a bare loop that consumes and produces with the same client library
//! on the same broker: as ratios, in turn, in one run. `make bench-quick` starts the broker.
//!
//! Each run has topics of its own that are filled before it starts. What is measured is the time between the
//! first and the last result on the results topic, so that joining a group and starting a process are not.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::json;

const SESSIONS: usize = 500;
const PARTITIONS: i32 = 8;
const ROUNDS: usize = 3;
const WORKER: &str = env!("CARGO_BIN_EXE_turnmill");

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a turn does.
#[derive(Clone, Copy)]
enum Work {
    NoTools,
    ThreeTools,
}

impl Work {
    fn script(self) -> String {
        let call = |text: &str| json!({"calls": [{"name": "echo", "arguments": {"text": text}}]});
        let done = json!({"text": "done"});
        match self {
            Self::NoTools => json!({"replies": [done]}).to_string(),
            Self::ThreeTools => json!({"replies": [call("a"), call("b"), call("c"), done]}).to_string(),
        }
    }
}

/// The topics of one run.
struct Run {
    brokers: String,
    name: String,
    folder: tempfile::TempDir,
    turns: usize,
}

impl Run {
    /// Creates the topics and fills the turns topic.
    fn new(brokers: &str, name: &str, work: Work, turns: usize) -> Result<Self> {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        let name = format!("bench-{name}-{nanos}");
        let run = Self { brokers: brokers.into(), folder: tempfile::tempdir()?, name, turns };
        std::fs::write(run.config(), run.toml())?;
        let applied = Command::new(WORKER)
            .args(["topics", "apply", "--partitions", &PARTITIONS.to_string(), "--config"])
            .arg(run.config())
            .stdout(Stdio::null())
            .status()?;
        assert!(applied.success(), "topics apply failed");
        run.fill(work)?;
        Ok(run)
    }

    fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("turnmill.toml")
    }

    fn topic(&self, kind: &str) -> String {
        format!("{}.{kind}", self.name)
    }

    fn toml(&self) -> String {
        let topics = ["turns", "events", "results", "dead_letters", "status", "control"]
            .map(|kind| format!("{kind} = \"{}\"\n", self.topic(kind)))
            .concat();
        format!(
            "[kafka]\nbrokers = \"{}\"\ngroup_id = \"{}\"\n[topics]\n{topics}[tools]\nsamples = true\n\
             [[agents]]\nname = \"support\"\nmodel = \"scripted\"\ntools = [\"echo\"]\n",
            self.brokers, self.name
        )
    }

    fn fill(&self, work: Work) -> Result<()> {
        let producer: BaseProducer = client(&self.brokers)
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "5")
            .set("queue.buffering.max.messages", "1000000")
            .create()?;
        let script = work.script();
        for n in 0..self.turns {
            let session = format!("s-{}", n % SESSIONS);
            let turn = json!({"turn_id": format!("t-{n}"), "session_id": session, "agent": "support",
                "input": "go", "metadata": {"script": script}})
            .to_string();
            let topic = self.topic("turns");
            let record = BaseRecord::to(&topic).key(&session).payload(&turn);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        Ok(producer.flush(Duration::from_secs(60))?)
    }

    /// Results per second between the first and the last, from when this is called.
    fn measure(&self) -> Result<f64> {
        let reader: BaseConsumer = client(&self.brokers).set("group.id", "bench").create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            list.add_partition_offset(&self.topic("results"), partition, Offset::Beginning)?;
        }
        reader.assign(&list)?;
        let (mut seen, mut first, deadline) = (0, None, Instant::now() + Duration::from_secs(300));
        while seen < self.turns {
            assert!(Instant::now() < deadline, "{}: {seen} of {} results came", self.name, self.turns);
            if let Some(message) = reader.poll(Duration::from_millis(100)) {
                message?;
                seen += 1;
                first.get_or_insert_with(Instant::now);
            }
        }
        let took = first.unwrap_or(deadline).elapsed().as_secs_f64();
        Ok((self.turns - 1) as f64 / took)
    }
}

fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("auto.offset.reset", "earliest");
    config
}

/// A worker's rate, as its release binary, with its defaults.
fn worker(run: &Run) -> Result<f64> {
    let log = std::fs::File::create(run.folder.path().join("worker.log"))?;
    let mut child = Command::new(WORKER)
        .args(["worker", "--config"])
        .arg(run.config())
        .env("RUST_LOG", "warn")
        .stderr(log)
        .spawn()?;
    let rate = run.measure();
    stop(&mut child)?;
    rate
}

fn stop(child: &mut Child) -> Result<()> {
    Command::new("kill").arg(child.id().to_string()).status()?;
    child.wait()?;
    Ok(())
}

/// The limit: a loop that reads a record, writes a result of about a turn's size, and commits now and then.
/// The same acknowledgements as a worker's.
fn bare(run: &Run) -> Result<f64> {
    let consumer: BaseConsumer = client(&run.brokers)
        .set("group.id", &run.name)
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "20")
        .create()?;
    let producer: ThreadedProducer<DefaultProducerContext> = client(&run.brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    let (topic, turns, results) = (run.name.clone(), run.topic("turns"), run.topic("results"));
    let total = run.turns;
    let copier = std::thread::spawn(move || -> std::result::Result<(), String> {
        consumer.subscribe(&[&turns]).map_err(|e| format!("{topic}: {e}"))?;
        let result = "x".repeat(260);
        for n in 0..total {
            let message = loop {
                if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                    break message.map_err(|e| e.to_string())?;
                }
            };
            let record = BaseRecord::to(&results).key(message.key().unwrap_or_default()).payload(&result);
            producer.send(record).map_err(|(e, _)| e.to_string())?;
            if n % 2000 == 1999 {
                producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())?;
                consumer.commit_consumer_state(CommitMode::Async).map_err(|e| e.to_string())?;
            }
        }
        producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())
    });
    let rate = run.measure();
    copier.join().map_err(|_| "the bare loop panicked")??;
    rate
}

/// Runs worker and bare loop in turn, and prints the rates and their ratio.
fn compare(brokers: &str, name: &str, work: Work, turns: usize) -> Result<f64> {
    println!("\n{name}: {turns} turns over {SESSIONS} sessions on {PARTITIONS} partitions");
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let ours = worker(&Run::new(brokers, "worker", work, turns)?)?;
        let limit = bare(&Run::new(brokers, "bare", work, turns)?)?;
        ratios.push(ours / limit);
        println!("  round {round}: worker {ours:7.0}/s, bare loop {limit:7.0}/s, ratio {:.3}", ours / limit);
        std::io::stdout().flush()?;
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2])
}

fn main() -> Result<()> {
    // `cargo test --benches` runs this too, without a broker and without the intent to measure.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let brokers = std::env::var("KAFKA_BOOTSTRAP_SERVERS").map_err(|_| "set KAFKA_BOOTSTRAP_SERVERS")?;
    assert!(Path::new(WORKER).exists());
    let none = compare(&brokers, "no tools", Work::NoTools, 20_000)?;
    let three = compare(&brokers, "three tools", Work::ThreeTools, 5_000)?;
    println!("\nmedian ratios to the bare loop: no tools {none:.3}, three tools {three:.3}");
    Ok(())
}
