//! One turn, from its record to its end.
//!
//! The order of the end is what the guarantees rest on: all events of the turn acknowledged, then the
//! result, then `turn:end`, and only then is the record finished.

mod end;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::bind::BoundAgent;
use super::cancels::Cancels;
use super::outbox::{Last, Outbox, short};
use super::steps::{Conducted, Root, Steps, Weight, Writer};
use super::switches::Switches;
use crate::config::WhenOff;
use crate::health::Health;
use crate::journal::{self, End, Journal, Receipt, TurnLog};
use crate::kafka::consumer::Record;
use crate::kafka::paced::Load;
use crate::kafka::transactions::Transactions;
use crate::metrics::{UNKNOWN, metrics};
use crate::record::{
    EventSpan, EventType, Identity, ResultUsage, Status, StepEvent, Turn, TurnResult, TurnStatus, Unreadable,
};
use crate::tool::{Environment, Registered, Registry};
use crate::turn::{Failure, Ledger, TurnId, code};

/// What every line of the log about a turn carries, whatever is logged.
pub(super) fn span(identity: &Identity, partition: i32, offset: i64) -> tracing::Span {
    tracing::error_span!("turn", session = %identity.session, turn = %identity.turn, partition, offset)
}

/// What every turn of a worker shares.
pub(super) struct Shared {
    pub agents: HashMap<String, Arc<BoundAgent>>,
    pub registry: Registry,
    /// What the calls of tools share.
    pub environment: Environment,
    pub outbox: Outbox,
    pub cancels: Cancels,
    pub turns_topic: String,
    pub health: Health,
    pub switches: Switches,
    pub max_redeliveries: u32,
    /// Whether a reply is confirmed before its tools start.
    pub step_boundary_durability: bool,
    /// Milliseconds since 1970 UTC.
    pub clock: fn() -> i64,
    /// How many turns are in flight.
    pub load: Load,
}

/// What a turn's model is offered.
pub(super) struct Offer {
    pub tools: Vec<Arc<Registered>>,
    pub agents: Vec<Arc<BoundAgent>>,
}

impl Shared {
    /// The agents that another one is offered.
    pub(super) fn sub_agents(&self, agent: &BoundAgent) -> Vec<Arc<BoundAgent>> {
        agent.sub_agents.iter().filter_map(|name| self.agents.get(name).cloned()).collect()
    }

    /// What a turn's model is offered: the tools that the turn names, else the agent's own tools and agents.
    fn offer(&self, agent: &BoundAgent, named: Option<&[String]>) -> Result<Offer, Failure> {
        let agents = self.sub_agents(agent);
        let Some(named) = named else {
            return Ok(Offer { tools: agent.tools.clone(), agents });
        };
        let (agents_named, tools_named): (Vec<_>, Vec<_>) =
            named.iter().cloned().partition(|name| agents.iter().any(|agent| agent.name == *name));
        let agents = agents.into_iter().filter(|agent| agents_named.contains(&agent.name)).collect();
        Ok(Offer { tools: agent.offer(&self.registry, &tools_named)?, agents })
    }
}

/// What a turn of a partition writes through. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writers {
    /// Its steps.
    pub journal: Journal,
    /// Its end, where that is promised exactly once.
    pub transactions: Option<Transactions>,
}

impl Writers {
    /// The same, for one turn.
    pub(super) fn for_a_turn(&self) -> Self {
        Self { journal: self.journal.for_a_turn(), transactions: self.transactions.clone() }
    }
}

/// How a turn is asked to stop.
#[derive(Clone)]
pub(super) struct Stop {
    /// At the next step boundary.
    pub boundary: CancellationToken,
    /// Now: what runs is cancelled.
    pub now: CancellationToken,
}

/// How the handling of a record ended.
#[derive(Debug)]
pub(super) enum Done {
    /// What came of it is published, and it is finished once its last event is confirmed. The end of the turn, where the
    /// record was one.
    Ended(Option<End>, LastEvent),
    /// It was stopped at a step boundary; whoever owns the partition next goes on.
    Stopped,
}

