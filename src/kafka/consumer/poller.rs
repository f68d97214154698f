//! The loop of the poll thread: commands, records, pauses.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::sync::mpsc as async_mpsc;

use super::assignment::{Assigning, Restart, Revoking};
use super::commits::{COMMIT_EVERY, Committing, LAST_COMMIT};
use super::{Command, Context, Event, Options, Record};
use crate::kafka::access;
use crate::kafka::commit::Commits;
use crate::kafka::headers;
use crate::kafka::tracker::Tracker;
use crate::kafka::watchdog::watch_call;
use crate::metrics::metrics;

/// How long a poll waits for a record; also how late a command may be noticed when nothing comes in.
const POLL: Duration = Duration::from_millis(10);
/// How often the gauges of the partitions are set.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How many records go to the worker in one message.
const BATCH: usize = 256;

/// A partition that is assigned.
pub(super) struct Partition {
    pub epoch: u64,
    pub tracker: Tracker,
    /// What is committed, offset and metadata.
    pub committed: (i64, String),
    /// When that was, since the journal was taken over.
    pub committed_at: Option<Instant>,
    pub ready: bool,
    pub revoked: bool,
    /// Not ours any more: nothing of it may be committed.
    pub lost: bool,
    /// Its journal is to be taken over again.
    pub restart: Option<Restart>,
    /// How long the last restart waited, if nothing was finished since.
    pub restarts: Option<Duration>,
    /// Events behind the recovery point.
    pub events: i64,
    sizes: HashMap<i64, usize>,
    paused: bool,
}

impl Partition {
    /// Assigned, paused, not ready.
    pub(super) fn new(epoch: u64, from: Option<i64>, metadata: String) -> Self {
        Self {
            epoch,
            tracker: Tracker::new(from.unwrap_or(0)),
            committed: (from.unwrap_or(0), metadata),
            committed_at: None,
            ready: false,
            revoked: false,
            lost: false,
            restart: None,
            restarts: None,
            events: 0,
            sizes: HashMap::new(),
            paused: true,
        }
    }

    /// The bytes that are dispatched and not finished.
    pub(super) fn bytes(&self) -> usize {
        self.sizes.values().sum()
    }
}

/// The state of the poll thread.
pub(super) struct Poller {
    /// Before the consumer, which it must not outlive.
    pub commits: Commits,
    pub consumer: BaseConsumer<Context>,
    pub options: Options,
    events: async_mpsc::UnboundedSender<Event>,
    commands: mpsc::Receiver<Command>,
    pub partitions: BTreeMap<i32, Partition>,
    pub epoch: u64,
    pub bytes: usize,
    pub assigning: Option<Assigning>,
    pub revoking: Option<Revoking>,
    pub committing: Option<Committing>,
    pub last_commit: Instant,
    /// The bounds over all partitions are reached.
    full: bool,
    measured: Instant,
    /// The worker takes no more records.
    stopped: bool,
    pub closing: bool,
}

impl Poller {
    pub(super) fn new(
        consumer: BaseConsumer<Context>,
        options: Options,
        events: async_mpsc::UnboundedSender<Event>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self {
            commits: Commits::new(consumer.client()),
            consumer,
            options,
            events,
            commands,
            partitions: BTreeMap::new(),
            epoch: 0,
            bytes: 0,
            assigning: None,
            revoking: None,
            committing: None,
            last_commit: Instant::now(),
            full: false,
            measured: Instant::now(),
            stopped: false,
            closing: false,
        }
    }

    /// Polls until it is told to close, then commits and leaves the group.
    pub(super) fn run(mut self) {
        while !self.closing {
            self.options.health.polled();
            self.commands();
            self.poll();
            self.callbacks();
            self.go_on_assigning();
            self.go_on_revoking();
            self.flow();
            self.measure();
            if self.last_commit.elapsed() >= COMMIT_EVERY || self.restart_is_due() {
                self.commit();
            }
        }
        self.leave();
    }

    pub(super) fn tell(&self, event: Event) {
        // The worker outlives the thread but for a crash of its own; then there is nobody to tell.
        let _ = self.events.send(event);
    }

