//! Reading one partition between two offsets.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::mpsc;

use super::access;

/// A scan that hears nothing for this long has failed: the record it waits for is on the log.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a broker may take to say where a log begins.
const PATIENCE: Duration = Duration::from_secs(8);
/// How many records may wait for the visitor.
const AHEAD: usize = 4096;

/// A record of a scan.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub offset: i64,
    /// Milliseconds since 1970 UTC, where the record has a timestamp.
    pub timestamp: Option<i64>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Scanned {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        Self {
            offset: message.offset(),
            timestamp: message.timestamp().to_millis(),
            key: message.key().unwrap_or_default().to_vec(),
            value: message.payload().unwrap_or_default().to_vec(),
        }
    }
}

/// What a scan brings: records in the order of the log, or why there are no more.
pub(crate) type Scan = mpsc::Receiver<Result<Scanned, String>>;

/// Errors that matter come from a poll too; the end of a partition is none.
struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client error");
    }
}

impl ConsumerContext for Quiet {}

/// Reads partitions, each scan with a client of its own.
pub(crate) struct Scanner {
    client: ClientConfig,
}

impl Scanner {
    /// With the settings of a reader without a group.
    pub(crate) fn new(client: ClientConfig) -> Self {
        Self { client }
    }

    /// The offset where a partition's log begins.
    ///
    /// # Errors
    /// The broker did not answer.
    pub(crate) async fn begin(&self, topic: &str, partition: i32) -> Result<i64, String> {
        let (client, name) = (self.client.clone(), topic.to_owned());
        let asked = tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer<Quiet> =
                client.create_with_context(Quiet).map_err(|e| e.to_string())?;
            let bounds = consumer.fetch_watermarks(&name, partition, PATIENCE);
            bounds.map(|(low, _)| low).map_err(|e| e.to_string())
        });
        let begin = asked.await.unwrap_or_else(|e| Err(e.to_string()));
        begin.map_err(|e| format!("topic {topic}, partition {partition}: where its log begins: {e}"))
    }

    /// Every record from `from` up to and with the one at `to`, in order; or else an error, and nothing after it.
    /// Dropping the receiver ends the scan.
    pub(crate) fn scan(&self, topic: &str, partition: i32, from: i64, to: i64) -> Scan {
        self.read(topic, partition, Some(from), Some(to))
    }

    /// Every record that a partition has now, in order; or else an error, and nothing after it. Dropping the
    /// receiver ends it.
    pub(crate) fn whole(&self, topic: &str, partition: i32) -> Scan {
        self.read(topic, partition, None, None)
    }

    fn read(&self, topic: &str, partition: i32, from: Option<i64>, to: Option<i64>) -> Scan {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let (mut client, topic) = (self.client.clone(), topic.to_owned());
        if from.is_some() {
            // What was to be read is gone then, and nothing else is as good.
            client.set("auto.offset.reset", "error");
        }
        tokio::task::spawn_blocking(move || {
            if let Err(error) = run(&client, &topic, partition, from, to, &sender) {
                let error = format!("topic {topic}, partition {partition}: {error}");
                let _ = sender.blocking_send(Err(error));
            }
        });
        receiver
    }
}

fn run(
    client: &ClientConfig,
    topic: &str,
    partition: i32,
    from: Option<i64>,
    to: Option<i64>,
    sender: &mpsc::Sender<Result<Scanned, String>>,
) -> Result<(), String> {
    let consumer: BaseConsumer<Quiet> = client.create_with_context(Quiet).map_err(|e| e.to_string())?;
    let start = from.map_or(Offset::Beginning, Offset::Offset);
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, start).map_err(|e| e.to_string())?;
    consumer.assign(&list).map_err(|e| e.to_string())?;
    let mut heard = Instant::now();
    loop {
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                let offset = message.offset();
                if to.is_some_and(|to| offset > to) {
                    return Ok(());
                }
                if sender.blocking_send(Ok(Scanned::of(&message))).is_err() {
                    return Ok(());
                }
                // The reader may have taken its time.
                heard = Instant::now();
                if to == Some(offset) {
                    return Ok(());
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) if to.is_none() => return Ok(()),
            Some(Err(KafkaError::PartitionEOF(_))) => {}
            Some(Err(error)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) => {
                return Err(error.to_string());
            }
            // Said once; nothing comes until somebody grants it.
            Some(Err(error))
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed) =>
            {
                return Err(access::explain(client, topic, &error));
            }
            Some(Err(error)) if access::is_no_matter(&error) => {}
            Some(Err(error)) => tracing::warn!(topic, partition, %error, "reading the journal"),
            None if sender.is_closed() => return Ok(()),
            None => {}
        }
        if heard.elapsed() > SILENCE {
            let before = to.map_or("the end".into(), |to| format!("offset {to}"));
            return Err(format!("nothing came for {} s before {before}", SILENCE.as_secs()));
        }
    }
}
