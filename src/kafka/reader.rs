//! Reading topics without a group: no membership, no commits, nothing that anyone else could notice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::mpsc;

use super::Header;
use super::access::{Operation, Resource};
use super::client::Isolation;
use super::error::{Error, is_transport, place};
use super::headers;
use super::lookup::{Bounds, Lookup};
use crate::config::Kafka;

/// How many records wait for whoever reads them.
const AHEAD: usize = 64;
/// How long a poll waits; also how late it is noticed that nobody reads any more.
const POLL: Duration = Duration::from_millis(100);
/// How long a reader that has an end waits for brokers that have gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where to begin, in every partition that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the oldest record.
    Beginning,
    /// With the first record that is written after the reader was opened.
    End,
    /// At this offset, or where the log begins or ends if that is nearer.
    Offset(i64),
}

/// Where to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Where each partition ended when the reader was opened.
    AtEnd,
    /// Never.
    Never,
}

/// What to read of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    /// One partition; all, where there is none.
    pub partition: Option<i32>,
    /// Where to begin.
    pub start: Start,
    /// Where to end.
    pub stop: Stop,
    /// What is seen of transactions.
    pub isolation: Isolation,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its partition.
    pub partition: i32,
    /// Its offset. Offsets have gaps.
    pub offset: i64,
    /// Milliseconds since 1970 UTC, where it has a timestamp.
    pub timestamp: Option<i64>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<Header>,
}

/// A topic that is being read, on a thread of its own that ends soon after this is dropped.
pub(crate) struct Reader {
    records: mpsc::Receiver<Result<Record, Error>>,
}

impl Reader {
    /// Begins to read. Where it begins and ends is fixed when this returns.
    ///
    /// # Errors
    /// There is no such topic or partition, or no broker answered within seconds.
    pub(crate) async fn open(kafka: &Kafka, topic: &str, scope: Scope) -> Result<Self, Error> {
        let (kafka, topic) = (kafka.clone(), topic.to_owned());
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(&kafka, topic, scope));
        opened.await.unwrap_or_else(|e| Err(Error::Config(format!("the reader's thread ended: {e}"))))
    }

    fn open_blocking(kafka: &Kafka, topic: String, scope: Scope) -> Result<Self, Error> {
        let lookup = Lookup::new(kafka, scope.isolation, Operation::Read)?;
        let count = lookup.partitions(&topic)?;
        let partitions: Vec<i32> = match scope.partition {
            Some(partition) if u32::try_from(partition).is_ok_and(|p| p < count) => vec![partition],
            Some(partition) => return Err(Error::NoPartition { topic, partition, count }),
            None => (0..i32::try_from(count).unwrap_or(i32::MAX)).collect(),
        };
        let bounds = lookup.bounds(&topic, &partitions)?;
        let mut list = TopicPartitionList::with_capacity(bounds.len());
        for (partition, bounds) in &bounds {
            list.add_partition_offset(&topic, *partition, from(scope.start, *bounds))
                .map_err(|e| Error::failed(place(&topic, *partition), "the start of reading", &e))?;
        }
        (lookup.consumer().assign(&list))
            .map_err(|e| Error::failed(format!("topic {topic}"), "the start of reading", &e))?;
        let (sender, records) = mpsc::channel(AHEAD);
        let ends = (scope.stop == Stop::AtEnd).then(|| ends(scope.start, &bounds));
        let pump = Pump { lookup, topic, ends, sender, progress: Instant::now() };
        std::thread::Builder::new()
            .name("turnmill-reader".into())
            .spawn(move || pump.run())
            .map_err(|e| Error::Config(format!("the reader's thread cannot be started: {e}")))?;
        Ok(Self { records })
    }

    /// The next record, in the order of its partition; no order holds between partitions. `None` at
    /// the end. After an error there is nothing more.
    ///
    /// Cancel safe: no record is lost.
    pub(crate) async fn next(&mut self) -> Option<Result<Record, Error>> {
        self.records.recv().await
    }
}

