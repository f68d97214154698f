//! The step of a call: of a reply, where all calls run side by side, or made directly by code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use serde_json::value::RawValue;

use super::activity::{Active, UNLIMITED};
use super::scope::{Around, Callee, Scope};
use super::{Again, Hold, Interrupt, MAX_DEPTH, Weight, changed};
use crate::journal::{self, Content};
use crate::metrics::{UNKNOWN, metrics};
use crate::record::{EventType, ResultUsage, Status, StepEvent};
use crate::tool::{Decimal, DirectArguments, Output, Registered, ToolContext, UnknownOutcome, execute};
use crate::turn::{
    Arguments, Call, CallPlan, CallResult, Decision, Failure, Hash, Position, Recorded, Used, code,
};
use crate::worker::driver::{Halt, elapsed_ms};
use crate::worker::outbox::short;

type Outcome = Result<String, Failure>;

/// A call that is to run.
struct Ready {
    call: Call,
    /// Whether it has begun before.
    attempt: u32,
    /// What it may cost.
    hold: Hold,
    /// Whether its start is confirmed before it runs: found there by a call that is made of something else, it is known
    /// for another one.
    pinned: bool,
    /// Whether it may come again in this run.
    keep: bool,
}

/// A call that runs.
struct Begun<'a> {
    attempt: u32,
    active: &'a Arc<Active>,
    hold: Hold,
    pinned: bool,
}

enum Planned {
    Recorded(CallResult),
    Run(Call, u32),
}

/// A call that runs: it counts as running until this is dropped, and nothing that it has left behind goes on after.
struct Running(Arc<Around>);

impl Running {
    /// The tool has ended: what it has left behind begins nothing any more.
    fn close(&self) {
        self.0.closed.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
        self.0.active.give_up();
    }
}

impl Scope {
    /// The result of every call of a reply, in the order of the calls. Nothing runs if any record was made from another
    /// input.
    pub(super) async fn calls(
        &self,
        calls: Vec<Call>,
        holds: Vec<Hold>,
    ) -> Result<Vec<CallResult>, Interrupt> {
        self.goes_on()?;
        let mut planned = Vec::with_capacity(calls.len());
        for (call, hold) in calls.into_iter().zip(holds) {
            let callee = self.frame.callee(&call.name).cloned();
            let plan = self.plan(Call { position: self.at(&call.position), ..call }, self.keeps())?;
            planned.push((plan, hold, callee));
        }
        if planned.iter().any(|(plan, ..)| matches!(plan, Planned::Run(..))) {
            self.may_begin()?;
        }
        let results = planned.into_iter().map(|(plan, hold, callee)| async {
            let (call, attempt) = match plan {
                Planned::Recorded(result) => return result,
                Planned::Run(call, attempt) => (call, attempt),
            };
            let active = self.frame.activity.begin(most(callee.as_ref()));
            let position = call.position.clone();
            let ready = Ready { call, attempt, hold, pinned: false, keep: self.keeps() };
            match self.one(ready, callee, active).await {
                Ok(result) => CallResult { position, result },
                // What runs beside it comes to its end; the loop does not go on.
                Err(interrupt) => {
                    self.frame.interrupt(interrupt);
                    std::future::pending().await
                }
            }
        });
        Ok(join_all(results).await)
    }

    /// What a call is that code makes itself, at its position; and what it calls.
    pub(super) fn direct(&self, asked: DirectArguments) -> (Call, Option<Callee>) {
        let DirectArguments { name, id, arguments, .. } = asked;
        let position = self.counters().direct(&name, id.as_deref());
        let registry = &self.steps().shared.registry;
        let tool = registry.get(&name);
        let names = registry.iter().map(|tool| tool.spec.name.as_str());
        let definition = tool.map(|tool| &*tool.definition);
        let call = Call::direct(self.at(&position), &name, arguments, definition, names);
        (call, tool.cloned().map(Callee::Tool))
    }

