//! Whatever record a worker dies before, and whatever it had handed over and lost: one key has one input, a position one
//! content, and the turn comes to its end.

use turnmill::agent::StepEffect;
use turnmill::testing::{calls, every_crash, says};

use super::*;

/// Every crash of a turn of this program; the text that its answers begin with.
async fn survives(app: impl FnMut() -> App, turn: &Turn, begins: &str) {
    let mut crashes = 0;
    every_crash(app, turn, |kit, result| {
        crashes += 1;
        assert!(output(result).starts_with(begins), "{result:?}");
        let first = &kit.results()[0];
        assert_eq!((first.output.as_deref(), first.usage), (result.output.as_deref(), result.usage));
    })
    .await;
    assert!(crashes > 10, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn a_call_made_of_what_another_one_returned() {
    survives(|| app(draw_and_pay), &go(), "paid ").await;
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_after_one_another() {
    async fn many(ctx: AgentContext) -> Answer {
        let draws =
            futures_util::future::try_join_all((0..3).map(|_| ctx.call(Draw, json!({})).into_future()))
                .await?;
        let pay = |draw: turnmill::tool::Output| {
            let cents: u64 = draw.read().unwrap();
            ctx.call(Pay, json!({"cents": cents})).into_future()
        };
        let paid = futures_util::future::try_join_all(draws.into_iter().map(pay)).await?;
        Ok(format!("{} paid", paid.len()))
    }
    survives(|| app(many), &go(), "3 paid").await;
}

#[tokio::test(start_paused = true)]
async fn chains_side_by_side() {
    async fn chains(ctx: AgentContext) -> Answer {
        let chain = |name: &'static str| {
            let ctx = ctx.clone();
            async move {
                let cents: u64 = ctx.call(Draw, json!({})).id(name).await?.read()?;
                ctx.call(Pay, json!({"cents": cents})).id(name).await?;
                Ok::<_, AgentError>(())
            }
        };
        tokio::try_join!(chain("a"), chain("b"))?;
        Ok("both".into())
    }
    survives(|| app(chains), &go(), "both").await;
}

#[tokio::test(start_paused = true)]
async fn steps_and_values() {
    async fn own(ctx: AgentContext) -> Answer {
        let world: World = ctx.deps::<World>()?.clone();
        let seen: u64 = ctx.step("look", StepEffect::Read, |_| async move { Ok(world.next()) }).await?;
        let chance = ctx.random().await? % 100;
        ctx.call(Pay, json!({"cents": seen * 100 + chance})).await?;
        let now = ctx.now().await?.duration_since(std::time::SystemTime::UNIX_EPOCH)?.as_millis();
        ctx.call(Pay, json!({"cents": u64::try_from(now)?})).await?;
        let id = ctx.uuid().await?;
        ctx.call(Pay, json!({"cents": id.bytes().map(u64::from).sum::<u64>()})).await?;
        Ok("paid".into())
    }
    survives(|| app(own), &go(), "paid").await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_between_calls() {
    async fn around(ctx: AgentContext) -> Answer {
        let seen: u64 = ctx.call(Draw, json!({})).await?.read()?;
        let message = turnmill::turn::Message::User { content: format!("We have {seen}.") };
        let said = ctx.run_loop(vec![message]).await?;
        ctx.call(Pay, json!({"cents": seen})).await?;
        Ok(format!("{} and paid", said.output))
    }
    let turn = turn("a", "go", [calls([("draw", json!({})), ("pay", cents(3))]), says("Looked")]);
    survives(|| app(around), &turn, "Looked and paid").await;
}

/// Pay what is drawn, twice.
#[turnmill::tool(writes, retry = 1)]
async fn settle(ctx: &ToolContext) -> Result<(), ToolError> {
    for _ in 0..2 {
        let cents: u64 = ctx.call(Draw, json!({})).await?.read()?;
        ctx.call(Pay, json!({"cents": cents})).await?;
    }
    if ctx.attempt() == 1 {
        return Err(ToolError::retryable("once more"));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn tools_that_call_tools() {
    let program = || {
        let agent = AgentSpec::new("a", "scripted").tools(["settle"]);
        tools(&World::default()).tool(Settle).agent(agent)
    };
    let turn = turn("a", "go", [calls([("settle", json!({})), ("settle", json!({}))]), says("Done.")]);
    survives(program, &turn, "Done.").await;
}

#[tokio::test(start_paused = true)]
async fn agents_that_call_agents() {
    let program = || {
        let front = AgentSpec::new("a", "scripted").sub_agents(["billing", "payer"]);
        let billing = AgentSpec::new("billing", "scripted").tools(["draw", "pay"]).sub_agents(["payer"]);
        let payer = AgentSpec::new("payer", "scripted").code(draw_and_pay);
        tools(&World::default()).agent(front).agent(billing).agent(payer)
    };
    let hand = |name: &'static str| (name, json!({"input": "Pay."}));
    let mut turn = turn("a", "go", [calls([hand("billing"), hand("payer")]), says("Done.")]);
    let billing = [calls([("draw", json!({})), hand("payer")]), says("Billed.")];
    turn.metadata.insert("script.billing".into(), json!({"replies": billing}).to_string());
    survives(program, &turn, "Done.").await;
}
