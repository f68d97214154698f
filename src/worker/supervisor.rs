//! Partitions and drain: which turn runs when.
//!
//! One task owns all of it and takes messages; nothing here waits for a turn. A session's turns run one
//! after the other, in the order of the log; sessions run side by side up to `max_in_flight`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::driver::{self, Done, Halt, Job, Refusal, Shared, Stop, Writers};
use super::lanes::Lanes;
use crate::config::{Switches, WhenOff};
use crate::journal::{self, Journal, Log, Member, Restored, Table, TakeOver};
use crate::kafka::ClientConfig;
use crate::kafka::consumer::{Command, Event, Handle, Record, RecoveryPoint};
use crate::kafka::transactions::Transactions;
use crate::metrics::metrics;
use crate::record::{Identity, Turn, Unreadable, read_turn};
use crate::turn::{Failure, SessionId, TurnId, code};

/// The longest session id, in bytes: every event and result of the session carries it.
const MAX_SESSION: usize = 4096;

/// What came of a record whose turn it was.
enum Start {
    Runs,
    /// There is nothing to run: it has ended before, or is no longer ours.
    Nothing,
    /// Its agent is turned off.
    Waits(Box<Job>),
}

/// Why a worker ended that was not asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The consumer cannot go on.
    #[error("{0}")]
    Consumer(String),
    /// The events topic belongs to somebody else.
    #[error("refused: partition {partition}: {why}")]
    Foreign { partition: i32, why: journal::Error },
    /// A client of the brokers can never go on (rule 24).
    #[error("a client met a fatal error: {0}")]
    Client(String),
    /// Something that a turn needs failed. Nothing is lost: what was not finished comes again.
    #[error("turn {turn} of session {session} (partition {partition}, offset {offset}): {why}")]
    Turn { session: SessionId, turn: TurnId, partition: i32, offset: i64, why: String },
    /// A task of ours panicked.
    #[error("a task of the worker failed: {0}")]
    Task(#[from] JoinError),
}

impl Error {
    /// Whether the worker refuses to work at all, as things are.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Foreign { .. })
    }
}

/// How lanes and drain are bounded.
pub(super) struct Limits {
    pub max_in_flight: usize,
    pub drain_timeout: Duration,
}

/// What runs the turns of the partitions that are assigned.
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    limits: Limits,
    consumer: Handle,
    log: Arc<dyn Log>,
    member: Member,
    partitions: HashMap<i32, Partition>,
    lanes: Lanes<Box<Job>>,
    switches: watch::Receiver<Switches>,
    turns: JoinSet<Ended>,
    /// The records whose turns have ended, but for their last event.
    ending: FuturesUnordered<BoxFuture<'static, (Handled, Result<(), Halt>)>>,
    restores: JoinSet<Taken>,
    /// The tails of the journals, each until it is over.
    tails: JoinSet<(i32, u64, journal::Error)>,
    points: Arc<Points>,
    transactional: Option<Arc<dyn OpenTransactions>>,
}

/// The journals that are ours, for whoever commits: by partition, with their epochs.
#[derive(Default)]
pub(super) struct Points {
    journals: Mutex<HashMap<i32, (u64, Journal)>>,
}