    /// The step of a call that code makes itself.
    pub(super) async fn direct_call(
        &self,
        call: Call,
        callee: Option<Callee>,
        has_id: bool,
        unsettled: bool,
    ) -> Result<Result<String, Failure>, Interrupt> {
        self.goes_on()?;
        let keep = has_id || self.keeps();
        let _held = match keep {
            true => Some(self.steps().hold(&call.position, self.attempt).await?),
            false => None,
        };
        if self.is_decided() {
            // Meanwhile.
            return Err(Interrupt::Over);
        }
        let is_new = self.steps().is_new(&call.position, keep);
        let (call, attempt) = match self.plan(call, keep)? {
            Planned::Recorded(result) => {
                // As when it ran: others that were begun beside it begin before it ends.
                let _active = self.frame.activity.begin(Duration::ZERO);
                tokio::task::yield_now().await;
                self.before_told().await?;
                return Ok(result.result);
            }
            Planned::Run(call, attempt) => (call, attempt),
        };
        self.may_begin()?;
        let position = call.position.clone();
        if let Some(Callee::Tool(tool)) = &callee
            && tool.spec.requires_approval.is_gated()
        {
            let message = format!(
                "the tool {:?} ({}), called directly at {position}, requires approval, and a worker cannot wait for a \
                 person",
                tool.spec.name, tool.source
            );
            return Err(Interrupt::Turn(Failure::new(code::TOOL_REGISTRATION_ERROR, message)));
        }
        let runs = matches!(call.plan, CallPlan::Run(_));
        let price = price(callee.as_ref().filter(|_| runs)).unwrap_or_default();
        let mut hold = self.admit_direct(&position, price, is_new)?;
        let active = self.frame.activity.begin(most(callee.as_ref()));
        self.before_effect(runs).await?;
        if !hold.count_calls() {
            return Err(Interrupt::Over);
        }
        if keep {
            self.steps().counted().insert(position);
        }
        let pinned = unsettled && self.steps().shared.step_boundary_durability;
        let result = self.one(Ready { call, attempt, hold, pinned, keep }, callee, active).await?;
        self.before_told().await?;
        Ok(result)
    }

    /// What a call inside a tool has returned is on the log before the tool is told: it may act upon it under its own key.
    async fn before_told(&self) -> Result<(), Halt> {
        match self.around {
            Some(_) => self.before_effect(true).await,
            None => Ok(()),
        }
    }

    /// Holds a direct call, and what it may cost, if it may be made.
    fn admit_direct(&self, position: &Position, cost: Decimal, is_new: bool) -> Result<Hold, Interrupt> {
        let mut ledger = self.steps().ledger();
        let account = self.account(&mut ledger);
        if is_new {
            let what = format!("the call {position}");
            ledger.check_direct(account, &what, cost).map_err(Interrupt::Agent)?;
        }
        let held = Used { cost, ..Used::calls(u32::from(is_new)) };
        Ok(self.hold(&mut ledger, account, held))
    }

    /// Everything that the code was told is on the log before something begins that it may have been told for.
    pub(super) async fn before_effect(&self, runs: bool) -> Result<(), Halt> {
        let writer = &self.steps().writer;
        match runs && self.steps().shared.step_boundary_durability {
            true => writer.confirm_content().await,
            false => writer.settle_content().await,
        }
    }

    fn plan(&self, call: Call, keep: bool) -> Result<Planned, Interrupt> {
        let steps = self.steps();
        let failure = match steps.recall(&call.position, &call.input, keep) {
            Decision::Return(Content::Result(result, _)) => {
                metrics().steps_replayed.with_label_values(&["tool"]).inc();
                return Ok(Planned::Recorded(CallResult { position: call.position, result }));
            }
            Decision::Run { attempt } => return Ok(Planned::Run(call, attempt)),
            Decision::Return(Content::Reply(_)) => {
                changed(&call.position, "a reply of the model is recorded there")
            }
            Decision::Changed { recorded } => self.differs(&call, &recorded),
        };
        Err(Interrupt::Turn(failure))
    }

