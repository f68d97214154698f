//! Records out, each with its own acknowledgement.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header as Borrowed, Message, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer,
};
use rdkafka::util::IntoOpaque;
use rdkafka::{ClientConfig, Statistics};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SetOnce};

use super::access::{Denied, Operation, Resource, is_denial};
use super::watchdog::watch_call;
use super::{Header, stats};
use crate::metrics::metrics;

/// How many records may wait for their acknowledgement; below librdkafka's own bound, so that a full
/// queue is waited for here, in order, and not polled for.
const WINDOW: usize = 50_000;

/// Why a record was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Error {
    /// The record is larger than the client or the topic takes.
    #[error(
        "a record of {size} bytes is larger than topic {topic} takes (message.max.bytes, max.message.bytes)"
    )]
    TooLarge {
        /// Where it was to go.
        topic: String,
        /// Key and value, in bytes.
        size: usize,
    },
    /// The brokers refuse: somebody has to grant it first.
    #[error("{0}")]
    Denied(Denied),
    /// Anything else, after librdkafka's own retries.
    #[error("topic {topic}: {source}")]
    Failed {
        /// Where it was to go.
        topic: String,
        /// What librdkafka says.
        source: KafkaError,
    },
    /// The producer is gone.
    #[error("the producer of {of} was closed before a record was acknowledged")]
    Closed {
        /// What it sends.
        of: &'static str,
    },
}

impl Error {
    /// Whether no later try can go better: somebody has to mend something first.
    pub(crate) fn is_lasting(&self) -> bool {
        use RDKafkaErrorCode as Code;
        match self {
            Self::TooLarge { .. } | Self::Denied(_) => true,
            Self::Failed { source, .. } => source.rdkafka_error_code() == Some(Code::InvalidTopic),
            Self::Closed { .. } => false,
        }
    }
}

/// A record to send.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outgoing<'a> {
    pub topic: &'a str,
    /// By the key's hash where there is none.
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header],
}

/// Where a record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub partition: i32,
    pub offset: i64,
}

/// The acknowledgement of a record that is on its way, in the order it was sent. Cheap to clone: several may wait for it.
#[derive(Debug, Clone)]
pub(crate) struct Receipt(Arc<SetOnce<Result<Written, Error>>>);

impl Receipt {
    /// Waits until the record is acknowledged by all replicas in sync. Cancel safe.
    pub(crate) async fn wait(&self) -> Result<Written, Error> {
        self.0.wait().await.clone()
    }

    /// The same, if that is known now.
    pub(crate) fn now(&self) -> Option<&Result<Written, Error>> {
        self.0.get()
    }
}

/// An idempotent producer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Producer {
    inner: ThreadedProducer<Context>,
    window: Arc<Semaphore>,
}

struct Context {
    /// What the producer sends, for metrics and logs.
    name: &'static str,
    config: ClientConfig,
    /// Why the producer was refused an id: what waits for it is dropped, and does not say why.
    refusal: OnceLock<RDKafkaErrorCode>,
}

impl Context {
    fn classify(&self, error: KafkaError, topic: &str, size: usize) -> Error {
        use RDKafkaErrorCode as Code;
        let dropped = matches!(error.rdkafka_error_code(), Some(Code::PurgeQueue | Code::Fatal));
        match self.refusal.get().filter(|_| dropped) {
            Some(code) => classify(&self.config, KafkaError::Global(*code), topic, size),
            None => classify(&self.config, error, topic, size),
        }
    }
}

/// What goes with a record until it is acknowledged.
struct Pending {
    /// What its producer sends.
    of: &'static str,
    sent: Instant,
    delivered: Arc<SetOnce<Result<Written, Error>>>,
    _room: OwnedSemaphorePermit,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Unless it was delivered.
        let _ = self.delivered.set(Err(Error::Closed { of: self.of }));
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(client = self.name, %error, reason, "kafka client error");
        if let Some(code) = error.rdkafka_error_code().filter(|code| is_denial(*code)) {
            let _ = self.refusal.set(code);
        }
    }

    fn stats(&self, stats: Statistics) {
        stats::observe(self.name, &stats);
    }
}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = Box<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Box<Pending>) {
        let outcome = match result {
            Ok(message) => Ok(Written { partition: message.partition(), offset: message.offset() }),
            Err((error, message)) => Err(self.classify(error.clone(), message.topic(), size(message))),
        };
        metrics()
            .append_duration
            .with_label_values(&[self.name])
            .observe(pending.sent.elapsed().as_secs_f64());
        let _ = pending.delivered.set(outcome);
    }
}

pub(super) fn size(message: &BorrowedMessage<'_>) -> usize {
    message.key_len() + message.payload_len()
}

pub(super) fn classify(config: &ClientConfig, error: KafkaError, topic: &str, size: usize) -> Error {
    let topic = topic.to_owned();
    let code = error.rdkafka_error_code();
    if let Some(denied) = Denied::of(config, code, Operation::Write, Resource::Topic(topic.clone())) {
        return Error::Denied(denied);
    }
    match code {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => Error::TooLarge { topic, size },
        _ => Error::Failed { topic, source: error },
    }
}

impl Producer {
    /// Connects in the background. `name` says what it sends: in metrics and logs.
    pub(crate) fn new(config: &ClientConfig, name: &'static str) -> Result<Self, KafkaError> {
        let context = Context { name, config: config.clone(), refusal: OnceLock::new() };
        Ok(Self { inner: config.create_with_context(context)?, window: Arc::new(Semaphore::new(WINDOW)) })
    }

    /// Hands a record over. Records that one task hands over one after the other are written in that order.
    ///
    /// Cancel safety: a record is handed over or it is not; nothing else is lost.
    pub(crate) async fn send(&self, record: Outgoing<'_>) -> Result<Receipt, Error> {
        let of = self.inner.context().name;
        let room = Arc::clone(&self.window).acquire_owned().await.map_err(|_| Error::Closed { of })?;
        let delivered = Arc::new(SetOnce::new());
        let receipt = Receipt(Arc::clone(&delivered));
        let mut pending = Box::new(Pending { of, sent: Instant::now(), delivered, _room: room });
        loop {
            match self.inner.send(build(&record, pending)) {
                Ok(()) => return Ok(receipt),
                // Its bound in bytes; the window is in records.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    pending = back.delivery_opaque;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err((error, _)) => {
                    let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
                    return Err(self.inner.context().classify(error, record.topic, size));
                }
            }
        }
    }

    /// Why it can never send again, if that is so.
    pub(crate) fn fatal(&self) -> Option<String> {
        self.inner.client().fatal_error().map(|(code, why)| format!("{code}: {why}"))
    }

    /// Waits until everything that was handed over is acknowledged or has failed. Blocks.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<(), KafkaError> {
        let _watched = watch_call("a flush", timeout);
        self.inner.flush(timeout)
    }
}

/// The record as librdkafka takes it, with what comes back with its acknowledgement.
pub(super) fn build<'a, D: IntoOpaque>(record: &Outgoing<'a>, pending: D) -> BaseRecord<'a, [u8], [u8], D> {
    let mut built = BaseRecord::with_opaque_to(record.topic, pending);
    built.partition = record.partition;
    built.key = record.key;
    built.payload = record.value;
    if !record.headers.is_empty() {
        let empty = OwnedHeaders::new_with_capacity(record.headers.len());
        built.headers =
            Some(record.headers.iter().fold(empty, |headers, (key, value)| {
                headers.insert(Borrowed { key, value: value.as_deref() })
            }));
    }
    built
}