impl Points {
    /// The recovery point of a partition's epoch, once it is restored.
    pub(super) fn of(&self, partition: i32, epoch: u64, watermark: i64) -> Option<RecoveryPoint> {
        let journals = self.lock();
        let (_, journal) = journals.get(&partition).filter(|(own, _)| *own == epoch)?;
        let (metadata, events) = journal.recovery_point(watermark);
        Some(RecoveryPoint { metadata, events })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, (u64, Journal)>> {
        self.journals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Partition {
    epoch: u64,
    /// The journal and what it holds, once restored.
    journal: Option<(Writers, Table)>,
    /// Events are lost of turns that were sent before, in milliseconds since 1970 UTC, until a later one comes.
    lost_before: Option<i64>,
    stop: Stop,
    assigned: std::time::Instant,
    running: usize,
    state: State,
    /// When what still runs is cancelled.
    give_up: Option<Instant>,
}

/// What becomes of a partition once none of its turns runs any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is ours.
    Ours,
    /// Its journal is over: it is taken over again.
    Over,
    /// It goes to another worker.
    Revoked,
}

impl Partition {
    /// Stops its turns: at their next step boundary, and what still runs then when its time is over.
    fn stop(&mut self, state: State, drain_timeout: Duration) {
        self.state = state;
        self.stop.boundary.cancel();
        let give_up = Instant::now() + drain_timeout;
        self.give_up = Some(self.give_up.map_or(give_up, |earlier| earlier.min(give_up)));
    }
}

/// A record that is handled, and whose turn it is.
struct Handled {
    session: SessionId,
    turn: TurnId,
    partition: i32,
    epoch: u64,
    offset: i64,
    /// Whether the session's next turn waits for it.
    holds_lane: bool,
}

type Ended = (Handled, Result<Done, Halt>);

type Taken = (i32, u64, Result<(Restored, Option<Transactions>), journal::Error>);

/// How the ends of turns are written, where they are promised exactly once.
#[async_trait]
pub(super) trait OpenTransactions: Send + Sync + 'static {
    /// Fences whoever wrote the ends of the partition's turns before.
    async fn open(&self, partition: i32) -> Result<Transactions, journal::Error>;
}

/// By transactional producers.
pub(super) struct Transactional {
    /// The settings of each.
    pub client: ClientConfig,
    /// `GROUP-TURNS_TOPIC`; the partition follows (rule 6).
    pub id: String,
}

#[async_trait]
impl OpenTransactions for Transactional {
    async fn open(&self, partition: i32) -> Result<Transactions, journal::Error> {
        let id = format!("{}-{partition}", self.id);
        Transactions::open(self.client.clone(), &id).await.map_err(journal::Error::Log)
    }
}

impl Supervisor {
    pub(super) fn new(
        shared: Arc<Shared>,
        limits: Limits,
        consumer: Handle,
        log: Arc<dyn Log>,
        member: Member,
        points: Arc<Points>,
        transactional: Option<Arc<dyn OpenTransactions>>,
    ) -> Self {
        Self {
            switches: shared.switches.changes(),
            shared,
            limits,
            consumer,
            log,
            member,
            partitions: HashMap::new(),
            lanes: Lanes::new(),
            turns: JoinSet::new(),
            ending: FuturesUnordered::new(),
            restores: JoinSet::new(),
            tails: JoinSet::new(),
            points,
            transactional,
        }
    }