/// The last event of a turn, on its way to the log: until it is confirmed the record is not finished (rule 16).
pub(super) struct LastEvent {
    /// None: it was confirmed together with what was published.
    appended: Option<(Journal, Receipt)>,
    given_up: CancellationToken,
}

impl std::fmt::Debug for LastEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastEvent").finish_non_exhaustive()
    }
}

impl LastEvent {
    /// Waits until it is confirmed. A tail that brings nothing must not hold a drain up: nothing is finished then.
    pub(super) async fn confirmed(self) -> Result<(), Halt> {
        let Some((journal, receipt)) = self.appended else { return Ok(()) };
        let confirmed = async { journal.confirmed(receipt.acknowledged().await?).await };
        tokio::select! {
            biased;
            confirmed = confirmed => Ok(confirmed?),
            () = self.given_up.cancelled() => Err(Halt::GivenUp),
        }
    }
}

/// Something outside the turn failed. Nothing is finished, so the record comes again, here or at another
/// worker.
#[derive(Debug, thiserror::Error)]
pub(super) enum Halt {
    /// The partition has to be taken over again.
    #[error("the journal: {0}")]
    Journal(#[from] journal::Error),
    /// The partition has to be taken over again, unless no later try can go better.
    #[error("a result or dead letter could not be written: {0}")]
    Outbox(#[from] crate::kafka::producer::Error),
    /// The drain's time was over before something was confirmed.
    #[error("the drain's time was over before everything was confirmed")]
    GivenUp,
}

/// A record with what was read of it.
pub(super) struct Job {
    pub record: Record,
    pub identity: Identity,
    pub turn: Result<Box<Turn>, Box<Unreadable>>,
    /// Whether the log has lost events that may be its turn's.
    pub expired: bool,
}

/// Handles a record whose turn has not ended.
pub(super) async fn run(
    shared: &Arc<Shared>,
    to: Writers,
    job: Box<Job>,
    log: Box<TurnLog>,
    stop: &Stop,
) -> Result<Done, Halt> {
    let Job { record, identity, turn, .. } = out_of(job);
    let mut run = Run {
        shared: Arc::clone(shared),
        writer: Arc::new(Writer::new(to.journal, stop.now.clone(), log.first_offset)),
        transactions: to.transactions,
        stop: stop.clone(),
        has_steps: log.has_steps(),
        record,
        identity,
        begun: Instant::now(),
        agent: None,
    };
    let way = match turn {
        Ok(turn) => run.turn(turn, log).await?,
        Err(unreadable) => {
            run.agent = unreadable.agent.map(|agent| agent.chars().take(64).collect());
            Way::Bury(unreadable.failure, unreadable.answerable)
        }
    };
    // Apart: many turns wait for their tools at once, and need not have room for their ends.
    Box::pin(run.come_to(way)).await
}

/// What is in a box, which goes: moved out of where it is, it would stay for as long as its name.
#[expect(clippy::boxed_local, reason = "that is what it is for")]
fn out_of<T>(boxed: Box<T>) -> T {
    *boxed
}

/// What a record comes to.
enum Way {
    /// Its turn was stopped at a step boundary.
    Stopped,
    /// Its turn answers.
    Answer(Result<String, Failure>, ResultUsage),
    /// Its turn has answered, in an earlier run.
    Publish(journal::Output),
    /// It goes to the dead letters; and whether somebody may wait for a result.
    Bury(Failure, bool),
}

/// Why a record is not run, and its turn gets no result: one may have been published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The turn of its id has ended, with another input (rule 17).
    Reused,
    /// Events that would say whether its turn has ended, or how far it got, are gone (rule 8).
    Expired,
}

impl Refusal {
    fn failure(self, Identity { session, turn, .. }: &Identity) -> Failure {
        match self {
            Self::Reused => Failure::new(
                code::TURN_ID_REUSED,
                format!("turn {turn} of session {session} has ended; a record with its id has another input"),
            ),
            Self::Expired => Failure::new(
                code::JOURNAL_EXPIRED,
                format!(
                    "events that would say whether turn {turn} of session {session} has ended, or how far it got, \
                     are gone"
                ),
            ),
        }
    }
}

/// Sends a record to the dead letters, without a result.
pub(super) async fn refuse(
    shared: &Arc<Shared>,
    to: Writers,
    job: Job,
    why: Refusal,
    has_steps: bool,
    stop: &Stop,
) -> Result<Done, Halt> {
    let agent = job.turn.ok().map(|turn| turn.agent.chars().take(64).collect());
    let run = Run {
        shared: Arc::clone(shared),
        writer: Arc::new(Writer::new(to.journal, stop.now.clone(), None)),
        transactions: to.transactions,
        stop: stop.clone(),
        has_steps,
        record: job.record,
        identity: job.identity,
        begun: Instant::now(),
        agent,
    };
    let failure = why.failure(&run.identity);
    run.come_to(Way::Bury(failure, false)).await
}

/// One run of one record.
struct Run {
    shared: Arc<Shared>,
    writer: Arc<Writer>,
    record: Record,
    identity: Identity,
    /// Where results become visible together with `turn:end`.
    transactions: Option<Transactions>,
    stop: Stop,
    /// Whether anything is recorded of the turn that a rerun would go by.
    has_steps: bool,
    begun: Instant,
    agent: Option<String>,
}

impl Run {
    async fn come_to(self, way: Way) -> Result<Done, Halt> {
        match way {
            Way::Stopped => Ok(Done::Stopped),
            Way::Answer(answer, usage) => self.answer(answer, usage).await,
            Way::Publish(output) => self.publish(output.answer, output.usage).await,
            Way::Bury(failure, answer) => self.bury(&failure, answer).await,
        }
    }

