//! What tools tell of themselves, and what models say while they say it, on its way to the status topic.

use std::sync::OnceLock;
use std::time::Duration;

use super::driver::now_ms;
use crate::config::{Config, Kafka};
use crate::kafka::client;
use crate::kafka::status::StatusProducer;
use crate::metrics::metrics;
use crate::record::{StatusType, StatusUpdate};
use crate::tool::{StatusSink, Told};

/// Status to its topic. The client is made for the first one: most workers have none.
pub(super) struct StatusOut {
    kafka: Kafka,
    topic: String,
    producer: OnceLock<Option<StatusProducer>>,
}

impl StatusOut {
    /// Of a worker with these settings.
    pub(super) fn new(config: &Config) -> Self {
        Self { kafka: config.kafka.clone(), topic: config.topics.status.clone(), producer: OnceLock::new() }
    }

    /// Gives the last ones a little time. Blocks.
    pub(super) fn flush(&self, timeout: Duration) {
        if let Some(Some(producer)) = self.producer.get() {
            producer.flush(timeout);
        }
    }

    fn producer(&self) -> Option<&StatusProducer> {
        let make = || {
            StatusProducer::new(&self.kafka, &self.topic)
                .inspect_err(|error| tracing::warn!(error = client::explain(error), "tools have no status"))
                .ok()
        };
        self.producer.get_or_init(make).as_ref()
    }
}

impl StatusSink for StatusOut {
    fn emit(&self, told: Told<'_>) {
        let update = StatusUpdate {
            kind: if told.tool.is_some() { StatusType::ToolStatus } else { StatusType::ModelText },
            session_id: told.session.clone(),
            turn_id: told.turn.clone(),
            agent: told.agent.into(),
            position: told.position.clone(),
            idempotency_key: told.key.clone(),
            tool: told.tool.map(Into::into),
            attempt: told.attempt,
            text: StatusUpdate::cut(told.text).into(),
            at_ms: now_ms(),
        };
        match (self.producer(), serde_json::to_vec(&update)) {
            (Some(producer), Ok(value)) => producer.send(update.session_id.as_str(), &value),
            _ => metrics().status_dropped.inc(),
        }
    }
}