    /// Both sides of a call whose record was made from another input; the arguments themselves for the operator.
    fn differs(&self, call: &Call, recorded: &Hash) -> Failure {
        let then = self.steps().called_with(&call.position);
        let name: String = call.name.chars().take(64).collect();
        let what = call.what_changed(recorded, then.hash.as_ref());
        let how = format!(
            "a call of {name} is recorded there, and {what} (recorded {recorded}, now {})",
            call.input
        );
        let mut failure = changed(&call.position, &how);
        if let Some(then) = then.shown {
            let now = journal::shown(call.arguments());
            failure.detail = Some(format!("{}: recorded with {then}, now with {now}", failure.message));
        }
        failure
    }

    async fn one(
        &self,
        ready: Ready,
        callee: Option<Callee>,
        active: Arc<Active>,
    ) -> Result<Outcome, Interrupt> {
        if !ready.keep {
            return self.begin(ready, callee, active).await;
        }
        let (position, input) = (ready.call.position.clone(), ready.call.input.clone());
        let again = Again::of(&ready.call);
        let started = Recorded::Started { input: input.clone(), attempt: ready.attempt };
        self.steps().remember(&position, started, again.clone());
        let result = self.begin(ready, callee, active).await?;
        let content = Content::Result(result.clone(), Used::default());
        self.steps().remember(&position, Recorded::Done { input, content }, again);
        Ok(result)
    }

    async fn begin(
        &self,
        ready: Ready,
        callee: Option<Callee>,
        active: Arc<Active>,
    ) -> Result<Outcome, Interrupt> {
        let Ready { call, attempt, hold, pinned, .. } = ready;
        let (call, attempt) = (&call, attempt);
        let arguments = match &call.plan {
            CallPlan::Answer(failure) => return self.refuse(call, failure.clone()).await,
            CallPlan::Run(arguments) => arguments,
        };
        let Some(callee) = callee else {
            let failure = Failure::new(code::UNKNOWN_TOOL, format!("unknown tool '{}'", call.name));
            return self.refuse(call, failure).await;
        };
        if self.depth() >= MAX_DEPTH {
            let message = format!(
                "the call of {} stands inside {MAX_DEPTH} others, which is as deep as calls may stand",
                call.name
            );
            return self.refuse(call, Failure::new(code::CALL_DEPTH_LIMIT, message)).await;
        }
        let tool = match &callee {
            Callee::Agent(agent) => {
                // Its own steps are what runs.
                active.give_up();
                return self.run_agent(call, agent, arguments, attempt, pinned).await;
            }
            Callee::Tool(tool) => tool,
        };
        let value = match arguments.to_value().and_then(|value| tool.check(&value).map(|()| value)) {
            Ok(value) => value,
            Err(failure) => return self.refuse(call, failure).await,
        };
        if attempt > 1 && (reports(tool) || self.is_off(tool)) {
            // It may have run: it counts as paid for.
            let cost = tool.spec.price();
            hold.spend(Used::cost(cost.unwrap_or_default()));
            return self.refuse_at(call, unknown_outcome(&call.name), cost).await;
        }
        if self.is_off(tool) {
            let message = format!("the tool {} is turned off for now", call.name);
            return self.refuse(call, Failure::new(code::TOOL_DISABLED, message)).await;
        }
        self.run(call, tool, value, Begun { attempt, active: &active, hold, pinned }).await
    }

    fn is_off(&self, tool: &Registered) -> bool {
        self.steps().shared.switches.tool_is_off(&tool.spec.name)
    }

    /// A result without a start: nothing ran.
    pub(super) async fn refuse(&self, call: &Call, failure: Failure) -> Result<Outcome, Interrupt> {
        self.refuse_at(call, failure, None).await
    }

    async fn refuse_at(
        &self,
        call: &Call,
        failure: Failure,
        cost: Option<Decimal>,
    ) -> Result<Outcome, Interrupt> {
        self.count(&call.name, false);
        // It may quote the arguments, and more than once.
        let failure = short(&failure);
        let mut event = self.call_event(EventType::ToolResult, call);
        event.status = Some(Status::Error);
        event.error = Some(failure.clone());
        event.cost = cost;
        self.append(event, Weight::Content).await?;
        Ok(Err(failure))
    }

