//! Topics, read and set without the code under test.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;
use tokio::runtime::Runtime;

pub const PARTITIONS: i32 = 4;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A record as it is on the log.
#[derive(Debug)]
pub struct Raw {
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub value: String,
    parsed: OnceCell<Value>,
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        (self.partition, self.offset, &self.key, &self.value)
            == (other.partition, other.offset, &other.key, &other.value)
    }
}

impl Raw {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        Self {
            partition: message.partition(),
            offset: message.offset(),
            key: text(message.key()),
            value: text(message.payload()),
            parsed: OnceCell::new(),
        }
    }

    /// Its value; null if that is no JSON.
    pub fn json(&self) -> &Value {
        self.parsed.get_or_init(|| serde_json::from_str(&self.value).unwrap_or_default())
    }

    /// A line of a dump.
    pub fn line(&self) -> String {
        let Self { partition, offset, key, value, .. } = self;
        format!("{partition} {offset} {key} {value}")
    }
}

/// What a reader sees of transactions.
#[derive(Clone, Copy)]
pub enum See {
    All,
    Committed,
}

fn consumer(brokers: &str, group: &str, see: See) -> BaseConsumer {
    let mut config = ClientConfig::new();
    let isolation = match see {
        See::All => "read_uncommitted",
        See::Committed => "read_committed",
    };
    config
        .set("bootstrap.servers", brokers)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "100")
        .set("reconnect.backoff.max.ms", "500")
        .set("isolation.level", isolation);
    config.create().unwrap()
}

/// Reads topics from their beginnings.
pub struct Reader {
    consumer: BaseConsumer,
    ended: HashSet<(String, i32)>,
    topics: usize,
}

impl Reader {
    pub fn open(brokers: &str, topics: &[&str], see: See) -> Self {
        let consumer = consumer(brokers, "chaos-reader", see);
        let mut list = TopicPartitionList::new();
        for topic in topics {
            for partition in 0..PARTITIONS {
                list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
            }
        }
        consumer.assign(&list).unwrap();
        Self { consumer, ended: HashSet::new(), topics: topics.len() }
    }

    /// The next record that comes in some milliseconds, with its topic. A broker that is away is waited for.
    pub fn poll(&mut self) -> Option<(String, Raw)> {
        match self.consumer.poll(Duration::from_millis(20))? {
            Ok(message) => Some((message.topic().to_owned(), Raw::of(&message))),
            Err(KafkaError::PartitionEOF(partition)) => {
                // It does not say of which topic: a reader to the end has one.
                self.ended.insert((String::new(), partition));
                None
            }
            Err(_) => None,
        }
    }
}

/// All that a topic has now, partition after partition.
pub fn read(brokers: &str, topic: &str, see: See) -> Vec<Raw> {
    let mut reader = Reader::open(brokers, &[topic], see);
    assert_eq!(reader.topics, 1);
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut records = Vec::new();
    while reader.ended.len() < PARTITIONS.unsigned_abs() as usize {
        assert!(Instant::now() < deadline, "topic {topic} is not read to its end");
        records.extend(reader.poll().map(|(_, raw)| raw));
    }
    records.sort_by_key(|raw| (raw.partition, raw.offset));
    records
}

/// The end of each partition, and what the group has committed there.
pub fn offsets(brokers: &str, group: &str, topic: &str) -> Result<Vec<(i64, i64)>, KafkaError> {
    let consumer = consumer(brokers, group, See::Committed);
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, PARTITIONS - 1);
    let committed = consumer.committed_offsets(list, TIMEOUT)?;
    let mut all = Vec::new();
    for element in committed.elements() {
        let (_, end) = consumer.fetch_watermarks(topic, element.partition(), TIMEOUT)?;
        let at = if let Offset::Offset(offset) = element.offset() { offset } else { 0 };
        all.push((end, at));
    }
    Ok(all)
}

/// How long an event is safe from compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lag {
    /// What a worker asks for when it binds.
    Allowed,
    /// As little as a restore needs.
    Hard,
}

/// Sets how the events topic is compacted.
pub struct Compaction {
    admin: AdminClient<DefaultClientContext>,
    runtime: Runtime,
    topic: String,
    lag: Option<Lag>,
}

impl Compaction {
    pub fn new(brokers: &str, topic: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("reconnect.backoff.max.ms", "500");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { admin: config.create().unwrap(), runtime, topic: topic.into(), lag: None }
    }

    /// False: the broker did not take it, and it has to be tried again.
    pub fn set(&mut self, lag: Lag) -> bool {
        if self.lag == Some(lag) {
            return true;
        }
        let lag_ms = match lag {
            Lag::Allowed => "3600000",
            Lag::Hard => "3000",
        };
        // The request replaces all settings of the topic.
        let entries = [
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "604800000"),
            ("delete.retention.ms", "86400000"),
            ("segment.ms", "1000"),
            ("min.cleanable.dirty.ratio", "0.0"),
            ("file.delete.delay.ms", "1000"),
            ("min.compaction.lag.ms", lag_ms),
        ];
        let change =
            AlterConfig { specifier: ResourceSpecifier::Topic(&self.topic), entries: entries.into() };
        let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(5)));
        let asked = self.runtime.block_on(self.admin.alter_configs([&change], &options));
        // rdkafka drops the answer about the topic itself: only a look shows what came of it.
        let is = asked.ok().and_then(|_| {
            let topic = [ResourceSpecifier::Topic(&self.topic)];
            let described = self.runtime.block_on(self.admin.describe_configs(&topic, &options)).ok()?;
            described.first()?.as_ref().ok()?.get("min.compaction.lag.ms")?.value.clone()
        });
        let done = is.as_deref() == Some(lag_ms);
        self.lag = done.then_some(lag);
        done
    }
}