/// Where to begin in a partition. An offset beyond its end would be reset to its beginning.
fn from(start: Start, bounds: Bounds) -> Offset {
    match start {
        Start::Beginning => Offset::Beginning,
        Start::End => Offset::Offset(bounds.end),
        Start::Offset(offset) => Offset::Offset(offset.min(bounds.end).max(bounds.begin)),
    }
}

/// The ends of the partitions that have anything to read.
fn ends(start: Start, bounds: &BTreeMap<i32, Bounds>) -> BTreeMap<i32, i64> {
    let rest = bounds.iter().filter(|(_, bounds)| match start {
        Start::Beginning => bounds.begin < bounds.end,
        Start::End => false,
        Start::Offset(offset) => offset.max(bounds.begin) < bounds.end,
    });
    rest.map(|(partition, bounds)| (*partition, bounds.end)).collect()
}

/// What runs on the reader's thread.
struct Pump {
    lookup: Lookup,
    topic: String,
    /// The partitions that are not read to their ends, where there is an end.
    ends: Option<BTreeMap<i32, i64>>,
    sender: mpsc::Sender<Result<Record, Error>>,
    progress: Instant,
}

impl Pump {
    fn run(mut self) {
        while !self.sender.is_closed() && self.ends.as_ref().is_none_or(|ends| !ends.is_empty()) {
            if let Err(error) = self.step() {
                // Nobody may be reading any more; then nobody needs to know.
                let _ = self.sender.blocking_send(Err(error));
                return;
            }
        }
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.lookup.consumer().poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                let (partition, offset) = (message.partition(), message.offset());
                if self.wanted(partition, offset) {
                    let _ = self.sender.blocking_send(Ok(owned(&message)));
                }
                drop(message);
                self.progress = Instant::now();
                self.reached(partition, offset + 1);
            }
            // The end of a partition may be a marker or a gap, after which no record comes.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.progress = Instant::now();
                self.reached(partition, i64::MAX);
            }
            Some(Err(error)) => self.judge(&error)?,
        }
        if self.ends.is_some() && self.progress.elapsed() > PATIENCE {
            return Err(self.lookup.unreachable(&KafkaError::NoMessageReceived));
        }
        Ok(())
    }

    fn wanted(&self, partition: i32, offset: i64) -> bool {
        let Some(ends) = &self.ends else {
            return true;
        };
        ends.get(&partition).is_some_and(|end| offset < *end)
    }

    /// The partition was read up to `position`.
    fn reached(&mut self, partition: i32, position: i64) {
        let Some(ends) = &mut self.ends else {
            return;
        };
        if ends.get(&partition).is_none_or(|end| position < *end) {
            return;
        }
        ends.remove(&partition);
        // What is written from now on is not for us, and there may be much of it.
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        if let Err(error) = self.lookup.consumer().pause(&list) {
            tracing::debug!(topic = self.topic, partition, %error, "not paused");
        }
    }

    /// librdkafka retries what may pass.
    fn judge(&self, error: &KafkaError) -> Result<(), Error> {
        match error {
            KafkaError::MessageConsumption(
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic,
            ) => Err(Error::NoTopic { topic: self.topic.clone() }),
            KafkaError::MessageConsumption(code)
                // The group is only a name here; not being allowed to use it changes nothing.
                if is_transport(*code) || *code == RDKafkaErrorCode::GroupAuthorizationFailed =>
            {
                tracing::debug!(topic = self.topic, %error, "reading goes on when it can");
                Ok(())
            }
            _ => {
                let topic = Resource::Topic(self.topic.clone());
                Err((self.lookup.denied(error, Operation::Read, topic))
                    .unwrap_or_else(|| Error::failed(format!("topic {}", self.topic), "reading", error)))
            }
        }
    }
}

