//! What leaves a turn: results and dead letters.

use std::sync::Arc;

use async_trait::async_trait;

use crate::config::Topics;
use crate::kafka::Header;
use crate::kafka::consumer::Record;
use crate::kafka::producer::{Error, Outgoing, Producer};
use crate::record::{TurnResult, TurnStatus, dead_letter};
use crate::turn::{Failure, Hash, code};

/// How much of a reason is kept, in characters: it may quote what it is about, and both must fit a record.
const MAX_REASON: usize = 4000;

/// The failure with as much of its text as fits any record.
pub(super) fn short(failure: &Failure) -> Failure {
    let mut short = failure.clone();
    if let Some((end, _)) = failure.message.char_indices().nth(MAX_REASON) {
        short.message.truncate(end);
        short.message.push_str(&format!(" .. ({} bytes in all)", failure.message.len()));
    }
    short
}

/// Where records go out; acknowledged when it returns.
#[async_trait]
pub(super) trait Sink: Send + Sync + 'static {
    /// Sends a record and waits for its acknowledgement.
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error>;
}

#[async_trait]
impl Sink for Producer {
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error> {
        Producer::send(self, record).await?.wait().await.map(drop)
    }
}

/// Publishes results and dead letters.
pub(super) struct Outbox {
    sink: Arc<dyn Sink>,
    results: String,
    dead_letters: String,
    turns: String,
}

impl Outbox {
    /// Publishes to the topics of these names.
    pub(super) fn new(sink: Arc<dyn Sink>, topics: &Topics) -> Self {
        Self {
            sink,
            results: topics.results.clone(),
            dead_letters: topics.dead_letters.clone(),
            turns: topics.turns.clone(),
        }
    }

    /// Publishes a turn's result and waits for the acknowledgement. A result that is too large for its topic
    /// becomes a failed one that states the size.
    ///
    /// # Errors
    /// The result is not on the topic; the worker must not go on as if it were.
    pub(super) async fn result(&self, result: &TurnResult) -> Result<(), Error> {
        match self.send_result(result).await {
            Err(Error::TooLarge { size, .. }) => {
                let mut failed = result.clone();
                failed.status = TurnStatus::Failed;
                failed.output = None;
                failed.error = Some(Failure::new(
                    code::RECORD_TOO_LARGE,
                    format!("the result of {size} bytes is larger than topic {} takes", self.results),
                ));
                self.send_result(&failed).await
            }
            other => other,
        }
    }

    async fn send_result(&self, result: &TurnResult) -> Result<(), Error> {
        let value = serde_json::to_vec(result).unwrap_or_default();
        self.sink
            .send(Outgoing {
                topic: &self.results,
                partition: None,
                key: Some(result.session_id.as_str().as_bytes()),
                value: Some(&value),
                headers: &[],
            })
            .await
    }

    /// Sends a record to the dead letters as it was received, with the reason in its headers, and waits for
    /// the acknowledgement. Where the topic does not take the value, it is left out and its hash and size say
    /// what it was; where it still does not, neither key nor headers are kept. Topic, partition and offset say
    /// where all of it still is.
    ///
    /// # Errors
    /// The record is not on the topic; the worker must stop rather than lose it.
    pub(super) async fn dead_letter(&self, record: &Record, why: &Failure) -> Result<(), Error> {
        let mut headers = record.headers.clone();
        let mut add = |name: &str, value: String| headers.push((name.into(), Some(value.into_bytes())));
        add(dead_letter::CODE, why.code.to_string());
        add(dead_letter::MESSAGE, short(why).message);
        add(dead_letter::TOPIC, self.turns.clone());
        add(dead_letter::PARTITION, record.partition.to_string());
        add(dead_letter::OFFSET, record.offset.to_string());
        if let Some(timestamp) = record.timestamp {
            add(dead_letter::TIMESTAMP, timestamp.to_string());
        }
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let sent = self.send_dead_letter(key, value, &headers).await;
        let Err(Error::TooLarge { .. }) = sent else {
            return sent;
        };
        if let Some(value) = value {
            let text = |value: String| Some(value.into_bytes());
            headers.push((dead_letter::VALUE_SHA256.into(), text(Hash::of_bytes(value).to_string())));
            headers.push((dead_letter::VALUE_SIZE.into(), text(value.len().to_string())));
        }
        let sent = self.send_dead_letter(key, None, &headers).await;
        let Err(Error::TooLarge { .. }) = sent else {
            return sent;
        };
        self.send_dead_letter(None, None, &headers.split_off(record.headers.len())).await
    }

    async fn send_dead_letter(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> Result<(), Error> {
        self.sink.send(Outgoing { topic: &self.dead_letters, partition: None, key, value, headers }).await
    }
}
