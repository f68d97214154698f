//! Agents in code whose every call is made of what the one before it returned, which is never the same twice.

use std::sync::Arc;

use serde_json::{Value, json};

use super::outside::Outside;
use crate::agent::{AgentContext, AgentError, StepContext, StepEffect};
use crate::tool::ToolError;
use crate::turn::Message;

type Answer = Result<String, AgentError>;

async fn next(ctx: &AgentContext, of: &Value) -> Result<Value, AgentError> {
    Ok(ctx.call("echo", json!({"of": of})).await?.read()?)
}

/// Three calls, one after the other.
pub(super) async fn chain(ctx: AgentContext) -> Answer {
    let mut of = Value::Null;
    for _ in 0..3 {
        of = next(&ctx, &of).await?;
    }
    Ok(format!("done <{of}>"))
}

/// Two chains of two calls under ids, at the same time.
pub(super) async fn chains(ctx: AgentContext) -> Answer {
    let chain = |name: &'static str| {
        let ctx = ctx.clone();
        async move {
            let first: Value = ctx.call("echo", json!({})).id(name).await?.read()?;
            let second = ctx.call("echo", json!({"of": first})).id(format!("{name} again")).await?;
            Ok::<_, AgentError>(second)
        }
    };
    let (a, b) = tokio::try_join!(chain("a"), chain("b"))?;
    Ok(format!("done <{} {}>", a.as_json(), b.as_json()))
}

/// Two calls that never run, and one that is made of what they said.
pub(super) async fn failing(ctx: AgentContext) -> Answer {
    let first: Value = ctx.call("echo", json!({})).await?.read()?;
    let unknown = ctx.call("nope", json!({"of": first})).await.unwrap_err();
    next(&ctx, &json!(unknown.message)).await?;
    Ok("done".into())
}

/// A step of its own, at most once, and values of clock and chance, and calls made of them.
pub(super) async fn steps(ctx: AgentContext) -> Answer {
    let outside: Arc<Outside> = ctx.deps::<Arc<Outside>>()?.clone();
    let run = |of: Value| {
        let outside = Arc::clone(&outside);
        move |step: StepContext| async move { Ok::<_, ToolError>(outside.step(&step, of)) }
    };
    let seen: Value = ctx.step("look", StepEffect::Read, run(Value::Null)).await?;
    let echoed = next(&ctx, &seen).await?;
    let changed: Value = ctx.step("change/it", StepEffect::Write, run(echoed)).await?;
    let values = json!([ctx.random().await?, ctx.uuid().await?, changed]);
    next(&ctx, &values).await?;
    // Whether it took effect may not be known.
    let once: Result<Value, _> = ctx.once("greet", run(Value::Null)).await;
    let said = once.unwrap_or_else(|failure| json!(failure.code));
    next(&ctx, &said).await?;
    Ok(format!("done <{said}>"))
}

/// A call, the loop, and a call made of the loop's last word.
pub(super) async fn around(ctx: AgentContext) -> Answer {
    let first = next(&ctx, &Value::Null).await?;
    let said = ctx.run_loop(vec![Message::User { content: first.to_string() }]).await?;
    next(&ctx, &json!(said.output)).await?;
    Ok(said.output)
}

/// Two questions, the second and the call between them made of what was said.
pub(super) async fn asks(ctx: AgentContext) -> Answer {
    let first = ctx.ask(ctx.input()).await?.text.unwrap_or_default();
    let called = next(&ctx, &json!(first)).await?;
    let second = ctx.ask([Message::User { content: called.to_string() }]).await?;
    Ok(second.text.unwrap_or_default())
}

/// A call, a wait that is no step, and a call.
pub(super) async fn waits(ctx: AgentContext) -> Answer {
    let first = next(&ctx, &Value::Null).await?;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    next(&ctx, &first).await?;
    Ok("done".into())
}

/// A call of an agent that is a model, and one of an agent in code.
pub(super) async fn hands_on(ctx: AgentContext) -> Answer {
    let said = ctx.call_agent("agent_worker", "Begin.").await?;
    let done = ctx.call_agent("agent_chain", said).id("x").await;
    done.map_err(Into::into)
}
