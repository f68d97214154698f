//! One turn, from its record to its end: does what the engine says, as steps.
//!
//! The order of the end is what the guarantees rest on: all events of the turn acknowledged, then the
//! result, then `turn:end`, and only then is the record finished.

mod end;
mod running;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::bind::BoundAgent;
use super::call::Caller;
use super::cancels::{self, Cancels};
use super::outbox::{Last, Outbox, short};
use super::switches::Switches;
use crate::config::WhenOff;
use crate::health::Health;
use crate::journal::{self, Content, End, Journal, Receipt, TurnLog};
use crate::kafka::consumer::Record;
use crate::kafka::transactions::Transactions;
use crate::metrics::{UNKNOWN, metrics};
use crate::model::Request;
use crate::record::{
    EventSpan, EventType, Identity, ResultUsage, Status, StepEvent, Turn, TurnResult, TurnStatus, Unreadable,
};
use crate::tool::{Environment, Registered, Registry};
use crate::turn::{
    Call, Decision, Engine, Failure, Hash, IdempotencyKey, Next, Outcome, Position, Recorded, Reply, Setup,
    TurnId, Used, code, decide,
};

use running::Running;

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
}

/// What a turn of a partition writes through. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writers {
    /// Its steps.
    pub journal: Journal,
    /// Its end, where that is promised exactly once.
    pub transactions: Option<Transactions>,
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
    /// It is finished. The end of the turn, where the record was one.
    Finished(Option<End>),
    /// It was stopped at a step boundary; whoever owns the partition next goes on.
    Stopped,
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
    pub turn: Result<Turn, Box<Unreadable>>,
    /// Whether the log has lost events that may be its turn's.
    pub expired: bool,
}

/// Handles a record whose turn has not ended.
pub(super) async fn run(
    shared: &Shared,
    to: Writers,
    job: Job,
    mut log: TurnLog,
    stop: &Stop,
) -> Result<Done, Halt> {
    let Job { record, identity, turn, .. } = job;
    let mut run = Run {
        shared,
        journal: to.journal,
        transactions: to.transactions,
        stop,
        has_steps: log.has_steps(),
        record,
        identity,
        begun: Instant::now(),
        agent: None,
        first_offset: log.first_offset,
        last_offset: None,
        pending: VecDeque::new(),
    };
    let turn = match turn {
        Ok(turn) => turn,
        Err(unreadable) => {
            let answer = unreadable.answerable;
            run.agent = unreadable.agent.map(|agent| agent.chars().take(64).collect());
            return run.bury(&unreadable.failure, answer).await;
        }
    };
    let name: String = turn.agent.chars().take(64).collect();
    run.agent = Some(name.clone());
    if let Some(output) = log.output.take() {
        // The answer was recorded before the crash: what is published now is what was, if anything was.
        run.start(&log).await?;
        return run.publish(output.answer, output.usage).await;
    }
    let Some(agent) = shared.agents.get(&turn.agent).cloned() else {
        let failure = Failure::new(code::UNKNOWN_AGENT, format!("this worker has no agent {name:?}"));
        return run.bury(&failure, true).await;
    };
    run.agent = Some(agent.name.clone());
    run.turn(&agent, turn, log, stop).await
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
    shared: &Shared,
    to: Writers,
    job: Job,
    why: Refusal,
    has_steps: bool,
    stop: &Stop,
) -> Result<Done, Halt> {
    let agent = job.turn.ok().map(|turn| turn.agent.chars().take(64).collect());
    let run = Run {
        shared,
        journal: to.journal,
        transactions: to.transactions,
        stop,
        has_steps,
        record: job.record,
        identity: job.identity,
        begun: Instant::now(),
        agent,
        first_offset: None,
        last_offset: None,
        pending: VecDeque::new(),
    };
    let failure = why.failure(&run.identity);
    run.bury(&failure, false).await
}

/// One run of one record.
struct Run<'a> {
    shared: &'a Shared,
    journal: Journal,
    record: Record,
    identity: Identity,
    /// Where results become visible together with `turn:end`.
    transactions: Option<Transactions>,
    stop: &'a Stop,
    /// Whether anything is recorded of the turn that a rerun would go by.
    has_steps: bool,
    begun: Instant,
    agent: Option<String>,
    first_offset: Option<i64>,
    last_offset: Option<i64>,
    /// Appends that are not acknowledged yet.
    pending: VecDeque<Receipt>,
}