    async fn turn(&mut self, turn: Box<Turn>, mut log: Box<TurnLog>) -> Result<Way, Halt> {
        let Turn { agent, input, metadata, tools, budget, deadline_ms, .. } = out_of(turn);
        let name: String = agent.chars().take(64).collect();
        self.agent = Some(name.clone());
        if let Some(output) = log.output.take() {
            // The answer was recorded before the crash: what is published now is what was, if anything was.
            self.start(&log).await?;
            return Ok(Way::Publish(output));
        }
        let Some(agent) = self.shared.agents.get(&agent).cloned() else {
            let failure = Failure::new(code::UNKNOWN_AGENT, format!("this worker has no agent {name:?}"));
            return Ok(Way::Bury(failure, true));
        };
        self.agent = Some(agent.name.clone());
        if self.stop.boundary.is_cancelled() {
            return Ok(Way::Stopped);
        }
        let deaths = log.deaths(self.record.offset);
        if deaths >= self.shared.max_redeliveries {
            let message = format!(
                "{deaths} workers have died under the turn before it got any further (max_redeliveries)"
            );
            return Ok(Way::Bury(Failure::new(code::CRASH_LOOP, message), true));
        }
        let attempt = log.starts.saturating_add(1);
        self.start(&log).await?;
        if attempt > 1 {
            // What is recorded waits for nothing, and the tool that comes next may be what ends the process: its
            // attempts are counted by their starts.
            self.writer.settle().await?;
        }
        // What has begun goes on: its steps are for its end.
        if !self.has_steps && self.shared.switches.agent(&agent.name) == Some(WhenOff::Refuse) {
            let message = format!("agent {:?} is turned off", agent.name);
            let failure = Failure::new(code::AGENT_DISABLED, message);
            return Ok(Way::Answer(Err(failure), ResultUsage::default()));
        }
        let tools = match self.shared.offer(&agent, tools.as_deref()) {
            Ok(tools) => tools,
            Err(failure) => return Ok(Way::Answer(Err(failure), ResultUsage::default())),
        };
        let budget = budget.unwrap_or_default();
        let deadline = deadline_ms
            .or_else(|| self.record.timestamp.map(|sent| sent.saturating_add(millis(agent.max_duration))));
        let deadline = deadline.map(|at| {
            let message = format!("the turn's time was over at {at} (milliseconds since 1970)");
            (at, Failure::new(code::DEADLINE_EXCEEDED, message))
        });
        let own = budget.seconds.map(Duration::from_secs);
        let run_time = own.into_iter().chain(agent.max_run_time).min();
        let run_time = run_time.map(|most| {
            let began = log.began_at_ms.unwrap_or_else(self.shared.clock);
            let message = format!(
                "the turn has run for {}, which is as long as it may",
                humantime::format_duration(most)
            );
            (began.saturating_add(millis(most)), Failure::new(code::RUN_TIME_LIMIT, message))
        });
        // While this lives a cancel reaches the turn, and not for as long as something that it has left behind does.
        let cancel = self.shared.cancels.begin(&self.identity, self.stop.now.child_token());
        let steps = Steps::new(
            Arc::clone(&self.shared),
            self.identity.clone(),
            Arc::clone(&self.writer),
            self.stop.clone(),
            cancel.token().clone(),
            log,
            Ledger::new(agent.limits.within(&budget)),
        );
        let root = Root {
            agent,
            tools: tools.tools,
            agents: tools.agents,
            input: input.into_messages(),
            metadata,
            limit: run_time.into_iter().chain(deadline).min_by_key(|(at, _)| *at),
        };
        match root.conduct(&steps).await? {
            Conducted::Stopped => {
                // Whoever goes on need not take this for the death of a worker.
                let mut given_up = self.event(EventType::TurnStart);
                given_up.attempt = Some(attempt);
                given_up.input_offset = Some(self.record.offset);
                given_up.status = Some(Status::Ok);
                self.append(&mut given_up).await?;
                // The next claim of the partition, here or elsewhere, is to come after what has been written (rule 21).
                tokio::select! {
                    biased;
                    settled = self.writer.settle() => settled?,
                    () = self.stop.now.cancelled() => {}
                }
                Ok(Way::Stopped)
            }
            Conducted::Ended(answer) => Ok(Way::Answer(answer, steps.used().into())),
        }
    }

