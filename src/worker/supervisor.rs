//! Lanes, partitions and drain: which turn runs when.
//!
//! One task owns all of it and takes messages; nothing here waits for a turn. A session's turns run one
//! after the other, in the order of the log; sessions run side by side up to `max_in_flight`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::driver::{self, Done, Halt, Job, Shared, Stop};
use crate::journal::{self, Journal, Log, Member, Table};
use crate::kafka::consumer::{Command, Event, Handle, Record};
use crate::record::{Identity, Turn, Unreadable, read_turn};
use crate::retry::Backoff;
use crate::turn::{Failure, SessionId, TurnId, code};

/// The longest session id, in bytes: every event and result of the session carries it.
const MAX_SESSION: usize = 4096;

/// Why a worker ended that was not asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The consumer cannot go on.
    #[error("{0}")]
    Consumer(String),
    /// Something that a turn needs failed. Nothing is lost: what was not finished comes again.
    #[error("turn {turn} of session {session} (partition {partition}, offset {offset}): {why}")]
    Turn { session: SessionId, turn: TurnId, partition: i32, offset: i64, why: String },
    /// A task of ours panicked.
    #[error("a task of the worker failed: {0}")]
    Task(#[from] JoinError),
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
    lanes: HashMap<SessionId, Lane>,
    /// Sessions whose next turn may run.
    ready: VecDeque<SessionId>,
    turns: JoinSet<Ended>,
    restores: JoinSet<Restored>,
}

struct Partition {
    epoch: u64,
    /// The journal and what it holds, once restored.
    journal: Option<(Journal, Table)>,
    stop: Stop,
    running: usize,
    revoked: bool,
    /// When what still runs is cancelled.
    give_up: Option<Instant>,
}

#[derive(Default)]
struct Lane {
    jobs: VecDeque<Job>,
    running: bool,
    partition: Option<i32>,
}

struct Ended {
    session: SessionId,
    turn: TurnId,
    partition: i32,
    epoch: u64,
    offset: i64,
    outcome: Result<Done, Halt>,
}

type Restored = (i32, u64, Option<(Journal, Table)>);