fn owned(message: &BorrowedMessage<'_>) -> Record {
    Record {
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(Into::into),
        value: message.payload().map(Into::into),
        headers: headers::of(message),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::*;
    use crate::config::Topics;
    use crate::kafka::client;
    use crate::kafka::embedded::Embedded;

    const TOPIC: &str = "agent.results";

    fn broker() -> (Embedded, Kafka) {
        let broker = Embedded::start(&Topics::default(), 3).unwrap();
        let mut kafka = Kafka { brokers: broker.bootstrap_servers().into(), ..Kafka::default() };
        kafka.properties.insert("fetch.wait.max.ms".into(), "10".into());
        (broker, kafka)
    }

    fn write(kafka: &Kafka, partition: i32, values: &[&str]) {
        let producer: BaseProducer = client::producer(kafka).create().unwrap();
        for value in values {
            let record = BaseRecord::<str, str>::to(TOPIC).partition(partition).payload(value);
            producer.send(record).unwrap();
        }
        producer.flush(Duration::from_secs(5)).unwrap();
    }

    fn scope(start: Start, stop: Stop) -> Scope {
        Scope { partition: None, start, stop, isolation: Isolation::ReadCommitted }
    }

    async fn rest(reader: &mut Reader) -> Vec<(i32, i64, String)> {
        let mut all = Vec::new();
        while let Some(record) = reader.next().await {
            let record = record.unwrap();
            let value = String::from_utf8(record.value.unwrap()).unwrap();
            all.push((record.partition, record.offset, value));
        }
        all.sort();
        all
    }

    #[tokio::test]
    async fn a_topic_is_read_to_where_it_ended_at_the_start() {
        let (_broker, kafka) = broker();
        write(&kafka, 0, &["a", "b"]);
        write(&kafka, 2, &["c"]);
        let begin = Instant::now();
        let mut reader = Reader::open(&kafka, TOPIC, scope(Start::Beginning, Stop::AtEnd)).await.unwrap();
        write(&kafka, 2, &["too late"]);
        let expected = vec![(0, 0, "a".into()), (0, 1, "b".into()), (2, 0, "c".into())];
        assert_eq!(rest(&mut reader).await, expected);
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());

        let one = Scope { partition: Some(0), ..scope(Start::Offset(1), Stop::AtEnd) };
        let mut reader = Reader::open(&kafka, TOPIC, one).await.unwrap();
        assert_eq!(rest(&mut reader).await, vec![(0, 1, "b".into())]);
        for start in [Start::End, Start::Offset(1_000)] {
            let mut reader = Reader::open(&kafka, TOPIC, scope(start, Stop::AtEnd)).await.unwrap();
            assert_eq!(rest(&mut reader).await, vec![]);
        }
    }

    #[tokio::test]
    async fn a_reader_at_the_end_misses_nothing_that_comes_after() {
        let (_broker, kafka) = broker();
        write(&kafka, 1, &["before"]);
        let mut reader = Reader::open(&kafka, TOPIC, scope(Start::End, Stop::Never)).await.unwrap();
        write(&kafka, 1, &["after"]);
        write(&kafka, 0, &["elsewhere"]);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let record = reader.next().await.unwrap().unwrap();
            seen.push((record.partition, record.offset));
        }
        seen.sort_unstable();
        assert_eq!(seen, vec![(0, 0), (1, 1)]);
    }

    #[tokio::test]
    async fn what_is_not_there_is_said_so() {
        let (_broker, kafka) = broker();
        let all = scope(Start::Beginning, Stop::AtEnd);
        let missing = Reader::open(&kafka, "missing", all).await.err();
        assert_eq!(missing, Some(Error::NoTopic { topic: "missing".into() }));
        let seventh = Scope { partition: Some(7), ..all };
        let missing = Reader::open(&kafka, TOPIC, seventh).await.err();
        let expected = Error::NoPartition { topic: TOPIC.into(), partition: 7, count: 3 };
        assert_eq!(missing, Some(expected));
    }
}
