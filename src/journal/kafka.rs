//! The log that is the events topic.

use async_trait::async_trait;

use super::{Error, Log, Receipt};
use crate::kafka::producer::{self, Outgoing, Producer};
use crate::kafka::scan::Scanner;

/// Room for the framing of a record and a batch beside key and value, in bytes.
const FRAMING: usize = 1024;

/// The events topic.
pub(crate) struct KafkaLog {
    producer: Producer,
    scanner: Scanner,
    topic: String,
    max_record_bytes: usize,
}

impl KafkaLog {
    /// Writes through the step producer and reads through the scanner; `max_message_bytes` is the client's
    /// `message.max.bytes`.
    pub(crate) fn new(producer: Producer, scanner: Scanner, topic: &str, max_message_bytes: usize) -> Self {
        Self {
            producer,
            scanner,
            topic: topic.into(),
            max_record_bytes: max_message_bytes.saturating_sub(FRAMING),
        }
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

    async fn scan(
        &self,
        partition: i32,
        from: Option<i64>,
        to: i64,
        visit: &mut (dyn for<'r> FnMut(i64, &'r [u8]) + Send),
    ) -> Result<(), Error> {
        let mut records = self.scanner.scan(&self.topic, partition, from, to);
        while let Some(record) = records.recv().await {
            let (offset, value) = record.map_err(Error::Log)?;
            visit(offset, &value);
        }
        Ok(())
    }

    fn max_record_bytes(&self) -> usize {
        self.max_record_bytes
    }
}
