//! What runs where a call calls a tool.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::activity::Active;
use super::record::Outcome;
use super::scope::{Around, Scope};
use super::{Hold, Interrupt};
use crate::metrics::metrics;
use crate::record::{EventType, Status};
use crate::tool::{Decimal, Output, Registered, ToolContext, UnknownOutcome, execute};
use crate::turn::{Call, Used};
use crate::worker::driver::elapsed_ms;
use crate::worker::outbox::short;

/// A call that runs.
pub(super) struct Begun<'a> {
    pub(super) attempt: u32,
    pub(super) active: &'a Arc<Active>,
    pub(super) hold: Hold,
    pub(super) pinned: bool,
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
    /// Runs the tool of a call, and records what comes of it.
    pub(super) async fn run_tool(
        &self,
        call: &Call,
        tool: &Arc<Registered>,
        value: Value,
        begun: Begun<'_>,
    ) -> Result<Outcome, Interrupt> {
        let Begun { attempt, active, hold, pinned } = begun;
        let steps = self.steps();
        let started_at_ms = (steps.shared.clock)();
        let event = |kind| {
            let mut event = self.call_event(kind, call);
            event.deterministic = tool.spec.deterministic.then_some(true);
            event.external_io_mode = Some(steps.shared.environment.external_io_mode);
            event.started_at_ms = Some(started_at_ms);
            event
        };
        let mut start = event(EventType::ToolStart);
        start.attempt = Some(attempt);
        self.start(start, reports(tool) || pinned).await?;

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
        let mut end = event(EventType::ToolResult);
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
}

pub(super) fn reports(tool: &Registered) -> bool {
    tool.spec.on_unknown_outcome == UnknownOutcome::Report
}