    async fn run(
        &self,
        call: &Call,
        tool: &Arc<Registered>,
        value: Value,
        begun: Begun<'_>,
    ) -> Result<Outcome, Interrupt> {
        let Begun { attempt, active, hold, pinned } = begun;
        let steps = self.steps();
        let mut start = self.call_event(EventType::ToolStart, call);
        start.attempt = Some(attempt);
        start.deterministic = tool.spec.deterministic.then_some(true);
        start.external_io_mode = Some(steps.shared.environment.external_io_mode);
        start.started_at_ms = Some((steps.shared.clock)());
        let mut end = StepEvent { kind: EventType::ToolResult, ..start.clone() };
        if reports(tool) || pinned {
            // Found started, it never runs again: so it is known to be on the log before it runs (rule 15).
            self.append(start, Weight::Content).await?;
            steps.writer.confirm_content().await?;
        } else {
            self.append(start, Weight::Note).await?;
        }

        // Before it runs: it may be what ends the process.
        metrics().tool_reruns.with_label_values(&[self.label(&call.name)]).inc_by(u64::from(attempt > 1));
        let running = Running(self.around(&call.position, active));
        let context = self.context(call, tool, &running.0);
        let clock = Instant::now();
        let mut execution = execute(tool, &context, value, attempt).await;
        running.close();
        if running.0.has_ended() {
            // What a step of it has ended has no result, whatever the tool has made of that.
            return std::future::pending().await;
        }
        if execution.result.is_err() && steps.stop.now.is_cancelled() && !reports(tool) {
            // It failed while it was given up, or because it was: no result. Whoever goes on has the retries that are
            // left; the turn hears of the stop.
            return std::future::pending().await;
        }
        // What ends a turn must not become something else for its length.
        execution.result = execution.result.map_err(|failure| short(&failure));

        self.count(&call.name, execution.result.is_ok());
        let (metrics, name) = (metrics(), self.label(&call.name));
        metrics.tool_duration.with_label_values(&[name]).observe(clock.elapsed().as_secs_f64());
        let runs = execution.attempts.saturating_add(1).saturating_sub(attempt);
        metrics.tool_attempts.with_label_values(&[name]).inc_by(runs.into());

        let output = execution.result.as_ref().ok().and_then(Output::to_raw);
        end.attempt = None;
        end.attempts = Some(execution.attempts);
        end.cache_hit = tool.spec.cache_ttl.map(|_| execution.cache_hit);
        let cost = match (execution.cache_hit, runs) {
            // A run before a crash was paid for, whether or not it is whose result this is.
            (true, _) if attempt > 1 => tool.spec.price().or(Some(Decimal::ZERO)),
            (true, _) => Some(Decimal::ZERO),
            (false, 0) => None,
            (false, _) => tool.spec.price(),
        };
        end.cost = cost;
        end.usage = self.used_inside(&call.position);
        end.latency_ms = Some(elapsed_ms(clock));
        end.status = Some(if execution.result.is_ok() { Status::Ok } else { Status::Error });
        end.output = output;
        end.error = execution.result.as_ref().err().cloned();
        hold.spend(Used::cost(cost.unwrap_or_default()));
        if running.0.has_called() {
            // What it was made from is on the log before it.
            steps.writer.settle_content().await?;
        }
        self.end(end, execution.result.map(Output::into_json), &call.name).await
    }

    /// Records the result of a call; one that is too large is a failure.
    pub(super) async fn end(
        &self,
        mut end: StepEvent,
        result: Outcome,
        name: &str,
    ) -> Result<Outcome, Interrupt> {
        match self.append(end.clone(), Weight::Content).await {
            Err(Halt::Journal(journal::Error::TooLarge { size, max })) => {
                let failure = Failure::new(
                    code::RESULT_TOO_LARGE,
                    format!(
                        "the result of {name} makes an event of {size} bytes; at most {max} can be recorded"
                    ),
                );
                end.status = Some(Status::Error);
                end.output = None;
                end.error = Some(failure.clone());
                self.append(end, Weight::Content).await?;
                Ok(Err(failure))
            }
            appended => {
                appended?;
                Ok(result)
            }
        }
    }

