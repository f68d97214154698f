//! The log that is the events topic.

use async_trait::async_trait;

use super::{Entries, Entry, Error, Log, Receipt};
use crate::kafka::producer::{self, Outgoing, Producer};
use crate::kafka::scan::Scanner;
use crate::kafka::tail::{Tail, Tailed, Tails};

/// Room for the framing of a record and a batch beside key and value, in bytes.
const FRAMING: usize = 1024;

/// The events topic.
pub(crate) struct KafkaLog {
    producer: Producer,
    scanner: Scanner,
    tails: Tails,
    topic: String,
    max_record_bytes: usize,
}

impl KafkaLog {
    /// Writes through the step producer; `max_message_bytes` is its `message.max.bytes`.
    pub(crate) fn new(
        producer: Producer,
        scanner: Scanner,
        tails: Tails,
        topic: &str,
        max_message_bytes: usize,
    ) -> Self {
        let max_record_bytes = max_message_bytes.saturating_sub(FRAMING);
        Self { producer, scanner, tails, topic: topic.into(), max_record_bytes }
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
            topic: &self.topic,
            partition: Some(partition),
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        let receipt = self.producer.send(record).await?;
        Ok(Box::pin(async move { Ok(receipt.wait().await?.offset) }))
    }

    async fn begin(&self, partition: i32) -> Result<i64, Error> {
        self.scanner.begin(&self.topic, partition).await.map_err(Error::Log)
    }

    fn scan(&self, partition: i32, from: i64, to: i64) -> Box<dyn Entries> {
        Box::new(self.scanner.scan(&self.topic, partition, from, to))
    }

    fn whole(&self, partition: i32) -> Box<dyn Entries> {
        Box::new(self.scanner.whole(&self.topic, partition))
    }

    fn tail(&self, partition: i32, from: i64) -> Box<dyn Entries> {
        Box::new(self.tails.open(partition, Some(from)))
    }

    fn max_record_bytes(&self) -> usize {
        self.max_record_bytes
    }

    fn fatal(&self) -> Option<String> {
        self.producer.fatal()
    }
}

/// What a scan and a tail bring is the same.
#[async_trait]
impl Entries for Tail {
    async fn next(&mut self) -> Option<Result<Entry, Error>> {
        let entry = |Tailed { offset, timestamp, key, value }| Entry { offset, timestamp, key, value };
        Some(self.recv().await?.map(entry).map_err(Error::Log))
    }
}