impl Supervisor {
    pub(super) fn new(
        shared: Arc<Shared>,
        limits: Limits,
        consumer: Handle,
        log: Arc<dyn Log>,
        member: Member,
    ) -> Self {
        Self {
            shared,
            limits,
            consumer,
            log,
            member,
            partitions: HashMap::new(),
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            turns: JoinSet::new(),
            restores: JoinSet::new(),
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
            let step = tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.event(event),
                    None => Err(Error::Consumer("the poll thread has ended".into())),
                },
                Some(ended) = self.turns.join_next() => {
                    ended.map_err(Error::from).and_then(|ended| self.ended(ended))
                }
                Some(restored) = self.restores.join_next() => {
                    restored.map_err(Error::from).map(|restored| self.restored(restored))
                }
                () = at(give_up) => {
                    self.give_up();
                    Ok(())
                }
                () = shutdown.cancelled() => break,
            };
            if step.is_err() {
                result = step;
                break;
            }
            self.dispatch();
        }
        self.drain(&mut events).await;
        (self.consumer, result)
    }

    async fn drain(&mut self, events: &mut mpsc::UnboundedReceiver<Event>) {
        tracing::info!(running = self.turns.len(), "draining");
        self.consumer.send(Command::Stop);
        self.lanes.values_mut().for_each(|lane| lane.jobs.clear());
        self.restores.abort_all();
        let give_up = Instant::now() + self.limits.drain_timeout;
        for partition in self.partitions.values_mut() {
            partition.stop.boundary.cancel();
            partition.give_up.get_or_insert(give_up);
        }
        while !self.turns.is_empty() {
            let give_up = self.partitions.values().filter_map(|p| p.give_up).min();
            tokio::select! {
                Some(event) = events.recv() => self.event_while_draining(event),
                Some(ended) = self.turns.join_next() => {
                    if let Err(error) = ended.map_err(Error::from).and_then(|ended| self.ended(ended)) {
                        tracing::error!(%error, "while draining");
                    }
                }
                () = at(give_up) => self.give_up(),
            }
        }
    }

    fn event_while_draining(&mut self, event: Event) {
        match event {
            Event::Revoked { partition, epoch } => self.revoked(partition, epoch),
            Event::Failed(error) => tracing::error!(error, "while draining"),
            Event::Assigned { .. } | Event::Records(_) => {}
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Assigned { partition, epoch, from } => self.assigned(partition, epoch, from),
            Event::Records(records) => records.into_iter().for_each(|record| self.enqueue(record)),
            Event::Revoked { partition, epoch } => self.revoked(partition, epoch),
            Event::Failed(error) => return Err(Error::Consumer(error)),
        }
        Ok(())
    }

    fn assigned(&mut self, partition: i32, epoch: u64, from: Option<i64>) {
        let boundary = CancellationToken::new();
        let state = Partition {
            epoch,
            journal: None,
            stop: Stop { boundary: boundary.clone(), now: CancellationToken::new() },
            running: 0,
            revoked: false,
            give_up: None,
        };
        self.partitions.insert(partition, state);
        let (log, member) = (Arc::clone(&self.log), self.member.clone());
        self.restores.spawn(async move {
            let restored = tokio::select! {
                restored = restore(log, &member, partition, from.unwrap_or(0)) => Some(restored),
                () = boundary.cancelled() => None,
            };
            (partition, epoch, restored)
        });
    }

    fn restored(&mut self, (partition, epoch, restored): Restored) {
        let current = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch && !p.revoked);
        if let (Some(state), Some((journal, table))) = (current, restored) {
            tracing::info!(partition, epoch, open_turns = table.open_turns(), "partition ready");
            state.journal = Some((journal, table));
            self.consumer.send(Command::Ready { partition, epoch });
        }
    }

    fn enqueue(&mut self, record: Record) {
        let Record { partition, offset, .. } = record;
        let topic = &self.shared.turns_topic;
        let read = read_turn(topic, partition, offset, record.key.as_deref(), record.value.as_deref());
        let (identity, turn) = match read {
            Ok((identity, turn)) => (identity, Ok(turn)),
            Err(unreadable) => (unreadable.identity.clone(), Err(unreadable)),
        };
        let (identity, turn) = match identity.session.as_str().len() {
            0..=MAX_SESSION => (identity, turn),
            bytes => too_long(TurnId::of_record(topic, partition, offset), bytes, identity, turn),
        };
        let session = identity.session.clone();
        let lane = self.lanes.entry(session.clone()).or_default();
        if lane.partition.replace(partition).is_some_and(|other| other != partition) {
            tracing::warn!(
                %session,
                partition,
                "a session came on two partitions: are all producers using the murmur2_random partitioner?"
            );
        }
        lane.jobs.push_back(Job { record, identity, turn });
        if lane.jobs.len() == 1 && !lane.running {
            self.ready.push_back(session);
        }
    }

    /// Starts turns while there is room.
    fn dispatch(&mut self) {
        while self.turns.len() < self.limits.max_in_flight {
            let Some(session) = self.ready.pop_front() else {
                return;
            };
            let job = self.lanes.get_mut(&session).and_then(|lane| lane.jobs.pop_front());
            let started = job.is_some_and(|job| self.start(job));
            if started {
                if let Some(lane) = self.lanes.get_mut(&session) {
                    lane.running = true;
                }
            } else {
                self.next_of(session);
            }
        }
    }

    /// The session's next turn may run; a lane that is empty is forgotten.
    fn next_of(&mut self, session: SessionId) {
        if let Some(lane) = self.lanes.get_mut(&session) {
            lane.running = false;
            if lane.jobs.is_empty() {
                self.lanes.remove(&session);
            } else {
                self.ready.push_back(session);
            }
        }
    }

    /// False: there is nothing to run. The record has ended before, or is no longer ours.
    fn start(&mut self, job: Job) -> bool {
        let Record { partition, epoch, offset, .. } = job.record;
        let current = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch && !p.revoked);
        let Some(state) = current else {
            return false;
        };
        let Some((journal, table)) = &mut state.journal else {
            return false;
        };
        let (session, turn) = (job.identity.session.clone(), job.identity.turn.clone());
        let end = table.ended(&session, &turn);
        let reused = end.is_some_and(|end| end.input != job.identity.input);
        if table.is_dead(offset) || (end.is_some() && !reused) {
            tracing::info!(%session, %turn, partition, offset, "turn has ended before, skipped");
            self.consumer.send(Command::Finished { partition, epoch, offset });
            return false;
        }
        let log = if reused { journal::TurnLog::default() } else { table.take(&session, &turn) };
        let (shared, journal, stop) = (Arc::clone(&self.shared), journal.clone(), state.stop.clone());
        state.running += 1;
        self.turns.spawn(async move {
            let outcome = match reused {
                true => driver::reused(&shared, journal, job).await,
                false => driver::run(&shared, journal, job, log, &stop).await,
            };
            Ended { session, turn, partition, epoch, offset, outcome }
        });
        true
    }

    fn ended(&mut self, ended: Ended) -> Result<(), Error> {
        let Ended { session, turn, partition, epoch, offset, outcome } = ended;
        if let Some(state) = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch) {
            state.running -= 1;
            if let (Ok(Done::Finished(Some(end))), Some((_, table))) = (&outcome, &mut state.journal) {
                table.end(session.clone(), turn.clone(), end.clone());
            }
        }
        if let Ok(Done::Finished(_)) = outcome {
            self.consumer.send(Command::Finished { partition, epoch, offset });
        }
        self.report_drained(partition);
        self.next_of(session.clone());
        match outcome {
            Ok(_) => Ok(()),
            Err(halt) => {
                let why = halt.to_string();
                Err(Error::Turn { session, turn, partition, offset, why })
            }
        }
    }

    /// Stops the partition's turns at their next step boundary; those that wait never start.
    fn revoked(&mut self, partition: i32, epoch: u64) {
        if let Some(state) = self.partitions.get_mut(&partition).filter(|p| p.epoch == epoch) {
            state.revoked = true;
            state.stop.boundary.cancel();
            state.give_up.get_or_insert(Instant::now() + self.limits.drain_timeout);
        }
        self.report_drained(partition);
    }

    fn report_drained(&mut self, partition: i32) {
        if let Some(state) = self.partitions.get(&partition)
            && state.revoked
            && state.running == 0
        {
            self.consumer.send(Command::Drained { partition, epoch: state.epoch });
            self.partitions.remove(&partition);
        }
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
    turn: Result<Turn, Box<Unreadable>>,
) -> (Identity, Result<Turn, Box<Unreadable>>) {
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

/// Restores a partition's journal, again until it works: without it, nothing may run.
async fn restore(log: Arc<dyn Log>, member: &Member, partition: i32, watermark: i64) -> (Journal, Table) {
    let mut backoff = Backoff::forever();
    loop {
        match journal::restore(Arc::clone(&log), member, partition, None, watermark).await {
            Ok((journal, mut table)) => {
                table.restored();
                return (journal, table);
            }
            Err(error) => {
                tracing::warn!(partition, %error, "the journal cannot be restored, trying again");
                backoff.wait().await;
            }
        }
    }
}
