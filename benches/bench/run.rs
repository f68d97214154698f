//! Topics of a run, filled before it starts, and processes beside it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::json;

pub const WORKER: &str = env!("CARGO_BIN_EXE_turnmill");
pub const SESSIONS: usize = 500;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a turn does.
#[derive(Clone, Copy)]
pub enum Work {
    NoTools,
    ThreeTools,
    /// One call that outlives the measurement.
    Sleep,
}

impl Work {
    fn script(self) -> String {
        let call = |text: &str| json!({"calls": [{"name": "echo", "arguments": {"text": text}}]});
        let done = json!({"text": "done"});
        match self {
            Self::NoTools => json!({"replies": [done]}).to_string(),
            Self::Sleep => {
                let sleep = json!({"calls": [{"name": "sleep", "arguments": {"ms": 3_600_000}}]});
                json!({"replies": [sleep, done]}).to_string()
            }
            Self::ThreeTools => json!({"replies": [call("a"), call("b"), call("c"), done]}).to_string(),
        }
    }
}

/// The topics of one run.
pub struct Run {
    pub brokers: String,
    pub name: String,
    pub partitions: i32,
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
    pub fn stop(mut self) -> Result<()> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// Creates the topics.
    pub fn new(brokers: &str, name: &str, partitions: i32) -> Result<Self> {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        let name = format!("bench-{name}-{nanos}");
        let folder = tempfile::tempdir()?;
        let run = Self { brokers: brokers.into(), name, partitions, turns: 0, folder };
        std::fs::write(run.config(), run.toml())?;
        let applied = Command::new(WORKER)
            .args(["topics", "apply", "--partitions", &partitions.to_string(), "--config"])
            .arg(run.config())
            .stdout(Stdio::null())
            .status()?;
        assert!(applied.success(), "topics apply failed");
        Ok(run)
    }

    /// With this many more turns on the turns topic.
    pub fn filled(mut self, work: Work, turns: usize) -> Result<Self> {
        self.fill(work, turns)?;
        Ok(self)
    }

    /// Starts a worker, as its release binary, with its defaults.
    pub fn worker(&self, name: &str) -> Result<Worker> {
        let log = self.folder.path().join(format!("{name}.log"));
        let child = Command::new(WORKER)
            .args(["worker", "--config"])
            .arg(self.config())
            .stderr(std::fs::File::create(&log)?)
            .spawn()?;
        Ok(Worker { child, log })
    }

    fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("turnmill.toml")
    }

    pub fn topic(&self, kind: &str) -> String {
        format!("{}.{kind}", self.name)
    }

    fn toml(&self) -> String {
        let topics = ["turns", "events", "results", "dead_letters", "status", "control"]
            .map(|kind| format!("{kind} = \"{}\"\n", self.topic(kind)))
            .concat();
        format!(
            "[kafka]\nbrokers = \"{}\"\ngroup_id = \"{}\"\n\
             [kafka.properties]\n\"session.timeout.ms\" = 6000\n[topics]\n{topics}[tools]\nsamples = true\n\
             [[agents]]\nname = \"support\"\nmodel = \"scripted\"\ntools = [\"echo\", \"sleep\"]\n",
            self.brokers, self.name
        )
    }

    pub fn fill(&mut self, work: Work, turns: usize) -> Result<()> {
        let producer: BaseProducer = client(&self.brokers)
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "5")
            .set("queue.buffering.max.messages", "1000000")
            .create()?;
        let script = work.script();
        for n in self.turns..self.turns + turns {
            let session = format!("s-{}", n % SESSIONS);
            let turn = json!({"turn_id": format!("t-{n}"), "session_id": session, "agent": "support",
                "input": "go", "metadata": {"script": script}})
            .to_string();
            let topic = self.topic("turns");
            let record = BaseRecord::to(&topic).key(&session).payload(&turn);
            producer.send(record).map_err(|(error, _)| error)?;
            if n % 10_000 == 9_999 {
                producer.flush(Duration::from_secs(60))?;
            }
        }
        self.turns += turns;
        Ok(producer.flush(Duration::from_secs(60))?)
    }

    /// Results per second between the first and the last, from when this is called.
    pub fn measure(&self) -> Result<f64> {
        let reader: BaseConsumer = client(&self.brokers).set("group.id", "bench").create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            list.add_partition_offset(&self.topic("results"), partition, Offset::Beginning)?;
        }
        reader.assign(&list)?;
        let (mut seen, mut first, deadline) = (0, None, Instant::now() + Duration::from_secs(600));
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

pub fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("auto.offset.reset", "earliest");
    config
}