    /// What the calls and replies inside a call have used, in earlier runs too.
    pub(super) fn used_inside(&self, call: &Position) -> Option<ResultUsage> {
        let used = self.steps().ledger().used_of(call);
        (used != Used::default()).then(|| used.into())
    }

    pub(super) fn count(&self, tool: &str, well: bool) {
        let status = if well { "ok" } else { "error" };
        metrics().steps.with_label_values(&["tool"]).inc();
        metrics().tool_calls.with_label_values(&[self.label(tool), status]).inc();
    }

    /// The name of a tool or an agent as a label, if there is one.
    fn label<'a>(&self, name: &'a str) -> &'a str {
        let shared = &self.steps().shared;
        let known = shared.registry.get(name).is_some() || shared.agents.contains_key(name);
        if known { name } else { UNKNOWN }
    }

    fn context(&self, call: &Call, tool: &Registered, around: &Arc<Around>) -> ToolContext {
        let steps = self.steps();
        let identity = &steps.identity;
        let inside = Scope::new(Arc::clone(&self.frame), Some(Arc::clone(around)));
        ToolContext::builder(identity.session.clone(), identity.turn.clone(), &call.position)
            .names(self.frame.name(), &tool.spec.name)
            .timeout(tool.spec.timeout)
            .cancelled(self.frame.cancelled.child_token())
            .environment(steps.shared.environment.clone())
            .caller(Arc::new(inside))
            .build()
    }

    /// Appends an event. One that is too large goes without its arguments and with the start of its tool's name:
    /// the reply that made the call, which is on the log, has both.
    pub(super) async fn append(&self, mut event: StepEvent, weight: Weight) -> Result<(), Halt> {
        let writer = &self.steps().writer;
        match writer.append(event.clone(), weight).await {
            Err(Halt::Journal(journal::Error::TooLarge { .. })) => {
                event.arguments = None;
                event.arguments_raw = None;
                event.tool = event.tool.map(|name| name.chars().take(64).collect());
                writer.append(event, weight).await
            }
            other => other,
        }
    }

    pub(super) fn call_event(&self, kind: EventType, call: &Call) -> StepEvent {
        let mut event = self.event(kind, &call.position);
        event.cause = call.position.cause();
        event.tool = Some(call.name.clone());
        event.input_hash = Some(call.input.clone());
        event.arguments_hash = call.arguments_hash();
        match &call.plan {
            CallPlan::Run(Arguments { canonical }) => {
                event.arguments = RawValue::from_string(canonical.clone()).ok();
            }
            CallPlan::Answer(_) => event.arguments_raw = Some(call.raw_arguments.clone()),
        }
        event
    }
}

/// What a call of it costs, if it costs anything.
pub(super) fn price(callee: Option<&Callee>) -> Option<Decimal> {
    match callee? {
        Callee::Tool(tool) => tool.spec.price(),
        Callee::Agent(_) => None,
    }
}

/// How long a call takes at most: all its attempts, and the waits between them.
fn most(callee: Option<&Callee>) -> Duration {
    match callee {
        Some(Callee::Tool(tool)) => {
            let attempts = tool.spec.retry.max.saturating_add(1);
            tool.spec.timeout.saturating_add(tool.spec.retry.longest_wait()).saturating_mul(attempts)
        }
        // Its own steps are what runs.
        Some(Callee::Agent(_)) => Duration::ZERO,
        None => UNLIMITED,
    }
}

fn unknown_outcome(name: &str) -> Failure {
    let message = format!(
        "the call of {name} had started when its worker died: whether it took effect is unknown, and it was not run \
         again"
    );
    Failure::new(code::UNKNOWN_OUTCOME, message)
}

fn reports(tool: &Registered) -> bool {
    tool.spec.on_unknown_outcome == UnknownOutcome::Report
}
