//! The log that is the events topic.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Entries, Entry, Error, Log, Pass, Receipt};
use crate::kafka::paced::Paced;
use crate::kafka::producer::{self, Outgoing, Producer};
use crate::kafka::scan::{Scan, Scanned, Scanner};
use crate::kafka::tail::Tails;

/// Room for the framing of a record and a batch beside key and value, in bytes.
const FRAMING: usize = 1024;

/// The events topic.
pub(crate) struct KafkaLog {
    shared: Arc<Shared>,
    /// What appends go through.
    producer: Producer,
}

struct Shared {
    producers: Paced,
    scanner: Scanner,
    tails: Tails,
    topic: String,
    max_record_bytes: usize,
}

impl KafkaLog {
    /// Writes through the step producers; `max_message_bytes` is its `message.max.bytes`.
    pub(crate) fn new(
        producers: Paced,
        scanner: Scanner,
        tails: Tails,
        topic: &str,
        max_message_bytes: usize,
    ) -> Self {
        let max_record_bytes = max_message_bytes.saturating_sub(FRAMING);
        let producer = producers.now().clone();
        let shared = Shared { producers, scanner, tails, topic: topic.into(), max_record_bytes };
        Self { shared: Arc::new(shared), producer }
    }
}

impl From<producer::Error> for Error {
    fn from(error: producer::Error) -> Self {
        Self::Log(error.to_string())
    }
}

#[async_trait]
impl Log for KafkaLog {
    async fn append(&self, partition: i32, key: String, value: Vec<u8>) -> Result<Receipt, Error> {
        let record = Outgoing {
            topic: &self.shared.topic,
            partition: Some(partition),
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        Ok(Receipt::Kafka(self.producer.send(record).await?))
    }

    async fn begin(&self, partition: i32) -> Result<i64, Error> {
        self.shared.scanner.begin(&self.shared.topic, partition).await.map_err(Error::Log)
    }

    fn scan(&self, partition: i32, from: i64, to: i64) -> Box<dyn Entries> {
        Box::new(self.shared.scanner.scan(&self.shared.topic, partition, from, to))
    }

    fn whole(&self, partition: i32) -> Box<dyn Entries> {
        Box::new(self.shared.scanner.whole(&self.shared.topic, partition))
    }

    async fn follow(&self, partition: i32, from: i64, pass: Pass) -> Error {
        let over = self.shared.tails.open(partition, from, pass).await;
        Error::Log(over.unwrap_or_else(|_| "the tail of the events partition has ended".into()))
    }

    fn max_record_bytes(&self) -> usize {
        self.shared.max_record_bytes
    }

    fn for_a_turn(self: Arc<Self>) -> Arc<dyn Log> {
        let shared = Arc::clone(&self.shared);
        Arc::new(Self { producer: shared.producers.now().clone(), shared })
    }

    fn fatal(&self) -> Option<String> {
        let Shared { producers, tails, .. } = &*self.shared;
        let ended = || tails.has_ended().then(|| "the thread that reads the events on has ended".to_owned());
        producers.fatal().or_else(ended)
    }
}

#[async_trait]
impl Entries for Scan {
    async fn next(&mut self) -> Option<Result<Entry, Error>> {
        let entry = |Scanned { offset, timestamp, key, value }| Entry { offset, timestamp, key, value };
        Some(self.recv().await?.map(entry).map_err(Error::Log))
    }
}