    /// Works until `shutdown`, then drains: stops the intake, stops each turn at its next step boundary,
    /// waits for what runs until the drain timeout and cancels the rest. Returns the consumer, which is to
    /// commit and leave once everything is flushed.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<Event>,
        shutdown: CancellationToken,
    ) -> (Handle, Result<(), Error>) {
        let mut result = Ok(());
        loop {
            let give_up = self.partitions.values().filter_map(|p| p.give_up).min();
            // What ends first, and then what comes in.
            let step = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = self.turns.join_next() => {
                    ended.map_err(Error::from).and_then(|ended| self.ended(ended))
                }
                Some((handled, confirmed)) = self.ending.next() => self.finished(handled, confirmed),
                Some(taken) = self.restores.join_next() => match taken {
                    Ok(taken) => self.restored(taken),
                    Err(error) if error.is_cancelled() => Ok(()),
                    Err(error) => Err(error.into()),
                },
                Some(over) = self.tails.join_next() => {
                    over.map_err(Error::from).and_then(|over| self.tail_ended(over))
                }
                () = at(give_up) => {
                    self.give_up();
                    Ok(())
                }
                Ok(()) = self.switches.changed() => {
                    self.lanes.release();
                    Ok(())
                }
                event = events.recv() => match event {
                    Some(event) => self.event(event),
                    None => Err(Error::Consumer("the poll thread has ended".into())),
                },
            };
            if let Err(error) = step {
                self.shared.health.fatal(&error.to_string());
                result = Err(error);
                break;
            }
            self.dispatch();
        }
        self.drain(&mut events).await;
        (self.consumer, result)
    }

    async fn drain(&mut self, events: &mut mpsc::UnboundedReceiver<Event>) {
        self.shared.health.draining();
        tracing::info!(running = self.turns.len(), "draining");
        self.consumer.send(Command::Stop);
        self.lanes.clear();
        self.restores.abort_all();
        let give_up = Instant::now() + self.limits.drain_timeout;
        for partition in self.partitions.values_mut() {
            partition.stop.boundary.cancel();
            partition.give_up.get_or_insert(give_up);
        }
        while !(self.turns.is_empty() && self.ending.is_empty()) {
            let give_up = self.partitions.values().filter_map(|p| p.give_up).min();
            let step = tokio::select! {
                biased;
                Some(ended) = self.turns.join_next() => {
                    ended.map_err(Error::from).and_then(|ended| self.ended(ended))
                }
                Some((handled, confirmed)) = self.ending.next() => self.finished(handled, confirmed),
                // What still waits for a confirmation depends on the tails.
                Some(over) = self.tails.join_next() => {
                    over.map_err(Error::from).and_then(|over| self.tail_ended(over))
                }
                () = at(give_up) => {
                    self.give_up();
                    Ok(())
                }
                Some(event) = events.recv() => self.event_while_draining(event),
            };
            if let Err(error) = step {
                tracing::error!(%error, "while draining");
            }
        }
    }

    fn event_while_draining(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Revoked { partition, epoch } => self.revoked(partition, epoch),
            Event::Failed(error) => return Err(Error::Consumer(error)),
            Event::Assigned { .. } | Event::Records(_) => {}
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Assigned { partition, epoch, from, metadata } => {
                self.assigned(epoch, TakeOver { partition, watermark: from, metadata });
            }
            Event::Records(records) => records.into_iter().for_each(|record| self.enqueue(record)),
            Event::Revoked { partition, epoch } => self.revoked(partition, epoch),
            Event::Failed(error) => return Err(Error::Consumer(error)),
        }
        Ok(())
    }

    fn assigned(&mut self, epoch: u64, what: TakeOver) {
        let boundary = CancellationToken::new();
        let state = Partition {
            epoch,
            journal: None,
            lost_before: None,
            stop: Stop { boundary: boundary.clone(), now: CancellationToken::new() },
            assigned: std::time::Instant::now(),
            running: 0,
            state: State::Ours,
            give_up: None,
        };
        self.partitions.insert(what.partition, state);
        let (log, member) = (Arc::clone(&self.log), self.member.clone());
        let transactional = self.transactional.clone();
        let take_over = async move |what: &TakeOver| {
            // First, so that what an earlier owner left open is decided before the journal is read (rule 6).
            let transactions = match transactional {
                Some(transactional) => Some(transactional.open(what.partition).await?),
                None => None,
            };
            Ok((journal::restore(log, &member, what).await?, transactions))
        };
        self.restores.spawn(async move {
            let restored = tokio::select! {
                biased;
                restored = take_over(&what) => restored,
                () = boundary.cancelled() => Err(journal::Error::Log("the partition went away".into())),
            };
            (what.partition, epoch, restored)
        });
    }

    fn restored(&mut self, (partition, epoch, restored): Taken) -> Result<(), Error> {
        let current = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch);
        let Some(state) = current.filter(|p| p.state == State::Ours) else {
            return Ok(());
        };
        match restored {
            Ok((Restored { journal, table, events, lost_before }, transactions)) => {
                let open_turns = table.open_turns();
                let took_ms = driver::elapsed_ms(state.assigned);
                tracing::info!(partition, epoch, events, open_turns, took_ms, "partition ready");
                metrics().restore_duration.observe(state.assigned.elapsed().as_secs_f64());
                metrics().restored_events.inc_by(u64::try_from(events).unwrap_or(0));
                let writers = Writers { journal: journal.clone(), transactions };
                state.journal = Some((writers, table));
                state.lost_before = lost_before;
                self.points.lock().insert(partition, (epoch, journal.clone()));
                self.tails.spawn(async move { (partition, epoch, journal.follow().await) });
                self.consumer.send(Command::Ready { partition, epoch });
            }
            Err(why @ journal::Error::Foreign { .. }) => return Err(Error::Foreign { partition, why }),
            Err(why) => {
                // Claims go through a producer that turns may never use.
                self.check_log()?;
                self.over(partition, epoch, &why);
            }
        }
        Ok(())
    }

    /// # Errors
    /// A producer can never send again (rule 24), or nothing can be read on.
    fn check_log(&self) -> Result<(), Error> {
        let fatal = self.log.fatal().or_else(|| self.shared.outbox.fatal());
        fatal.map_or(Ok(()), |fatal| Err(Error::Client(fatal)))
    }

    /// Whether events may be lost of the record's turn. They come in order: from the first that is later on, none is.
    fn has_expired(&mut self, record: &Record) -> bool {
        let current = self.partitions.get_mut(&record.partition).filter(|p| p.epoch == record.epoch);
        let Some(state) = current.filter(|p| p.lost_before.is_some()) else {
            return false;
        };
        let older = record.timestamp.is_none_or(|sent| state.lost_before.is_some_and(|before| sent < before));
        if let (false, Some((writers, _))) = (older, &state.journal) {
            writers.journal.whole_from(record.offset);
            state.lost_before = None;
        }
        older
    }

    fn enqueue(&mut self, record: Record) {
        let expired = self.has_expired(&record);
        let Record { partition, offset, .. } = record;
        let topic = &self.shared.turns_topic;
        let read = read_turn(topic, partition, offset, record.key.as_deref(), record.value.as_deref());
        let (identity, turn) = match read {
            Ok((identity, turn)) => (identity, Ok(Box::new(turn))),
            Err(unreadable) => (unreadable.identity.clone(), Err(unreadable)),
        };
        let (identity, turn) = match identity.session.as_str().len() {
            0..=MAX_SESSION => (identity, turn),
            bytes => too_long(TurnId::of_record(topic, partition, offset), bytes, identity, turn),
        };
        let session = identity.session.clone();
        let job = Box::new(Job { record, identity, turn, expired });
        if !self.lanes.push(session.clone(), partition, job) {
            tracing::warn!(
                %session,
                partition,
                "a session came on two partitions: are all producers using the murmur2_random partitioner?"
            );
        }
    }

    /// Starts turns while there is room.
    fn dispatch(&mut self) {
        loop {
            self.shared.load.set(self.turns.len());
            if self.turns.len() >= self.limits.max_in_flight {
                return;
            }
            let Some((session, job)) = self.lanes.next() else {
                return;
            };
            match self.start(job) {
                Start::Runs => self.lanes.runs(&session),
                Start::Waits(job) => self.lanes.hold(session, job),
                Start::Nothing => self.lanes.done(session),
            }
        }
    }

    fn start(&mut self, job: Box<Job>) -> Start {
        let Record { partition, epoch, offset, .. } = job.record;
        let current = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch);
        let Some(state) = current.filter(|p| p.state == State::Ours) else {
            return Start::Nothing;
        };
        let Some((writers, table)) = &mut state.journal else {
            return Start::Nothing;
        };
        let (session, turn) = (job.identity.session.clone(), job.identity.turn.clone());
        let end = table.ended(&session, &turn);
        let reused = end.is_some_and(|end| end.input != job.identity.input);
        if table.is_dead(offset, &job.identity.input) || (end.is_some() && !reused) {
            driver::span(&job.identity, partition, offset)
                .in_scope(|| tracing::info!("turn has ended before, skipped"));
            metrics().turns_skipped.inc();
            self.consumer.send(Command::Finished { partition, epoch, offset });
            return Start::Nothing;
        }
        let agent = job.turn.as_ref().ok().map(|turn| turn.agent.as_str());
        // One that has its answer is only to be published.
        let agent = agent.filter(|_| !table.has_answer(&session, &turn));
        if agent.and_then(|agent| self.shared.switches.agent(agent)) == Some(WhenOff::Wait) {
            return Start::Waits(job);
        }
        let log = if reused { Box::default() } else { table.take(&session, &turn) };
        // Without a trace a turn may have ended, which matters where its result is promised once; without its beginning
        // its keys may have carried what nobody knows any more.
        let has_trace = log.first_offset.is_some() || log.has_steps();
        let expired = job.expired && !log.is_whole && (has_trace || self.transactional.is_some());
        let refusal = if reused {
            Some(Refusal::Reused)
        } else if expired {
            Some(Refusal::Expired)
        } else {
            None
        };
        let has_steps = log.has_steps();
        let (shared, writers, stop) = (Arc::clone(&self.shared), writers.for_a_turn(), state.stop.clone());
        state.running += 1;
        let span = driver::span(&job.identity, partition, offset);
        let run = async move {
            let _in_flight = metrics().begin_turn();
            let outcome = match refusal {
                Some(why) => Box::pin(driver::refuse(&shared, writers, *job, why, has_steps, &stop)).await,
                None => driver::run(&shared, writers, job, log, &stop).await,
            };
            (Handled { session, turn, partition, epoch, offset, holds_lane: true }, outcome)
        };
        self.turns.spawn(run.instrument(span));
        Start::Runs
    }

    /// A turn has ended: the session's next one may run. Its record is finished when its last event is confirmed. Until then a
    /// record that was no turn holds its lane: one that mends it, and has its turn id, must not come before its end.
    fn ended(&mut self, (mut handled, outcome): Ended) -> Result<(), Error> {
        match outcome {
            Ok(Done::Ended(end, last)) => {
                let Handled { session, turn, partition, epoch, .. } = &handled;
                let current = self.partitions.get_mut(partition).filter(|p| p.epoch == *epoch);
                let table = current.and_then(|state| state.journal.as_mut()).map(|(_, table)| table);
                let was_turn = end.is_some();
                if let (Some(end), Some(table)) = (end, table) {
                    table.end(session.clone(), turn.clone(), end);
                }
                if was_turn {
                    self.lanes.done(session.clone());
                    handled.holds_lane = false;
                }
                self.ending.push(Box::pin(async move { (handled, last.confirmed().await) }));
                Ok(())
            }
            Ok(Done::Stopped) => {
                self.leave(&handled);
                Ok(())
            }
            Err(halt) => self.halted(handled, &halt),
        }
    }

    /// The last event of a turn is confirmed, or will never be.
    fn finished(&mut self, handled: Handled, confirmed: Result<(), Halt>) -> Result<(), Error> {
        let Handled { partition, epoch, offset, .. } = handled;
        match confirmed {
            Ok(()) => {
                self.consumer.send(Command::Finished { partition, epoch, offset });
                self.leave(&handled);
                Ok(())
            }
            Err(halt) => self.halted(handled, &halt),
        }
    }

    /// Nothing of a record is on its way any more.
    fn leave(&mut self, handled: &Handled) {
        if handled.holds_lane {
            self.lanes.done(handled.session.clone());
        }
        if let Some(state) = self.partitions.get_mut(&handled.partition).filter(|p| p.epoch == handled.epoch)
        {
            state.running -= 1;
        }
        self.report_drained(handled.partition);
    }

    fn halted(&mut self, handled: Handled, halt: &Halt) -> Result<(), Error> {
        self.leave(&handled);
        let Handled { session, turn, partition, epoch, offset, .. } = handled;
        self.check_log()?;
        match halt {
            // Only where the partition is given up anyway.
            Halt::GivenUp => Ok(()),
            Halt::Outbox(error) if error.is_lasting() => {
                let why = halt.to_string();
                Err(Error::Turn { session, turn, partition, offset, why })
            }
            Halt::Outbox(error) => {
                self.over(partition, epoch, &journal::Error::Log(error.to_string()));
                Ok(())
            }
            Halt::Journal(why) => {
                self.over(partition, epoch, why);
                Ok(())
            }
        }
    }

    /// A tail is over, and with it the partition's journal.
    fn tail_ended(&mut self, (partition, epoch, why): (i32, u64, journal::Error)) -> Result<(), Error> {
        self.check_log()?;
        self.over(partition, epoch, &why);
        Ok(())
    }

    /// The partition's journal is over: its turns stop, and once none runs it is taken over again (rule 11).
    fn over(&mut self, partition: i32, epoch: u64, why: &journal::Error) {
        let current = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch);
        if let Some(state) = current.filter(|p| p.state == State::Ours) {
            tracing::warn!(partition, epoch, reason = %why, running = state.running, "partition restarts");
            let reason = match why {
                journal::Error::Superseded { .. } => "claim",
                _ => "log",
            };
            metrics().restarts.with_label_values(&[reason]).inc();
            metrics().claims_lost.inc_by(u64::from(reason == "claim"));
            state.stop(State::Over, self.limits.drain_timeout);
            self.lanes.release();
        }
        self.report_drained(partition);
    }

    /// Stops the partition's turns at their next step boundary; those that wait never start.
    /// A partition that is lost already drains like any other: a blocking tool of a session must have ended, as far
    /// as we wait, before the session runs here again (rule 22).
    fn revoked(&mut self, partition: i32, epoch: u64) {
        // What waits there is not ours any more.
        self.lanes.release();
        match self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch) {
            Some(state) => state.stop(State::Revoked, self.limits.drain_timeout),
            // It was about to be taken over again.
            None => self.consumer.send(Command::Drained { partition, epoch }),
        }
        self.report_drained(partition);
    }

    fn report_drained(&mut self, partition: i32) {
        let Some(state) = self.partitions.get(&partition).filter(|p| p.running == 0) else {
            return;
        };
        let epoch = state.epoch;
        let command = match state.state {
            State::Ours => return,
            State::Over => Command::Restart { partition, epoch },
            State::Revoked => Command::Drained { partition, epoch },
        };
        self.consumer.send(command);
        self.partitions.remove(&partition);
        // Its recovery point stays until the next restore: the last commit, or the proof, is still to carry it.
    }

    /// Cancels what still runs on partitions whose drain has taken too long.
    fn give_up(&mut self) {
        let now = Instant::now();
        for (number, state) in &mut self.partitions {
            if state.give_up.is_some_and(|at| at <= now) {
                state.give_up = None;
                state.stop.now.cancel();
                if state.running > 0 {
                    tracing::warn!(
                        partition = number,
                        running = state.running,
                        "drain timeout: what still runs is cancelled, and runs again under its keys"
                    );
                }
            }
        }
    }
}

/// A turn whose session id does not fit its events: no turn, in a lane of its own.
fn too_long(
    own: TurnId,
    bytes: usize,
    identity: Identity,
    turn: Result<Box<Turn>, Box<Unreadable>>,
) -> (Identity, Result<Box<Turn>, Box<Unreadable>>) {
    let identity = Identity { session: SessionId::of_record(None, &own), turn: own, ..identity };
    let (agent, failure) = match turn {
        Ok(turn) => {
            let message = format!(
                "the session id (a record's key, where its value names none) has {bytes} bytes; at most {MAX_SESSION} are allowed"
            );
            (Some(turn.agent), Failure::new(code::INVALID_TURN, message))
        }
        Err(unreadable) => (unreadable.agent, unreadable.failure),
    };
    let unreadable = Unreadable { identity: identity.clone(), answerable: false, agent, failure };
    (identity, Err(Box::new(unreadable)))
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
