//! The events of calls: that one begins, that it was refused, what came of it.

use serde_json::value::RawValue;

use super::scope::Scope;
use super::{Interrupt, Weight};
use crate::journal;
use crate::metrics::{UNKNOWN, metrics};
use crate::record::{EventType, ResultUsage, Status, StepEvent};
use crate::tool::Decimal;
use crate::turn::{Arguments, Call, CallPlan, Failure, Position, Used, code};
use crate::worker::driver::Halt;
use crate::worker::outbox::short;

/// What came of a call: canonical JSON, or why it failed.
pub(super) type Outcome = Result<String, Failure>;

impl Scope {
    /// Records that a step begins. Confirmed, it is known to be on the log before it runs: what must not run twice
    /// (rule 15), and what must not be taken for another branch's (rule 27).
    pub(super) async fn start(&self, mut event: Box<StepEvent>, confirmed: bool) -> Result<(), Halt> {
        if !confirmed {
            return self.append(&mut event, Weight::Note).await;
        }
        self.append(&mut event, Weight::Content).await?;
        self.steps().writer.confirm_content().await
    }

    /// A result without a start: nothing ran.
    pub(super) async fn refuse(&self, call: &Call, failure: Failure) -> Result<Outcome, Interrupt> {
        self.refuse_at(call, failure, None).await
    }

    pub(super) async fn refuse_at(
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
        self.append(&mut event, Weight::Content).await?;
        Ok(Err(failure))
    }

    /// Records the result of a call; one that is too large is a failure.
    pub(super) async fn end(
        &self,
        mut end: Box<StepEvent>,
        result: Outcome,
        name: &str,
    ) -> Result<Outcome, Interrupt> {
        let StepEvent { tool, arguments, arguments_raw, .. } = &*end;
        let asked = (tool.clone(), arguments.clone(), arguments_raw.clone());
        match self.append(&mut end, Weight::Content).await {
            Err(Halt::Journal(journal::Error::TooLarge { size, max })) => {
                // They may fit without the output.
                (end.tool, end.arguments, end.arguments_raw) = asked;
                let failure = Failure::new(
                    code::RESULT_TOO_LARGE,
                    format!(
                        "the result of {name} makes an event of {size} bytes; at most {max} can be recorded"
                    ),
                );
                end.status = Some(Status::Error);
                end.output = None;
                end.error = Some(failure.clone());
                self.append(&mut end, Weight::Content).await?;
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
    pub(super) fn label<'a>(&self, name: &'a str) -> &'a str {
        let shared = &self.steps().shared;
        let known = shared.registry.get(name).is_some() || shared.agents.contains_key(name);
        if known { name } else { UNKNOWN }
    }

    /// Appends an event. One that is too large goes without its arguments and with the start of its tool's name: the
    /// reply that made the call has both; of a direct call their hash is left, which is what a rerun goes by.
    pub(super) async fn append(&self, event: &mut StepEvent, weight: Weight) -> Result<(), Halt> {
        let writer = &self.steps().writer;
        match writer.append(event, weight).await {
            Err(Halt::Journal(journal::Error::TooLarge { .. })) => {
                event.arguments = None;
                event.arguments_raw = None;
                event.tool = event.tool.take().map(|name| name.chars().take(64).collect());
                writer.append(event, weight).await
            }
            other => other,
        }
    }

    pub(super) fn call_event(&self, kind: EventType, call: &Call) -> Box<StepEvent> {
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
