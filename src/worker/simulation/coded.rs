//! An agent in code, and a tool that calls tools: everything that they do is made of what they were told before, which is
//! never the same twice.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::outside::Outside;
use super::world::{Fate, Gate};
use crate::agent::{AgentContext, AgentError, StepContext, StepEffect};
use crate::tool::{Output, Spec, Tool, ToolContext, ToolError};
use crate::turn::{Failure, Message};

/// What the turn's `shape` says, part after part; the characters of a part run side by side:
///
/// | character | is |
/// | --- | --- |
/// | `x`, `r`, `n` | a direct call of `rerun`, `report`, `nests` |
/// | `i` | a direct call of `rerun` under an id |
/// | `s`, `o`, `v` | a step, a step that runs at most once, a value of chance |
/// | `m` | a question to the model |
/// | `b` | a call of the agent `b`, a model with tools |
pub(super) async fn play(ctx: AgentContext) -> Result<String, AgentError> {
    let outside = ctx.deps::<Outside>()?.clone();
    let _busy = outside.busy(ctx.session_id(), ctx.turn_id());
    let shape = ctx.metadata().get("shape").cloned().unwrap_or_default();
    let mut told = json!([]);
    for (part, steps) in shape.split(',').enumerate() {
        let steps = steps.chars().enumerate().map(|(index, what)| {
            let id = format!("{part}.{index}");
            step(&ctx, &outside, what, id, told.clone())
        });
        let all = join_all(steps.collect::<Vec<_>>()).await;
        told = all.into_iter().collect();
    }
    Ok(format!("answer {told}"))
}

/// What came of a step, a failure too.
async fn step(ctx: &AgentContext, outside: &Outside, what: char, id: String, told: Value) -> Value {
    let read =
        |result: Result<Output, Failure>| result.and_then(|output| output.read().map_err(|_| unreachable!()));
    let of = json!({"of": told});
    let run = |step: StepContext| {
        let (outside, of) = (outside.clone(), of.clone());
        async move { outside.own_step(&step, &of).await }
    };
    let result = match what {
        'x' => read(ctx.call("rerun", &of).await),
        'r' => read(ctx.call("report", &of).await),
        'n' => read(ctx.call("nests", &of).await),
        'i' => read(ctx.call("rerun", &of).id(id).await),
        's' => ctx.step(&id, StepEffect::Write, run).await,
        'o' => ctx.once(&id, run).await,
        'v' => ctx.uuid().await.map(Value::String),
        'm' => ctx.ask([Message::User { content: of.to_string() }]).await.map(|reply| json!(reply.text)),
        _ => ctx.call_agent("b", of.to_string()).await.map(Value::String),
    };
    result.unwrap_or_else(|failure| json!(failure.to_string()))
}

impl Outside {
    /// A step of an agent's own.
    async fn own_step(&self, step: &StepContext, of: &Value) -> Result<Value, ToolError> {
        self.ran(step.idempotency_key(), of, step.idempotency_key().contains("/once:"));
        self.work().await
    }

    /// Work that takes its time, and may fail.
    pub(super) async fn work(&self) -> Result<Value, ToolError> {
        if self.sim.gate(Gate::Tool, self.process).await != Fate::Goes {
            return Err(ToolError::permanent("not this time"));
        }
        let nonce = self.sim.lock().nonce();
        Ok(json!({"n": nonce}))
    }

    /// What runs under a key: never with two inputs, and with `once` never twice.
    pub(super) fn ran(&self, key: &str, arguments: &Value, once: bool) {
        let mut world = self.sim.lock();
        let arguments = arguments.to_string();
        let (first, runs) = world.ran.entry(key.to_owned()).or_insert_with(|| (arguments.clone(), 0));
        *runs += 1;
        let (first, runs) = (first.clone(), *runs);
        if first != arguments {
            world.broken(|| format!("{key} ran with {first} and with {arguments}"));
        }
        if runs > 1 && once {
            world.broken(|| format!("{key} ran {runs} times, and may run once"));
        }
    }
}

/// A tool that calls tools: two after one another, and two side by side.
pub(super) struct Nests;

#[async_trait]
impl Tool for Nests {
    fn spec(&self) -> Spec {
        Spec::new("nests", "A tool that calls tools.", json!({"type": "object"}))
    }

    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError> {
        let outside = context.deps::<Outside>()?.clone();
        let _busy = outside.busy(context.session_id(), context.turn_id());
        outside.ran(context.idempotency_key(), &arguments, false);
        let told = |result: Result<Output, Failure>| match result {
            Ok(output) => output.read().unwrap_or_default(),
            Err(failure) => json!(failure.to_string()),
        };
        let first: Value = told(context.call("rerun", json!({"of": arguments})).await);
        let second: Value = told(context.call("rerun", json!({"of": first})).await);
        let of = json!({"of": second});
        let (a, b) = tokio::join!(context.call("rerun", &of), context.call("report", &of));
        Output::of(&json!([told(a), told(b)]))
    }
}

/// For the registry.
pub(super) fn nests() -> Arc<dyn Tool> {
    Arc::new(Nests)
}
