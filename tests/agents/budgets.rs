//! What ends an agent in code, and what was spent before a crash.

use std::time::Duration;

use turnmill::testing::says;

use super::*;

fn within(budget: Value) -> Turn {
    let mut turn = turn("a", "go", [says("one"), says("two"), says("three")]);
    turn.budget = Some(serde_json::from_value(budget).unwrap());
    turn
}

/// Pays as often as it can, whatever comes of it.
async fn greedy(ctx: AgentContext) -> Answer {
    for n in 1..=4 {
        let _ = ctx.call(Pay, cents(n)).await;
    }
    Ok("all paid".into())
}

#[tokio::test(start_paused = true)]
async fn the_call_beyond_a_budget_ends_the_turn_whatever_the_code_makes_of_it() {
    for (budget, expected) in [
        (
            json!({"tool_calls": 3}),
            "tool_call_limit: the call pay#3 brings the turn to 4 tool calls, and it may make 3 (tool_calls)",
        ),
        (
            json!({"cost": "0.75"}),
            "cost_limit: the call pay#3 brings what the turn costs to as much as 1.00, and it may cost 0.75 (cost)",
        ),
    ] {
        let turn = within(budget);
        let mut kit = Kit::new(app(greedy));
        let result = kit.run(&turn).await;
        assert_eq!(result.error.as_ref().unwrap().to_string(), expected);
        assert_eq!((result.usage.tool_calls, ran(&kit).len()), (3, 3));

        // What was spent before a crash is spent.
        let mut kit = Kit::new(app(greedy));
        assert!(kit.crash_before(&turn, EventType::ToolStart, Some("pay#2")).await);
        assert_eq!(kit.run(&turn).await.error.unwrap().to_string(), expected);
        assert_eq!(ran(&kit), ["pay#0", "pay#1", "pay#2"]);
    }
    assert_eq!(output(&Kit::new(app(greedy)).run(&within(json!({"tool_calls": 4}))).await), "all paid");
}

#[tokio::test(start_paused = true)]
async fn questions_to_the_model_are_counted() {
    let asks = |ctx: AgentContext| async move {
        for _ in 0..3 {
            let _ = ctx.ask(ctx.input()).await;
        }
        Answer::Ok("all asked".into())
    };
    let result = Kit::new(app(asks)).run(&within(json!({"model_calls": 2}))).await;
    assert_eq!((code(&result), result.usage.model_calls), ("model_call_limit", 2));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_waits_for_no_step_is_out_of_time_too() {
    {
        let began = tokio::time::Instant::now();
        let waits = |_: AgentContext| async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Answer::Ok("too late".into())
        };
        let result = Kit::new(app(waits)).run(&within(json!({"seconds": 60}))).await;
        assert_eq!(code(&result), "run_time_limit");
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    }
}

/// Take two minutes.
#[turnmill::tool(timeout = "10m")]
async fn long() -> Result<(), ToolError> {
    tokio::time::sleep(Duration::from_secs(120)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_runs_when_the_time_is_over_comes_to_its_end() {
    let code_of = |ctx: AgentContext| async move {
        let (long, idle) = tokio::join!(ctx.call(Long, json!({})), async {
            tokio::time::sleep(Duration::from_secs(90)).await;
            ctx.call(Pay, cents(1)).await
        });
        Answer::Ok(format!("{long:?} {idle:?}"))
    };
    let mut kit = Kit::new(app(code_of).tool(Long));
    let result = kit.run(&within(json!({"seconds": 60}))).await;
    assert_eq!(code(&result), "run_time_limit");
    assert_eq!(steps(&kit), ["long#0 begins", "long#0 ok"], "and nothing else begins");
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_is_read_back_whatever_the_time_is() {
    let mut kit = Kit::new(app(draw_and_pay));
    let turn = within(json!({"seconds": 60}));
    assert!(kit.crash_before(&turn, EventType::TurnOutput, None).await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(output(&kit.run(&turn).await), "paid 0");

    let mut kit = Kit::new(app(draw_and_pay));
    assert!(kit.crash_before(&turn, EventType::ToolStart, Some("pay#0")).await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let result = kit.run(&turn).await;
    assert_eq!((code(&result), result.usage.tool_calls), ("run_time_limit", 1));
}

#[tokio::test(start_paused = true)]
async fn two_that_run_together_do_not_both_have_the_last_of_a_budget() {
    let both = |ctx: AgentContext| async move {
        let paid = tokio::join!(ctx.call(Pay, cents(1)), ctx.call(Pay, cents(2)));
        Answer::Ok(format!("{paid:?}"))
    };
    let mut kit = Kit::new(app(both));
    let result = kit.run(&within(json!({"cost": "0.40"}))).await;
    assert_eq!(
        (code(&result), result.usage.cost.to_string(), ran(&kit).len()),
        ("cost_limit", "0.25".into(), 1)
    );

    let asks = |ctx: AgentContext| async move {
        let said = tokio::join!(ctx.ask(ctx.input()), ctx.ask(ctx.input()));
        Answer::Ok(format!("{said:?}"))
    };
    let result = Kit::new(app(asks)).run(&within(json!({"model_calls": 1}))).await;
    assert_eq!((code(&result), result.usage.model_calls), ("model_call_limit", 1));
}

#[tokio::test(start_paused = true)]
async fn code_that_waits_before_what_is_recorded_comes_to_it_however_late_it_is() {
    async fn waits(ctx: AgentContext) -> Answer {
        let seen = ctx.call(Draw, json!({})).await?;
        tokio::time::sleep(Duration::from_secs(30)).await;
        ctx.call(Pay, json!({"cents": seen.read::<u64>()?})).await?;
        Ok("paid".into())
    }
    let turn = within(json!({"seconds": 60}));
    let mut kit = Kit::new(app(waits));
    assert!(kit.crash_before(&turn, EventType::TurnOutput, None).await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(output(&kit.run(&turn).await), "paid");

    // Code that does not come to it any more is not waited for for ever.
    async fn never(ctx: AgentContext) -> Answer {
        ctx.call(Draw, json!({})).await?;
        std::future::pending().await
    }
    let mut kit = Kit::new(app(waits));
    assert!(kit.crash_before(&turn, EventType::TurnOutput, None).await);
    kit.deploy(app(never));
    assert_eq!(code(&kit.run(&turn).await), "run_time_limit");
}
