//! The poll thread: intake of turns, rebalance, commits.
//!
//! One thread owns the consumer, polls it and does nothing slow, so a tool that runs for an hour never
//! costs the group membership. It talks to the worker in messages: [`Event`] out, [`Command`] in. Each
//! assignment of a partition has an epoch; what belongs to an old one is dropped.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the messages, and how the thread is started |
//! | `poller` | the loop: commands, records, pauses |
//! | `assignment` | partitions that come, go, and are taken over again |
//! | `commits` | what is finished, committed |

mod assignment;
mod commits;
mod poller;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, Statistics};
use tokio::sync::mpsc as async_mpsc;

use super::lag::Watermarks;
use super::{Header, stats};
use crate::health::Health;
use poller::Poller;

/// Gives what to commit beside a partition's watermark: partition, epoch, watermark. None while the partition's
/// journal is not restored; nothing is committed then.
pub(crate) type Recovery = Arc<dyn Fn(i32, u64, i64) -> Option<RecoveryPoint> + Send + Sync>;

/// Where the next restore begins.
#[derive(Debug, Clone)]
pub(crate) struct RecoveryPoint {
    /// The commit's metadata.
    pub metadata: String,
    /// How many offsets of the events lie between it and where they are read: what a restore would read.
    pub events: i64,
}

/// How the intake is set up.
pub(crate) struct Options {
    /// The consumer's settings.
    pub client: ClientConfig,
    /// The turns topic.
    pub topic: String,
    /// Intake pauses while this many records are dispatched and not finished.
    pub max_records: usize,
    /// Intake pauses while their keys and values are this many bytes.
    pub max_bytes: usize,
    /// A partition pauses while this many records lie between its watermark and where it reads, or this many
    /// events behind the recovery point: one slow turn must not make the next restore long.
    pub max_span: usize,
    pub max_events: i64,
    /// What is committed beside a watermark.
    pub recovery: Recovery,
    /// Hears of each round, and of partitions that come and go.
    pub health: Health,
    /// Hears how far each partition is.
    pub watermarks: Watermarks,
}

/// One record of the turns topic.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub partition: i32,
    pub epoch: u64,
    pub offset: i64,
    /// Milliseconds since 1970 UTC, where the record has a timestamp.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
}

impl Record {
    fn size(&self) -> usize {
        self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// What the poll thread tells the worker.
#[derive(Debug)]
pub(crate) enum Event {
    /// A partition is ours, from the watermark `from`, or from where the log begins. Its records come after
    /// [`Command::Ready`].
    Assigned {
        partition: i32,
        epoch: u64,
        from: Option<i64>,
        /// What was committed beside the watermark.
        metadata: String,
    },
    /// Records, in the order of each partition.
    Records(Vec<Record>),
    /// The partition goes to another worker, or has gone. [`Command::Drained`] is awaited.
    Revoked { partition: i32, epoch: u64 },
    /// The consumer cannot go on.
    Failed(String),
}

/// What the worker tells the poll thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// The partition's journal is restored: its records may come.
    Ready { partition: i32, epoch: u64 },
    /// A record is finished: published and recorded as ended.
    Finished { partition: i32, epoch: u64, offset: i64 },
    /// No turn of the partition runs any more.
    Drained { partition: i32, epoch: u64 },
    /// The partition's journal is over and no turn of it runs any more: take it over again, once a commit has
    /// proven that we are still a member (design rule 11).
    Restart { partition: i32, epoch: u64 },
    /// Take no more records in.
    Stop,
    /// Commit and leave the group.
    Close,
}

/// The worker's side of the poll thread.
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Handle {
    /// Sends a command. A thread that has ended needs none.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Waits until the thread has committed and left the group; [`Command::Close`] makes it do so.
    pub(crate) async fn join(self) {
        if let Some(thread) = self.thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// A handle without a thread, and what is sent to it.
    #[cfg(test)]
    pub(crate) fn detached() -> (Self, mpsc::Receiver<Command>) {
        let (commands, sent) = mpsc::channel();
        (Self { commands, thread: None }, sent)
    }
}

/// Starts the poll thread.
///
/// # Errors
/// The consumer's settings are refused, or the thread cannot be started.
pub(crate) fn spawn(options: Options) -> Result<(Handle, async_mpsc::UnboundedReceiver<Event>), String> {
    let consumer: BaseConsumer<Context> = (options.client)
        .create_with_context(Context::default())
        .map_err(|e| format!("the consumer cannot be created: {e}"))?;
    (consumer.subscribe(&[&options.topic]))
        .map_err(|e| format!("topic {} cannot be subscribed to: {e}", options.topic))?;
    let (events, from_thread) = async_mpsc::unbounded_channel();
    let (to_thread, commands) = mpsc::channel();
    let poller = Poller::new(consumer, options, events, commands);
    let thread = std::thread::Builder::new()
        .name("turnmill-poll".into())
        .spawn(move || poller.run())
        .map_err(|e| format!("the poll thread cannot be started: {e}"))?;
    Ok((Handle { commands: to_thread, thread: Some(thread) }, from_thread))
}

/// What the callbacks leave for the poll loop. They run inside poll, on the poll thread.
#[derive(Default)]
struct Context {
    rebalances: Mutex<Vec<Rebalance>>,
    /// The consumer is being dropped: nobody is left to take a rebalance from the queue.
    closing: AtomicBool,
}

enum Rebalance {
    Assign(TopicPartitionList),
    Revoke(TopicPartitionList),
}

impl Context {
    fn take(&self) -> Vec<Rebalance> {
        std::mem::take(&mut self.rebalances.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "kafka client error");
    }

    fn stats(&self, stats: Statistics) {
        stats::observe("turns", &stats);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let assign = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Relaxed) {
            let done = match (assign, consumer.rebalance_protocol()) {
                (true, RebalanceProtocol::Cooperative) => consumer.incremental_assign(list),
                (true, _) => consumer.assign(list),
                (false, RebalanceProtocol::Cooperative) => consumer.incremental_unassign(list),
                (false, _) => consumer.unassign(),
            };
            if let Err(error) = done {
                tracing::debug!(%error, "rebalance while leaving");
            }
            return;
        }
        let rebalance = match assign {
            true => Rebalance::Assign(list.clone()),
            false => Rebalance::Revoke(list.clone()),
        };
        self.rebalances.lock().unwrap_or_else(PoisonError::into_inner).push(rebalance);
    }
}