    async fn start(&self, log: &TurnLog) -> Result<(), Halt> {
        let mut start = self.event(EventType::TurnStart);
        start.attempt = Some(log.starts.saturating_add(1));
        if log.starts > 0 {
            metrics().turn_reruns.with_label_values(&[self.agent_label()]).inc();
        }
        start.input_offset = Some(self.record.offset);
        start.input_hash = Some(self.identity.input.clone());
        start.started_at_ms = Some((self.shared.clock)());
        self.append(&mut start).await
    }

    /// The agent as a label: a name that this worker does not have is anybody's invention.
    fn agent_label(&self) -> &str {
        let known = |name: &&str| self.shared.agents.contains_key(*name);
        self.agent.as_deref().filter(known).unwrap_or(UNKNOWN)
    }

    fn event(&self, kind: EventType) -> Box<StepEvent> {
        event(kind, &self.identity, self.agent.as_deref())
    }

    async fn append(&self, event: &mut StepEvent) -> Result<(), Halt> {
        self.writer.append(event, Weight::Content).await
    }
}

/// An event of a turn. It is large: a turn that waits need not have room for it.
pub(super) fn event(kind: EventType, identity: &Identity, agent: Option<&str>) -> Box<StepEvent> {
    let mut event = Box::new(StepEvent::new(kind));
    event.session_id = Some(identity.session.clone());
    event.turn_id = Some(identity.turn.clone());
    event.agent = agent.map(Into::into);
    event
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970 UTC by this machine's clock.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
