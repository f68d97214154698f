//! The poll thread: intake of turns, rebalance, commits.
//!
//! One thread owns the consumer, polls it and does nothing slow, so a tool that runs for an hour never
//! costs the group membership. It talks to the worker in messages: [`Event`] out, [`Command`] in. Each
//! assignment of a partition has an epoch; what belongs to an old one is dropped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::mpsc as async_mpsc;

use super::commit::Commits;
use super::tracker::Tracker;
use super::{Header, headers};

/// How long a poll waits for a record; also how late a command may be noticed when nothing comes in.
const POLL: Duration = Duration::from_millis(10);
/// How many records go to the worker in one message.
const BATCH: usize = 256;
/// How often finished work is committed.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How long the last commit of a partition that is given up may take; a failed one is harmless, the
/// next owner skips what has ended.
const LAST_COMMIT: Duration = Duration::from_secs(5);
/// How long one try to fetch the committed offsets may take.
const FETCH_COMMITTED: Duration = Duration::from_secs(5);

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
    Assigned { partition: i32, epoch: u64, from: Option<i64> },
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
    /// Take no more records in.
    Stop,
    /// Commit and leave the group.
    Close,
}

/// The worker's side of the poll thread.
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    thread: std::thread::JoinHandle<()>,
}

impl Handle {
    /// Sends a command. A thread that has ended needs none.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Waits until the thread has committed and left the group; [`Command::Close`] makes it do so.
    pub(crate) async fn join(self) {
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
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
    let poller = Poller {
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
        stopped: false,
        closing: false,
    };
    let thread = std::thread::Builder::new()
        .name("turnmill-poll".into())
        .spawn(move || poller.run())
        .map_err(|e| format!("the poll thread cannot be started: {e}"))?;
    Ok((Handle { commands: to_thread, thread }, from_thread))
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

struct Partition {
    epoch: u64,
    tracker: Tracker,
    committed: i64,
    ready: bool,
    revoked: bool,
    /// Not ours any more: nothing of it may be committed.
    lost: bool,
    sizes: HashMap<i64, usize>,
}

struct Assigning {
    list: TopicPartitionList,
    next_try: Instant,
}

struct Revoking {
    list: TopicPartitionList,
    waiting: HashSet<i32>,
    lost: bool,
    commit_sent: bool,
    commit_by: Option<Instant>,
}

struct Poller {
    /// Before the consumer, which it must not outlive.
    commits: Commits,
    consumer: BaseConsumer<Context>,
    options: Options,
    events: async_mpsc::UnboundedSender<Event>,
    commands: mpsc::Receiver<Command>,
    partitions: BTreeMap<i32, Partition>,
    epoch: u64,
    bytes: usize,
    assigning: Option<Assigning>,
    revoking: Option<Revoking>,
    /// The commit that is under way: partition, epoch, offset.
    committing: Option<Vec<(i32, u64, i64)>>,
    last_commit: Instant,
    /// The bounds are reached: everything is paused.
    full: bool,
    /// The worker takes no more records.
    stopped: bool,
    closing: bool,
}

impl Poller {
    fn run(mut self) {
        while !self.closing {
            self.commands();
            self.poll();
            self.callbacks();
            self.go_on_assigning();
            self.go_on_revoking();
            self.flow();
            if self.last_commit.elapsed() >= COMMIT_EVERY {
                self.commit();
            }
        }
        self.leave();
    }

    fn tell(&self, event: Event) {
        // The worker outlives the thread but for a crash of its own; then there is nobody to tell.
        let _ = self.events.send(event);
    }

    fn commands(&mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Ready { partition, epoch }) => self.ready(partition, epoch),
                Ok(Command::Finished { partition, epoch, offset }) => {
                    self.finished(partition, epoch, offset);
                }
                Ok(Command::Drained { partition, epoch }) => self.drained(partition, epoch),
                Ok(Command::Stop) => {
                    self.stopped = true;
                    let all: Vec<i32> = self.partitions.keys().copied().collect();
                    self.pause(&all);
                }
                Ok(Command::Close) | Err(mpsc::TryRecvError::Disconnected) => {
                    self.closing = true;
                    return;
                }
                Err(mpsc::TryRecvError::Empty) => return,
            }
        }
    }

    fn current(&mut self, partition: i32, epoch: u64) -> Option<&mut Partition> {
        self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch)
    }

    fn ready(&mut self, partition: i32, epoch: u64) {
        let paused = self.full || self.stopped;
        if let Some(state) = self.current(partition, epoch)
            && !state.revoked
        {
            state.ready = true;
            if !paused {
                self.resume(&[partition]);
            }
        }
    }

    fn finished(&mut self, partition: i32, epoch: u64, offset: i64) {
        let Some(state) = self.current(partition, epoch) else {
            return;
        };
        state.tracker.finish(offset);
        let size = state.sizes.remove(&offset).unwrap_or(0);
        self.bytes = self.bytes.saturating_sub(size);
    }

    fn drained(&mut self, partition: i32, epoch: u64) {
        if self.current(partition, epoch).is_some()
            && let Some(revoking) = &mut self.revoking
        {
            revoking.waiting.remove(&partition);
        }
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

    fn poll_error(&self, error: &KafkaError) {
        match error {
            KafkaError::MessageConsumptionFatal(code) => {
                self.tell(Event::Failed(format!("the consumer met a fatal error: {code}")));
            }
            KafkaError::MessageConsumption(RDKafkaErrorCode::PollExceeded) => {
                tracing::error!("max.poll.interval.ms was exceeded; the group goes on without us");
            }
            other => tracing::warn!(topic = self.options.topic, error = %other, "consumer error"),
        }
    }

    fn callbacks(&mut self) {
        for rebalance in self.consumer.context().take() {
            match rebalance {
                Rebalance::Assign(list) => {
                    self.assigning = Some(Assigning { list, next_try: Instant::now() });
                }
                Rebalance::Revoke(list) => self.revoke(list),
            }
        }
        while let Some(result) = self.commits.answer() {
            self.committed(result);
        }
    }

    /// The watermark of each partition comes from one fetch; a failed fetch is tried again, never taken as
    /// "nothing committed".
    fn go_on_assigning(&mut self) {
        let Some(assigning) = self.assigning.take() else {
            return;
        };
        if assigning.next_try > Instant::now() {
            self.assigning = Some(assigning);
            return;
        }
        let fetched = match assigning.list.count() {
            0 => Ok(TopicPartitionList::new()),
            _ => self.consumer.committed_offsets(assigning.list.clone(), FETCH_COMMITTED),
        };
        let result = fetched.and_then(|committed| {
            if let Some(bad) = committed.elements().iter().find_map(|e| e.error().err()) {
                return Err(bad);
            }
            self.assign(&committed).map(|()| committed)
        });
        match result {
            Ok(committed) => self.assigned(&committed),
            Err(error) => {
                tracing::warn!(topic = self.options.topic, %error, "committed offsets cannot be read, trying again");
                let next_try = Instant::now() + Duration::from_millis(500);
                self.assigning = Some(Assigning { list: assigning.list, next_try });
            }
        }
    }

    /// Assigns exactly at the watermarks, paused until the journals are restored.
    fn assign(&self, committed: &TopicPartitionList) -> KafkaResult<()> {
        let mut exact = TopicPartitionList::new();
        for element in committed.elements() {
            // With no commit, auto.offset.reset decides where to begin.
            let start = match element.offset() {
                Offset::Offset(offset) => Offset::Offset(offset),
                _ => Offset::Stored,
            };
            exact.add_partition_offset(element.topic(), element.partition(), start)?;
        }
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_assign(&exact)?,
            _ => self.consumer.assign(&exact)?,
        }
        if exact.count() > 0 {
            self.consumer.pause(&exact)?;
        }
        Ok(())
    }

    fn assigned(&mut self, committed: &TopicPartitionList) {
        for element in committed.elements() {
            let from = match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            self.epoch += 1;
            let (partition, epoch) = (element.partition(), self.epoch);
            let state = Partition {
                epoch,
                tracker: Tracker::new(from.unwrap_or(0)),
                committed: from.unwrap_or(0),
                ready: false,
                revoked: false,
                lost: false,
                sizes: HashMap::new(),
            };
            self.partitions.insert(partition, state);
            tracing::info!(topic = self.options.topic, partition, epoch, ?from, "partition assigned");
            self.tell(Event::Assigned { partition, epoch, from });
        }
    }

    /// Leaves the partitions assigned until their turns have stopped: polling goes on meanwhile.
    fn revoke(&mut self, list: TopicPartitionList) {
        let lost = self.consumer.assignment_lost();
        // An assignment that had not begun ends here.
        self.assigning = None;
        let mut waiting = HashSet::new();
        for element in list.elements() {
            let partition = element.partition();
            if let Some(state) = self.partitions.get_mut(&partition) {
                state.revoked = true;
                state.lost = lost;
                state.ready = false;
                waiting.insert(partition);
                let epoch = state.epoch;
                tracing::info!(topic = self.options.topic, partition, epoch, lost, "partition revoked");
                self.tell(Event::Revoked { partition, epoch });
            }
        }
        let gone: Vec<i32> = waiting.iter().copied().collect();
        self.pause(&gone);
        self.revoking = Some(Revoking { list, waiting, lost, commit_sent: false, commit_by: None });
    }

    fn go_on_revoking(&mut self) {
        let (give_up, last_commit) = match &mut self.revoking {
            Some(revoking) if revoking.waiting.is_empty() => {
                let by = *revoking.commit_by.get_or_insert_with(|| Instant::now() + LAST_COMMIT);
                let give_up = revoking.lost || Instant::now() >= by;
                let first = self.committing.is_none() && !revoking.commit_sent;
                revoking.commit_sent |= first;
                (give_up, first)
            }
            _ => return,
        };
        if last_commit && !give_up {
            self.commit();
        }
        if give_up || self.committing.is_none() {
            self.unassign();
        }
    }

    fn unassign(&mut self) {
        let Some(revoking) = self.revoking.take() else {
            return;
        };
        let done = match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_unassign(&revoking.list),
            _ => self.consumer.unassign(),
        };
        if let Err(error) = done {
            tracing::warn!(topic = self.options.topic, %error, "partitions cannot be given back");
        }
        for element in revoking.list.elements() {
            if let Some(state) = self.partitions.remove(&element.partition()) {
                let bytes: usize = state.sizes.values().sum();
                self.bytes = self.bytes.saturating_sub(bytes);
            }
        }
    }

    /// One commit is under way at a time, with explicit offsets; finished work that comes later waits for
    /// the next.
    fn commit(&mut self) {
        if self.committing.is_some() {
            return;
        }
        self.last_commit = Instant::now();
        let offsets: Vec<(i32, u64, i64)> = (self.partitions.iter())
            .filter(|(_, state)| !state.lost && state.tracker.watermark() != state.committed)
            .map(|(partition, state)| (*partition, state.epoch, state.tracker.watermark()))
            .collect();
        if offsets.is_empty() {
            return;
        }
        let list = offsets.iter().map(|(partition, _, offset)| (*partition, *offset));
        match self.commits.request(self.consumer.client(), &self.options.topic, list) {
            Ok(()) => self.committing = Some(offsets),
            Err(error) => tracing::warn!(%error, "commit failed, trying again"),
        }
    }

    fn committed(&mut self, result: Result<(), RDKafkaErrorCode>) {
        let Some(offsets) = self.committing.take() else {
            return;
        };
        if let Err(error) = result {
            tracing::warn!(%error, "commit failed, trying again");
            return;
        }
        for (partition, epoch, offset) in offsets {
            if let Some(state) = self.current(partition, epoch) {
                state.committed = offset;
            }
        }
    }

    /// Pauses everything at the bounds and resumes at three quarters of them, so that it does not flutter.
    fn flow(&mut self) {
        let records: usize = self.partitions.values().map(|p| p.tracker.unfinished()).sum();
        let Options { max_records, max_bytes, .. } = self.options;
        let over = records >= max_records || self.bytes >= max_bytes;
        let under = records <= max_records / 4 * 3 && self.bytes <= max_bytes / 4 * 3;
        let ready: Vec<i32> = self.partitions.iter().filter(|(_, p)| p.ready).map(|(n, _)| *n).collect();
        if !self.full && over {
            self.full = true;
            tracing::debug!(records, bytes = self.bytes, "intake paused");
            self.pause(&ready);
        } else if self.full && under {
            self.full = false;
            tracing::debug!(records, bytes = self.bytes, "intake resumed");
            if !self.stopped {
                self.resume(&ready);
            }
        }
    }

    fn list(&self, partitions: &[i32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&self.options.topic, *partition);
        }
        list
    }

    fn pause(&self, partitions: &[i32]) {
        if !partitions.is_empty()
            && let Err(error) = self.consumer.pause(&self.list(partitions))
        {
            tracing::warn!(%error, ?partitions, "partitions cannot be paused");
        }
    }

    fn resume(&self, partitions: &[i32]) {
        if !partitions.is_empty()
            && let Err(error) = self.consumer.resume(&self.list(partitions))
        {
            tracing::warn!(%error, ?partitions, "partitions cannot be resumed");
        }
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
        self.consumer.context().closing.store(true, Ordering::Relaxed);
        // Its queue first: it must not outlive the client.
        drop(self.commits);
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
