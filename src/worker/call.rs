//! The calls of one reply, each a step: what is recorded is returned, the rest runs side by side.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::driver::{Halt, Shared, Stop, changed, elapsed_ms, event};
use super::outbox::short;
use crate::journal::{self, Content, Journal, Receipt, TurnLog};
use crate::metrics::{UNKNOWN, metrics};
use crate::record::{EventType, Identity, Status, StepEvent};
use crate::tool::{Decimal, Registered, ToolContext, UnknownOutcome, execute};
use crate::turn::{Arguments, Call, CallPlan, CallResult, Decision, Failure, IdempotencyKey, code, decide};

/// What the calls of a reply run with.
pub(super) struct Caller<'a> {
    pub shared: &'a Shared,
    pub journal: &'a Journal,
    pub identity: &'a Identity,
    pub agent: &'a str,
    pub tools: &'a [Arc<Registered>],
    pub stop: &'a Stop,
    /// Cancelled when the turn is, or when what still runs is given up.
    pub cancel: &'a CancellationToken,
}

/// What came of the calls of a reply.
pub(super) struct Batch {
    /// The results in the order of the calls, or why the turn fails: a record was made from another input.
    pub outcome: Result<Vec<CallResult>, Failure>,
    /// Appends that are not acknowledged yet.
    pub receipts: Vec<Receipt>,
}

enum Planned {
    Recorded(CallResult),
    Run(Call, u32),
}

