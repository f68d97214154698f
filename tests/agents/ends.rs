//! What a step has ended is over: nothing hangs on it, and nothing makes up for it.

use std::time::Duration;

use futures_util::{StreamExt as _, poll, stream};
use turnmill::agent::StepEffect;
use turnmill::testing::{calls, says};

use super::*;

/// The result of a turn that comes to its end in less than two days.
async fn ended(kit: &mut Kit, turn: &Turn) -> TurnResult {
    let two_days = Duration::from_secs(2 * 24 * 3600);
    tokio::time::timeout(two_days, kit.run(turn)).await.expect("the turn hangs")
}

fn within(budget: Value) -> Turn {
    let mut turn = turn("a", "go", []);
    turn.budget = Some(serde_json::from_value(budget).unwrap());
    turn
}

#[tokio::test(start_paused = true)]
async fn calls_that_nobody_polls_do_not_keep_a_turn_that_has_ended() {
    async fn buffered(ctx: AgentContext) -> Answer {
        let pay = |n: u64| ctx.call(Pay, cents(n)).id(n.to_string()).into_future();
        let mut paid = stream::iter(1..=3).map(pay).buffer_unordered(2);
        while paid.next().await.is_some() {
            // The one beside it is not polled meanwhile.
            let _ = ctx.call(Draw, json!({})).await;
        }
        Ok("all".into())
    }
    let mut kit = Kit::new(app(buffered));
    assert_eq!(code(&ended(&mut kit, &within(json!({"tool_calls": 2}))).await), "tool_call_limit");

    async fn left(ctx: AgentContext) -> Answer {
        let mut slow = ctx.call("sleep", json!({"ms": 5000})).into_future();
        for _ in 0..3 {
            assert!(poll!(&mut slow).is_pending());
            tokio::task::yield_now().await;
        }
        std::future::pending().await
    }
    let mut kit = Kit::new(app(left));
    assert_eq!(code(&ended(&mut kit, &within(json!({"seconds": 60}))).await), "run_time_limit");
}

#[tokio::test(start_paused = true)]
async fn a_step_has_no_steps_inside() {
    for tool in ["pay_out", "pay"] {
        let began = tokio::time::Instant::now();
        let (_, result) = run(move |ctx: AgentContext| async move {
            let inner = ctx.clone();
            let done = ctx.step::<(), _>("x", StepEffect::Write, move |_| async move {
                let _ = inner.call(tool, cents(1)).await;
                Ok(())
            });
            Answer::Ok(format!("{:?}", done.await))
        })
        .await;
        assert_eq!(code(&result), "nested_step");
        assert!(began.elapsed() < Duration::from_secs(5), "nobody waits for the step that will never end");
    }
}

/// Call what it is told to.
#[turnmill::tool(timeout = "10s")]
async fn relay(ctx: &ToolContext, tool: String) -> Result<Value, ToolError> {
    Ok(ctx.call(tool, json!({})).await?.read()?)
}

/// Wait for a call for a second, and not mind what comes of it.
#[turnmill::tool(writes)]
async fn hasty(ctx: &ToolContext) -> Result<String, ToolError> {
    let paid = tokio::time::timeout(Duration::from_secs(1), ctx.call(PayOut, json!({})).into_future()).await;
    Ok(format!("{paid:?}"))
}

/// Take two minutes.
#[turnmill::tool(timeout = "10m")]
async fn long() -> Result<(), ToolError> {
    tokio::time::sleep(Duration::from_secs(120)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_tool_cannot_swallow_the_end_of_the_turn_over_a_crash_either() {
    let agent = || AgentSpec::new("a", "scripted").tools(["relay", "hasty", "long"]);
    for swallows in [("relay", json!({"tool": "pay_out"})), ("hasty", json!({}))] {
        let turn = turn("a", "go", [calls([swallows, ("long", json!({}))]), says("Done.")]);
        let mut kit = Kit::new(tools(&World::default()).tool(Relay).tool(Hasty).tool(Long).agent(agent()));
        assert!(kit.crash_before(&turn, EventType::ToolResult, Some("m0.c1")).await);
        assert_eq!(at(&kit, "m0.c0").len(), 1, "it has no result");
        assert_eq!(code(&kit.run(&turn).await), "tool_registration_error");
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_beside_an_agent_that_ends_the_turn_is_recorded() {
    let program = |pays: bool| {
        let sub = move |ctx: AgentContext| async move {
            if pays {
                ctx.call(Pay, cents(1)).await?;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            Answer::Ok("x".into())
        };
        let main = AgentSpec::new("a", "scripted").tools(["long"]).sub_agents(["sub"]);
        let sub = AgentSpec::new("sub", "scripted").code(sub);
        tools(&World::default()).tool(Long).agent(main).agent(sub)
    };
    let both = [("sub", json!({"input": "x"})), ("long", json!({}))];
    let turn = turn("a", "go", [calls(both), says("Done.")]);
    let mut kit = Kit::new(program(true));
    assert!(kit.crash_before(&turn, EventType::ToolResult, Some("m0.c0")).await);
    kit.deploy(program(false));
    assert_eq!(code(&kit.run(&turn).await), "replay_input_changed");
    assert!(steps(&kit).contains(&"m0.c1 ok".to_owned()), "{:?}", steps(&kit));
}

#[tokio::test(start_paused = true)]
async fn an_id_may_be_as_long_as_it_likes() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        let long = "ü".repeat(1_000_000);
        ctx.call(Pay, cents(1)).id(long.clone()).await?;
        ctx.once::<(), _>(&long, |_| async { Ok(()) }).await?;
        ctx.step::<(), _>(&long, StepEffect::Write, |_| async { Ok(()) }).await?;
        Answer::Ok(ctx.call(Pay, cents(1)).id(long).await?.read()?)
    })
    .await;
    assert_eq!((output(&result), kit.runs().len()), ("paid 1", 1));
    assert!(kit.runs()[0].position.starts_with("pay#id=sha256:"), "{}", kit.runs()[0].position);
}
