//! Steps that are dropped and begun again, in one run of the code.

use std::time::Duration;

use futures_util::poll;
use turnmill::testing::{calls, says};

use super::*;

#[tokio::test(start_paused = true)]
async fn once_that_was_dropped_does_not_run_a_second_time() {
    async fn mails(ctx: AgentContext) -> Answer {
        let mail = || {
            let outside = ctx.deps::<World>().unwrap().clone();
            ctx.once::<(), _>("mail", move |_| async move {
                outside.note("sent");
                tokio::time::sleep(Duration::from_secs(5)).await;
                Ok(())
            })
        };
        assert!(tokio::time::timeout(Duration::from_secs(1), mail()).await.is_err());
        Ok(mail().await.unwrap_err().code.into())
    }
    let world = World::default();
    let mut kit = Kit::new(app_with(&world, mails));
    assert_eq!(output(&kit.run(&go()).await), "unknown_outcome");
    assert_eq!(world.noted(), ["sent"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_had_not_begun_when_it_was_dropped_is_counted_once() {
    let (_, result) = run(|ctx: AgentContext| async move {
        let mut first = ctx.call(Pay, cents(1)).id("x").into_future();
        assert!(poll!(&mut first).is_pending());
        drop(first);
        Answer::Ok(ctx.call(Pay, cents(1)).id("x").await?.read()?)
    })
    .await;
    assert_eq!((output(&result), result.usage.tool_calls), ("paid 1", 1));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_called_again_under_its_id_finds_what_it_was_told() {
    async fn sub(ctx: AgentContext) -> Answer {
        let drawn: u64 = ctx.call(Draw, json!({})).await?.read()?;
        let chance = ctx.random().await? % 100;
        let said = ctx.run_loop(ctx.input()).await?.output;
        ctx.call(Pay, cents(drawn * 100 + chance)).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(said)
    }
    async fn main(ctx: AgentContext) -> Answer {
        let call = || ctx.call_agent("sub", "q").id("x").into_future();
        assert!(tokio::time::timeout(Duration::from_secs(1), call()).await.is_err());
        Ok(call().await?)
    }
    let world = World::default();
    let agents = |world: &World| {
        let main = AgentSpec::new("a", "scripted").code(main);
        tools(world).agent(main).agent(AgentSpec::new("sub", "scripted").tools(["pay"]).code(sub))
    };
    let mut kit = Kit::new(agents(&world));
    let mut turn = go();
    let replies = [calls([("pay", cents(7))]), says("Well.")];
    turn.metadata.insert("script.sub".into(), json!({"replies": replies}).to_string());
    let result = kit.run(&turn).await;
    assert_eq!((output(&result), world.noted().len()), ("Well.", 2), "{}", kit.golden());
    assert_eq!((result.usage.tool_calls, result.usage.model_calls), (4, 2));
}

/// Pay at the first try, draw at the second.
#[turnmill::tool(writes, retry = 1)]
async fn fickle(ctx: &ToolContext) -> Result<(), ToolError> {
    if ctx.attempt() == 1 {
        ctx.call(Pay, cents(1)).await?;
        return Err(ToolError::retryable("no"));
    }
    ctx.call(Draw, json!({})).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_attempt_has_used_counts_after_a_crash_too() {
    let program = || {
        let agent = AgentSpec::new("a", "scripted").tools(["fickle"]);
        tools(&World::default()).tool(Fickle).agent(agent)
    };
    let turn = turn("a", "go", [calls([("fickle", json!({}))]), says("Done.")]);
    let whole = Kit::new(program()).run(&turn).await.usage;
    assert_eq!((whole.tool_calls, whole.cost.to_string()), (3, "0.25".into()));
    let mut kit = Kit::new(program());
    assert!(kit.crash_before(&turn, EventType::ToolResult, Some("m0.c0")).await);
    assert_eq!(kit.run(&turn).await.usage, whole);
    assert_eq!(at(&kit, "m0.c0").pop().unwrap().usage.unwrap().tool_calls, 2);
}