impl Caller<'_> {
    /// Every call's result. None: they were stopped. Nothing runs if any record was made from another input.
    ///
    /// Cancel safety: what was appended stays; the calls run again under their keys.
    pub(super) async fn all(&self, calls: Vec<Call>, log: &mut TurnLog) -> Result<Option<Batch>, Halt> {
        let mut planned = Vec::with_capacity(calls.len());
        for call in calls {
            match self.plan(call, log) {
                Ok(plan) => planned.push(plan),
                Err(failure) => {
                    return Ok(Some(Batch { outcome: Err(failure), receipts: Vec::new() }));
                }
            }
        }
        let running = try_join_all(planned.into_iter().map(|plan| self.one(plan)));
        let done = tokio::select! {
            biased;
            done = running => done?,
            () = self.stop.now.cancelled() => return Ok(None),
        };
        let (results, receipts): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        Ok(Some(Batch { outcome: Ok(results), receipts: receipts.into_iter().flatten().collect() }))
    }

    fn plan(&self, call: Call, log: &mut TurnLog) -> Result<Planned, Failure> {
        match decide(log.steps.remove(&call.position), &call.input) {
            Decision::Return(Content::Result(result, cost)) => {
                Ok(Planned::Recorded(CallResult { position: call.position, result, cost }))
            }
            Decision::Return(Content::Reply(_)) => {
                Err(changed(&call.position, "a reply of the model is recorded there"))
            }
            Decision::Changed { recorded } => {
                let name: String = call.name.chars().take(64).collect();
                let what = call.what_changed(&recorded, log.arguments.get(&call.position));
                Err(changed(&call.position, &format!("a call of {name} is recorded there, and {what}")))
            }
            Decision::Run { attempt } => Ok(Planned::Run(call, attempt)),
        }
    }

    async fn one(&self, plan: Planned) -> Result<(CallResult, Vec<Receipt>), Halt> {
        let (call, attempt) = match plan {
            Planned::Recorded(result) => {
                metrics().steps_replayed.with_label_values(&["tool"]).inc();
                return Ok((result, Vec::new()));
            }
            Planned::Run(call, attempt) => (call, attempt),
        };
        match &call.plan {
            CallPlan::Answer(failure) => self.refuse(&call, failure.clone()).await,
            CallPlan::Run(arguments) => match self.check(&call, arguments) {
                Ok((tool, _)) if attempt > 1 && (reports(tool) || self.is_off(tool)) => {
                    let failure = Failure::new(
                        code::UNKNOWN_OUTCOME,
                        format!(
                            "the call of {} had started when its worker died: whether it took effect is unknown, \
                             and it was not run again",
                            call.name
                        ),
                    );
                    // It may have run: it counts as paid for.
                    self.refuse_at(&call, failure, tool.spec.price()).await
                }
                Ok((tool, _)) if self.is_off(tool) => {
                    let message = format!("the tool {} is turned off for now", call.name);
                    self.refuse(&call, Failure::new(code::TOOL_DISABLED, message)).await
                }
                Ok((tool, value)) => self.run(&call, tool, value, attempt).await,
                Err(failure) => self.refuse(&call, failure).await,
            },
        }
    }

    fn is_off(&self, tool: &Registered) -> bool {
        self.shared.switches.tool_is_off(&tool.spec.name)
    }

    fn check(&self, call: &Call, arguments: &Arguments) -> Result<(&Arc<Registered>, Value), Failure> {
        let tool = self
            .tools
            .iter()
            .find(|tool| tool.spec.name == call.name)
            .ok_or_else(|| Failure::new(code::UNKNOWN_TOOL, format!("unknown tool '{}'", call.name)))?;
        let value = arguments.to_value()?;
        tool.check(&value)?;
        Ok((tool, value))
    }

    /// A result without a start: nothing ran.
    async fn refuse(&self, call: &Call, failure: Failure) -> Result<(CallResult, Vec<Receipt>), Halt> {
        self.refuse_at(call, failure, None).await
    }

    async fn refuse_at(
        &self,
        call: &Call,
        failure: Failure,
        cost: Option<Decimal>,
    ) -> Result<(CallResult, Vec<Receipt>), Halt> {
        self.count(&call.name, false);
        // It may quote the arguments, and more than once.
        let failure = short(&failure);
        let mut event = self.event(EventType::ToolResult, call);
        event.status = Some(Status::Error);
        event.error = Some(failure.clone());
        event.cost = cost;
        let receipt = self.append(event).await?;
        let result = CallResult {
            position: call.position.clone(),
            result: Err(failure),
            cost: cost.unwrap_or_default(),
        };
        Ok((result, vec![receipt]))
    }

    async fn run(
        &self,
        call: &Call,
        tool: &Arc<Registered>,
        value: Value,
        attempt: u32,
    ) -> Result<(CallResult, Vec<Receipt>), Halt> {
        let mut start = self.event(EventType::ToolStart, call);
        start.attempt = Some(attempt);
        start.deterministic = tool.spec.deterministic.then_some(true);
        start.external_io_mode = Some(self.shared.environment.external_io_mode);
        start.started_at_ms = Some((self.shared.clock)());
        let mut end = StepEvent { kind: EventType::ToolResult, ..start.clone() };
        let mut started = vec![self.append(start).await?];
        if reports(tool) {
            // Found started, it never runs again: so it is known to be on the log before it runs (rule 15).
            for receipt in started.drain(..) {
                self.journal.confirmed(receipt.await?).await?;
            }
        }

        // Before it runs: it may be what ends the process.
        metrics().tool_reruns.with_label_values(&[self.label(&call.name)]).inc_by(u64::from(attempt > 1));
        let context = self.context(call, tool);
        let clock = Instant::now();
        let mut execution = execute(tool, &context, value, attempt).await;
        if execution.result.is_err() && self.stop.now.is_cancelled() && !reports(tool) {
            // It failed while it was given up, or because it was: no result. Whoever goes on has the retries that are
            // left; `all` hears of the stop.
            return std::future::pending().await;
        }
        // What ends a turn must not become something else for its length.
        execution.result = execution.result.map_err(|failure| short(&failure));

        self.count(&call.name, execution.result.is_ok());
        let (metrics, name) = (metrics(), self.label(&call.name));
        metrics.tool_duration.with_label_values(&[name]).observe(clock.elapsed().as_secs_f64());
        let runs = execution.attempts.saturating_add(1).saturating_sub(attempt);
        metrics.tool_attempts.with_label_values(&[name]).inc_by(runs.into());

        let output = execution.result.as_ref().ok().and_then(|output| output.to_raw());
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
        end.latency_ms = Some(elapsed_ms(clock));
        end.status = Some(if execution.result.is_ok() { Status::Ok } else { Status::Error });
        end.output = output;
        end.error = execution.result.as_ref().err().cloned();
        let mut result = execution.result.map(crate::tool::Output::into_json);
        let ended = match self.append(end.clone()).await {
            Err(Halt::Journal(journal::Error::TooLarge { size, max })) => {
                let failure = Failure::new(
                    code::RESULT_TOO_LARGE,
                    format!(
                        "the result of tool {} makes an event of {size} bytes; at most {max} can be recorded",
                        call.name
                    ),
                );
                end.status = Some(Status::Error);
                end.output = None;
                end.error = Some(failure.clone());
                result = Err(failure);
                self.append(end).await?
            }
            other => other?,
        };
        let result = CallResult { position: call.position.clone(), result, cost: cost.unwrap_or_default() };
        started.push(ended);
        Ok((result, started))
    }

    fn count(&self, tool: &str, well: bool) {
        let status = if well { "ok" } else { "error" };
        metrics().steps.with_label_values(&["tool"]).inc();
        metrics().tool_calls.with_label_values(&[self.label(tool), status]).inc();
    }

    /// A tool's name as a label, if it is one that the turn is offered.
    fn label<'a>(&self, tool: &'a str) -> &'a str {
        let offered = self.tools.iter().any(|offered| offered.spec.name == tool);
        if offered { tool } else { UNKNOWN }
    }

    fn context(&self, call: &Call, tool: &Registered) -> ToolContext {
        let Identity { session, turn, .. } = self.identity;
        ToolContext::builder(session.clone(), turn.clone(), &call.position)
            .names(self.agent, &tool.spec.name)
            .timeout(tool.spec.timeout)
            .cancelled(self.cancel.child_token())
            .environment(self.shared.environment.clone())
            .build()
    }

    /// Appends an event. One that is too large goes without its arguments and with the start of its tool's name:
    /// the reply that made the call, which is on the log, has both.
    async fn append(&self, mut event: StepEvent) -> Result<Receipt, Halt> {
        match self.journal.append(event.clone()).await {
            Err(journal::Error::TooLarge { .. }) => {
                event.arguments = None;
                event.arguments_raw = None;
                event.tool = event.tool.map(|name| name.chars().take(64).collect());
                Ok(self.journal.append(event).await?)
            }
            other => Ok(other?),
        }
    }

    fn event(&self, kind: EventType, call: &Call) -> StepEvent {
        let mut event = event(kind, self.identity, Some(self.agent));
        let Identity { session, turn, .. } = self.identity;
        event.idempotency_key = Some(IdempotencyKey::new(session, turn, &call.position));
        event.cause = call.position.cause();
        event.position = Some(call.position.clone());
        event.tool = Some(call.name.clone());
        event.input_hash = Some(call.input.clone());
        event.arguments_hash = call.arguments_hash();
        match &call.plan {
            CallPlan::Run(arguments) => {
                event.arguments = RawValue::from_string(arguments.canonical.clone()).ok();
            }
            CallPlan::Answer(_) => event.arguments_raw = Some(call.raw_arguments.clone()),
        }
        event
    }
}

fn reports(tool: &Registered) -> bool {
    tool.spec.on_unknown_outcome == UnknownOutcome::Report
}