    fn commands(&mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Ready { partition, epoch }) => {
                    if let Some(state) = self.current(partition, epoch) {
                        state.ready = true;
                        self.options.health.settled(partition);
                    }
                }
                Ok(Command::Finished { partition, epoch, offset }) => {
                    self.finished(partition, epoch, offset);
                }
                Ok(Command::Drained { partition, epoch }) => self.drained(partition, epoch),
                Ok(Command::Restart { partition, epoch }) => self.restart(partition, epoch),
                Ok(Command::Stop) => self.stopped = true,
                Ok(Command::Close) | Err(mpsc::TryRecvError::Disconnected) => {
                    self.closing = true;
                    return;
                }
                Err(mpsc::TryRecvError::Empty) => return,
            }
        }
    }

    /// The partition, if this is still its epoch.
    pub(super) fn current(&mut self, partition: i32, epoch: u64) -> Option<&mut Partition> {
        self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch)
    }

    fn finished(&mut self, partition: i32, epoch: u64, offset: i64) {
        let Some(state) = self.current(partition, epoch) else {
            return;
        };
        state.tracker.finish(offset);
        state.restarts = None;
        let size = state.sizes.remove(&offset).unwrap_or(0);
        self.bytes = self.bytes.saturating_sub(size);
    }

    fn poll(&mut self) {
        let mut batch = Vec::new();
        let mut wait = POLL;
        while batch.len() < BATCH {
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    let taken = self.partitions.get_mut(&message.partition()).and_then(|state| {
                        let fits = state.ready && !state.revoked && !self.stopped;
                        (fits && state.tracker.dispatch(message.offset())).then(|| {
                            let record = owned(&message, state.epoch);
                            state.sizes.insert(record.offset, record.size());
                            self.bytes += record.size();
                            record
                        })
                    });
                    batch.extend(taken);
                }
                Some(Err(error)) => self.poll_error(&error),
            }
            wait = Duration::ZERO;
        }
        if !batch.is_empty() {
            self.tell(Event::Records(batch));
        }
    }

    /// Tells how far each partition is, every second.
    fn measure(&mut self) {
        if self.measured.elapsed() < MEASURE_EVERY {
            return;
        }
        self.measured = Instant::now();
        for (partition, state) in &self.partitions {
            let set = |gauges: &prometheus::IntGaugeVec, value: i64| {
                gauges.with_label_values(&[&partition.to_string()]).set(value);
            };
            set(&metrics().span, i64::try_from(state.tracker.span()).unwrap_or(i64::MAX));
            set(&metrics().events_behind, state.events);
            self.options.watermarks.set(*partition, state.tracker.watermark());
        }
    }

    fn poll_error(&self, error: &KafkaError) {
        match error {
            KafkaError::MessageConsumptionFatal(_) => {
                self.tell(Event::Failed(format!("the consumer met a fatal error: {}", self.explain(error))));
            }
            KafkaError::MessageConsumption(RDKafkaErrorCode::PollExceeded) => {
                tracing::error!("max.poll.interval.ms was exceeded; the group goes on without us");
            }
            other => {
                tracing::warn!(topic = self.options.topic, error = self.explain(other), "consumer error");
            }
        }
    }

    pub(super) fn explain(&self, error: &KafkaError) -> String {
        access::explain(&self.options.client, &self.options.topic, error)
    }

    /// Pauses what must not come and resumes what may. The bounds over all partitions let go at three quarters,
    /// so that they do not flutter.
    fn flow(&mut self) {
        let records: usize = self.partitions.values().map(|p| p.tracker.unfinished()).sum();
        let Options { max_records, max_bytes, max_span, max_events, .. } = self.options;
        if records >= max_records || self.bytes >= max_bytes {
            self.full = true;
        } else if records <= max_records / 4 * 3 && self.bytes <= max_bytes / 4 * 3 {
            self.full = false;
        }
        let held = self.full || self.stopped;
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        for (partition, state) in &mut self.partitions {
            let long = state.tracker.span() >= max_span || state.events >= max_events;
            let wanted = state.ready && !state.revoked && !held && !long;
            if wanted == state.paused {
                state.paused = !wanted;
                if wanted { resume.push(*partition) } else { pause.push(*partition) }
            }
        }
        let done =
            [(&pause, true), (&resume, false)].map(|(partitions, paused)| match partitions.is_empty() {
                true => Ok(()),
                false if paused => self.consumer.pause(&self.list(partitions)),
                false => self.consumer.resume(&self.list(partitions)),
            });
        for error in done.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, ?pause, ?resume, "partitions cannot be paused or resumed");
        }
    }

    pub(super) fn list(&self, partitions: &[i32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&self.options.topic, *partition);
        }
        list
    }

    fn leave(mut self) {
        self.stopped = true;
        let by = Instant::now() + LAST_COMMIT;
        // One that is under way first, then one with everything that has finished since.
        for _ in 0..2 {
            self.commit();
            while self.committing.is_some() && Instant::now() < by {
                self.poll();
                self.callbacks();
            }
        }
        self.answer_rebalance();
        self.consumer.context().closing.store(true, Ordering::Relaxed);
        // Its queue first: it must not outlive the client.
        drop(self.commits);
        // Without a coordinator, librdkafka holds a last commit back for as long as a session may be silent.
        let _watched = watch_call("closing the consumer", Duration::from_secs(60));
        drop(self.consumer);
    }
}

fn owned(message: &BorrowedMessage<'_>, epoch: u64) -> Record {
    Record {
        partition: message.partition(),
        epoch,
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers::of(message),
    }
}
