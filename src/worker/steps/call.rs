//! The step of a call: of a reply, where all calls run side by side, or made directly by code.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::activity::{Active, UNLIMITED};
use super::record::Outcome;
use super::scope::{Callee, Scope};
use super::tool::{Begun, reports};
use super::{Again, Hold, Interrupt, MAX_DEPTH, changed};
use crate::journal::{self, Content};
use crate::metrics::metrics;
use crate::tool::{Decimal, DirectArguments, Registered};
use crate::turn::{
    Arguments, Call, CallPlan, CallResult, Decision, Failure, Hash, Position, Recorded, Used, code,
};
use crate::worker::bind::BoundAgent;
use crate::worker::driver::Halt;

/// A call that is to run.
struct Ready {
    call: Box<Call>,
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

enum Planned {
    Recorded(CallResult),
    Run(Box<Call>, u32),
}

impl Scope {
    /// The result of every call of a reply, in the order of the calls. Nothing runs if any record was made from another
    /// input.
    pub(super) async fn calls(&self, calls: &[Call], holds: Vec<Hold>) -> Result<Vec<CallResult>, Interrupt> {
        self.goes_on()?;
        let mut planned = Vec::with_capacity(calls.len());
        for (call, hold) in calls.iter().zip(holds) {
            let callee = self.frame.callee(&call.name).cloned();
            let plan = self.plan(Call { position: self.at(&call.position), ..call.clone() }, self.keeps())?;
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
            Decision::Run { attempt } => return Ok(Planned::Run(Box::new(call), attempt)),
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
        // Each is as large as all that it may come to: what is rare is not to be a part of every call that runs.
        match self.runs(&call, callee.as_ref(), attempt) {
            Ok(Runs::Tool(tool, value)) => {
                self.run_tool(&call, tool, value, Begun { attempt, active: &active, hold, pinned }).await
            }
            Ok(Runs::Agent(agent, arguments)) => {
                // Its own steps are what runs.
                active.give_up();
                Box::pin(self.run_agent(&call, agent, arguments, attempt, pinned)).await
            }
            Err(Refused { failure, cost }) => {
                hold.spend(Used::cost(cost.unwrap_or_default()));
                Box::pin(self.refuse_at(&call, failure, cost)).await
            }
        }
    }

    /// What runs where a call calls something.
    ///
    /// # Errors
    /// Nothing does.
    fn runs<'a>(
        &self,
        call: &'a Call,
        callee: Option<&'a Callee>,
        attempt: u32,
    ) -> Result<Runs<'a>, Refused> {
        let arguments = match &call.plan {
            CallPlan::Answer(failure) => return Err(failure.clone().into()),
            CallPlan::Run(arguments) => arguments,
        };
        let Some(callee) = callee else {
            return Err(Failure::new(code::UNKNOWN_TOOL, format!("unknown tool '{}'", call.name)).into());
        };
        if self.depth() >= MAX_DEPTH {
            let message = format!(
                "the call of {} stands inside {MAX_DEPTH} others, which is as deep as calls may stand",
                call.name
            );
            return Err(Failure::new(code::CALL_DEPTH_LIMIT, message).into());
        }
        let tool = match callee {
            Callee::Agent(agent) => return Ok(Runs::Agent(agent, arguments)),
            Callee::Tool(tool) => tool,
        };
        let value = arguments.to_value()?;
        tool.check(&value)?;
        if attempt > 1 && (reports(tool) || self.is_off(tool)) {
            // It may have run: it counts as paid for.
            return Err(Refused { failure: unknown_outcome(&call.name), cost: tool.spec.price() });
        }
        if self.is_off(tool) {
            let message = format!("the tool {} is turned off for now", call.name);
            return Err(Failure::new(code::TOOL_DISABLED, message).into());
        }
        Ok(Runs::Tool(tool, value))
    }

    fn is_off(&self, tool: &Registered) -> bool {
        self.steps().shared.switches.tool_is_off(&tool.spec.name)
    }
}

/// What runs where a call calls something.
enum Runs<'a> {
    Tool(&'a Arc<Registered>, Value),
    Agent(&'a Arc<BoundAgent>, &'a Arguments),
}

/// Nothing runs, and what that costs all the same.
struct Refused {
    failure: Failure,
    cost: Option<Decimal>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, cost: None }
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