impl Run<'_> {
    async fn turn(mut self, agent: &BoundAgent, turn: Turn, log: TurnLog, stop: &Stop) -> Result<Done, Halt> {
        if stop.boundary.is_cancelled() {
            return Ok(Done::Stopped);
        }
        let deaths = log.deaths();
        if deaths >= self.shared.max_redeliveries {
            let message = format!(
                "{deaths} workers have died under the turn before it got any further (max_redeliveries)"
            );
            return self.bury(&Failure::new(code::CRASH_LOOP, message), true).await;
        }
        let attempt = log.starts.saturating_add(1);
        self.start(&log).await?;
        if attempt > 1 {
            // What is recorded waits for nothing, and the tool that comes next may be what ends the process: its
            // attempts are counted by their starts.
            self.settle().await?;
        }
        // What has begun goes on: its steps are for its end.
        if !self.has_steps && self.shared.switches.agent(&agent.name) == Some(WhenOff::Refuse) {
            let message = format!("agent {:?} is turned off", agent.name);
            let failure = Failure::new(code::AGENT_DISABLED, message);
            return self.answer(Err(failure), ResultUsage::default()).await;
        }
        let tools = match agent.offer(&self.shared.registry, turn.tools.as_deref()) {
            Ok(tools) => tools,
            Err(failure) => return self.answer(Err(failure), ResultUsage::default()).await,
        };
        let budget = turn.budget.unwrap_or_default();
        let engine = Engine::new(Setup {
            system: agent.system.clone(),
            input: turn.input.into_messages(),
            tools: tools.iter().map(|tool| Arc::clone(&tool.definition)).collect(),
            limits: agent.limits.within(&budget),
            costs: (tools.iter())
                .filter_map(|tool| Some((tool.spec.name.clone(), tool.spec.price()?)))
                .collect(),
            on_tool_error: agent.on_tool_error,
        });
        let own = || self.record.timestamp.map(|sent| sent.saturating_add(millis(agent.max_duration)));
        let deadline = turn.deadline_ms.or_else(own).map(|at| {
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
        let limit = run_time.into_iter().chain(deadline).min_by_key(|(at, _)| *at);
        let clock = self.shared.clock;
        let cancel = self.shared.cancels.begin(&self.identity, stop.now.child_token());
        let running =
            Running { agent, tools, metadata: turn.metadata, engine, log, stop, cancel, limit, clock };
        match self.drive(running).await? {
            None => {
                // Whoever goes on need not take this for the death of a worker.
                let mut given_up = self.event(EventType::TurnStart);
                given_up.attempt = Some(attempt);
                given_up.input_offset = Some(self.record.offset);
                given_up.status = Some(Status::Ok);
                self.append(given_up).await?;
                Ok(Done::Stopped)
            }
            Some((Outcome::Completed { output }, usage)) => self.answer(Ok(output), usage).await,
            Some((Outcome::Failed(failure), usage)) => self.answer(Err(failure), usage).await,
        }
    }

    async fn start(&mut self, log: &TurnLog) -> Result<(), Halt> {
        let mut start = self.event(EventType::TurnStart);
        start.attempt = Some(log.starts.saturating_add(1));
        if log.starts > 0 {
            metrics().turn_reruns.with_label_values(&[self.agent_label()]).inc();
        }
        start.input_offset = Some(self.record.offset);
        start.input_hash = Some(self.identity.input.clone());
        start.started_at_ms = Some((self.shared.clock)());
        self.append(start).await
    }

    /// Does what the engine says until it says how the turn ended. None: it was stopped.
    async fn drive(&mut self, mut running: Running<'_>) -> Result<Option<(Outcome, ResultUsage)>, Halt> {
        loop {
            let next = running.engine.next();
            if let Next::End(outcome) = next {
                let Used { model_calls, tool_calls, tokens, cost } = running.engine.used();
                let usage = ResultUsage {
                    model_calls,
                    tool_calls,
                    input_tokens: tokens.input_tokens,
                    output_tokens: tokens.output_tokens,
                    cost,
                };
                return Ok(Some((outcome, usage)));
            }
            if running.stop.boundary.is_cancelled() {
                return Ok(None);
            }
            // What is recorded is read back first, whatever the time and the limits are by now.
            if !running.is_recorded(&next)
                && let Some(failure) = running.cut_short().or_else(|| running.out_of_budget(&next))
            {
                running.pay_for(&next);
                running.engine.fail(failure);
                continue;
            }
            let went_on = match next {
                Next::Model { position, input } => self.reply(&mut running, position, input).await?,
                Next::Calls(calls) => self.calls(&mut running, calls).await?,
                Next::End(_) => true,
            };
            if !went_on {
                return Ok(None);
            }
        }
    }

    /// The step of a model's reply. False: it was stopped.
    async fn reply(
        &mut self,
        running: &mut Running<'_>,
        position: Position,
        input: Hash,
    ) -> Result<bool, Halt> {
        let reply = match decide(running.log.steps.remove(&position), &input) {
            Decision::Return(Content::Reply(reply)) => {
                metrics().steps_replayed.with_label_values(&["model"]).inc();
                reply
            }
            Decision::Return(Content::Result(..)) => {
                Err(changed(&position, "the result of a call is recorded there"))
            }
            Decision::Changed { recorded } => Err(changed(
                &position,
                &format!(
                    "the reply was recorded for another transcript, with the hash {recorded}; it is now {input}: the agent's \
                     instructions or an earlier message have changed"
                ),
            )),
            Decision::Run { .. } => match self.ask(running, position, input).await? {
                Some(reply) => reply,
                None => return Ok(false),
            },
        };
        match reply {
            Ok(reply) if running.has_begun(&reply) => running.engine.reply_begun(reply),
            Ok(reply) => running.engine.reply(reply),
            Err(failure) => running.engine.fail(failure),
        }
        Ok(true)
    }

    /// Asks the model, and records what it says before anything depends on it. While it thinks, what was
    /// appended before is acknowledged: a reply is never on the log without the results it was made from (rule 13).
    async fn ask(
        &mut self,
        running: &Running<'_>,
        position: Position,
        input: Hash,
    ) -> Result<Option<Result<Reply, Failure>>, Halt> {
        let request = Request {
            agent: &running.agent.name,
            reply: running.engine.used().model_calls,
            messages: running.engine.messages(),
            tools: running.engine.tools(),
            metadata: &running.metadata,
        };
        let (started_at_ms, clock) = ((self.shared.clock)(), Instant::now());
        let asked = AssertUnwindSafe(running.agent.model.complete(request)).catch_unwind();
        let both = async { tokio::join!(asked, self.settle()) };
        let (reply, settled) = tokio::select! {
            biased;
            both = both => both,
            // Also where the turn itself is cancelled.
            () = running.cancel.token().cancelled() => {
                self.measure(&running.agent.name, clock, "cut_short");
                return Ok(running.cut_short().map(Err));
            }
            () = running.time_is_over() => {
                self.measure(&running.agent.name, clock, "cut_short");
                return Ok(running.cut_short().map(Err));
            }
        };
        settled?;
        let mut reply = reply.unwrap_or_else(|_| {
            Err(Failure::new(code::MODEL_ERROR, "the model failed unexpectedly (it panicked)"))
        });
        reply = reply.map_err(|failure| short(&failure));
        self.measure(&running.agent.name, clock, if reply.is_ok() { "ok" } else { "error" });
        if let Ok(Reply { usage, .. }) = &reply {
            for (direction, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
                let labels = [running.agent.name.as_str(), direction];
                metrics().model_tokens.with_label_values(&labels).inc_by(tokens);
            }
        }
        let mut event = self.event(EventType::ModelReply);
        event.idempotency_key = Some(self.key(&position));
        event.position = Some(position);
        event.input_hash = Some(input);
        event.started_at_ms = Some(started_at_ms);
        event.latency_ms = Some(elapsed_ms(clock));
        fill_reply(&mut event, &reply);
        if let Err(Halt::Journal(journal::Error::TooLarge { size, max })) = self.append(event.clone()).await {
            reply = Err(Failure::new(
                code::RECORD_TOO_LARGE,
                format!("the model's reply makes an event of {size} bytes; the events topic takes {max}"),
            ));
            fill_reply(&mut event, &reply);
            self.append(event).await?;
        }
        if self.shared.step_boundary_durability {
            // Tools start only after this (rule 14).
            self.confirm().await?;
        }
        Ok(Some(reply))
    }

    fn measure(&self, agent: &str, clock: Instant, status: &str) {
        let metrics = metrics();
        metrics.steps.with_label_values(&["model"]).inc();
        metrics.model_calls.with_label_values(&[agent, status]).inc();
        metrics.model_duration.with_label_values(&[agent]).observe(clock.elapsed().as_secs_f64());
    }

    /// The steps of a reply's calls. False: they were stopped.
    async fn calls(&mut self, running: &mut Running<'_>, calls: Vec<Call>) -> Result<bool, Halt> {
        let caller = Caller {
            shared: self.shared,
            journal: &self.journal,
            identity: &self.identity,
            agent: &running.agent.name,
            tools: &running.tools,
            stop: running.stop,
            cancel: running.cancel.token(),
        };
        let Some(batch) = caller.all(calls, &mut running.log).await? else {
            return Ok(false);
        };
        self.pending.extend(batch.receipts);
        match batch.outcome {
            Ok(results) => running.engine.results(results),
            Err(failure) => running.engine.fail(failure),
        }
        Ok(true)
    }

    /// The agent as a label: a name that this worker does not have is anybody's invention.
    fn agent_label(&self) -> &str {
        let known = |name: &&str| self.shared.agents.contains_key(*name);
        self.agent.as_deref().filter(known).unwrap_or(UNKNOWN)
    }

    fn event(&self, kind: EventType) -> StepEvent {
        event(kind, &self.identity, self.agent.as_deref())
    }

    fn key(&self, position: &Position) -> IdempotencyKey {
        IdempotencyKey::new(&self.identity.session, &self.identity.turn, position)
    }

    async fn append(&mut self, event: StepEvent) -> Result<(), Halt> {
        self.pending.push_back(self.journal.append(event).await?);
        Ok(())
    }

    /// Waits until everything appended so far is acknowledged.
    async fn settle(&mut self) -> Result<(), Halt> {
        // Each leaves only once it was heard of: this may be dropped in the middle.
        while let Some(receipt) = self.pending.front_mut() {
            let offset = receipt.await?;
            self.pending.pop_front();
            self.first_offset.get_or_insert(offset);
            self.last_offset = self.last_offset.max(Some(offset));
        }
        Ok(())
    }

    /// Waits until everything appended so far is confirmed: what lies before a confirmed event is valid too. A tail
    /// that brings nothing must not hold a drain up: nothing is finished then.
    async fn confirm(&mut self) -> Result<(), Halt> {
        self.settle().await?;
        let Some(last) = self.last_offset else {
            return Ok(());
        };
        tokio::select! {
            biased;
            confirmed = self.journal.confirmed(last) => Ok(confirmed?),
            () = self.stop.now.cancelled() => Err(Halt::GivenUp),
        }
    }
}

/// An event of a turn.
pub(super) fn event(kind: EventType, identity: &Identity, agent: Option<&str>) -> StepEvent {
    let mut event = StepEvent::new(kind);
    event.session_id = Some(identity.session.clone());
    event.turn_id = Some(identity.turn.clone());
    event.agent = agent.map(Into::into);
    event
}

fn fill_reply(event: &mut StepEvent, reply: &Result<Reply, Failure>) {
    event.status = Some(if reply.is_ok() { Status::Ok } else { Status::Error });
    event.reply = reply.as_ref().ok().cloned();
    event.error = reply.as_ref().err().cloned();
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The failure of a step that was recorded from another input.
pub(super) fn changed(position: &Position, how: &str) -> Failure {
    Failure::new(code::REPLAY_INPUT_CHANGED, format!("position {position}: {how}"))
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
