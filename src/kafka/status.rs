//! Status out: handed over and forgotten. It waits for nothing, and what does not get through is counted.

use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer,
};
use std::time::Duration;

use super::client;
use crate::config::Kafka;
use crate::metrics::metrics;

/// A producer that promises nothing, so that status never stands in the way of what must be on the log.
pub(crate) struct StatusProducer {
    inner: ThreadedProducer<Context>,
    topic: String,
}

struct Context;

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(client = "status", %error, reason, "kafka client error");
    }
}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            tracing::debug!(%error, "a status was lost");
            metrics().status_dropped.inc();
        }
    }
}

impl StatusProducer {
    /// Connects in the background.
    pub(crate) fn new(kafka: &Kafka, topic: &str) -> Result<Self, KafkaError> {
        let inner = client::status_producer(kafka).create_with_context(Context)?;
        Ok(Self { inner, topic: topic.into() })
    }

    /// Hands a record over; it is dropped where too many wait already. Never blocks.
    pub(crate) fn send(&self, key: &str, value: &[u8]) {
        let record = BaseRecord::to(&self.topic).key(key).payload(value);
        if self.inner.send(record).is_err() {
            metrics().status_dropped.inc();
        }
    }

    /// Waits until nothing is on its way any longer. Blocks.
    pub(crate) fn flush(&self, timeout: Duration) {
        let _ = self.inner.flush(timeout);
    }
}
