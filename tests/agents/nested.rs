//! Tools that call tools.

use std::time::Duration;

use turnmill::testing::{calls, says};
use turnmill::turn::{Position, SessionId, TurnId};

use super::*;

/// Draw a number and pay it.
#[turnmill::tool(writes)]
async fn settle(ctx: &ToolContext, times: u64) -> Result<Vec<String>, ToolError> {
    let mut paid = Vec::new();
    for _ in 0..times {
        let cents: u64 = ctx.call(Draw, json!({})).await?.read()?;
        paid.push(ctx.call(Pay, json!({"cents": cents})).await?.read()?);
    }
    Ok(paid)
}

/// Pay what was drawn, at the second try.
#[turnmill::tool(writes, retry = 1)]
async fn stubborn(ctx: &ToolContext) -> Result<String, ToolError> {
    let cents: u64 = ctx.call(Draw, json!({})).await?.read()?;
    if ctx.attempt() == 1 {
        return Err(ToolError::retryable("not yet"));
    }
    Ok(ctx.call(Pay, json!({"cents": cents})).await?.read()?)
}

/// Call what it is told to.
#[turnmill::tool(timeout = "10s")]
async fn relay(ctx: &ToolContext, tool: String, arguments: Value) -> Result<Value, ToolError> {
    Ok(ctx.call(tool.as_str(), arguments).await?.read()?)
}

fn nesting(world: &World) -> App {
    let agent = AgentSpec::new("a", "scripted").tools(["settle", "stubborn", "relay"]);
    tools(world).tool(Settle).tool(Stubborn).tool(Relay).agent(agent)
}

async fn played(world: &World, call: (&str, Value)) -> (Kit, TurnResult) {
    let mut kit = Kit::new(nesting(world));
    let result = kit.run(&turn("a", "go", [calls([call]), says("Done.")])).await;
    (kit, result)
}

#[tokio::test(start_paused = true)]
async fn calls_inside_a_call_have_positions_events_and_keys_of_their_own() {
    let (kit, result) = played(&World::default(), ("settle", json!({"times": 2}))).await;
    assert_eq!(output(&result), "Done.");
    let inside = ["m0.c0", "m0.c0/draw#0", "m0.c0/pay#0", "m0.c0/draw#1", "m0.c0/pay#1"];
    assert_eq!(ran(&kit), inside);
    assert_eq!(kit.runs()[2].key, "session/turn/m0.c0/pay#0");
    assert_eq!((result.usage.tool_calls, result.usage.cost.to_string()), (5, "0.50".into()));
    let end = at(&kit, "m0.c0").pop().unwrap();
    let usage = end.usage.unwrap();
    assert_eq!((usage.tool_calls, usage.cost.to_string(), end.cost), (4, "0.50".into(), None));
}

#[tokio::test(start_paused = true)]
async fn what_a_call_had_done_inside_is_not_done_again() {
    let world = World::default();
    let mut kit = Kit::new(nesting(&world));
    let turn = turn("a", "go", [calls([("settle", json!({"times": 2}))]), says("Done.")]);
    assert!(kit.crash_before(&turn, EventType::ToolResult, Some("m0.c0/pay#1")).await);
    let result = kit.run(&turn).await;
    assert_eq!(
        (output(&result), result.usage.tool_calls, result.usage.cost.to_string()),
        ("Done.", 5, "0.50".into())
    );
    let again =
        ["m0.c0", "m0.c0/draw#0", "m0.c0/pay#0", "m0.c0/draw#1", "m0.c0/pay#1", "m0.c0", "m0.c0/pay#1"];
    assert_eq!(ran(&kit), again);

    // Once its own result is there, what is inside is not looked at, and counts all the same.
    let mut kit = Kit::new(nesting(&world));
    assert!(kit.crash_before(&turn, EventType::TurnOutput, None).await);
    let result = kit.run(&turn).await;
    assert_eq!(
        (result.usage.tool_calls, result.usage.cost.to_string(), ran(&kit).len()),
        (5, "0.50".into(), 5)
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_finds_what_the_attempt_before_it_was_told() {
    let (kit, result) = played(&World::default(), ("stubborn", json!({}))).await;
    assert_eq!(output(&result), "Done.");
    assert_eq!(ran(&kit), ["m0.c0", "m0.c0/draw#0", "m0.c0", "m0.c0/pay#0"]);
    assert_eq!(result.usage.tool_calls, 3);
}

#[tokio::test(start_paused = true)]
async fn each_call_is_judged_by_its_own_declaration() {
    let began = tokio::time::Instant::now();
    let arguments = json!({"tool": "pay_out", "arguments": {}});
    let (kit, result) = played(&World::default(), ("relay", arguments)).await;
    assert!(began.elapsed() < Duration::from_secs(5), "nobody waits for the call that will never end");
    assert_eq!((code(&result), ran(&kit)), ("tool_registration_error", vec!["m0.c0".into()]));

    for (kind, expected) in [("fatal", "tool_fatal"), ("poison", "poison")] {
        let arguments = json!({"tool": "fail", "arguments": {"kind": kind}});
        let (_, result) = played(&World::default(), ("relay", arguments)).await;
        assert_eq!(code(&result), expected);
    }
    let arguments = json!({"tool": "fail", "arguments": {"kind": "so"}});
    let (kit, result) = played(&World::default(), ("relay", arguments)).await;
    assert_eq!(output(&result), "Done.");
    assert_eq!(steps(&kit)[2..5], ["m0.c0/fail#0 begins", "m0.c0/fail#0 tool_error", "m0.c0 tool_error"]);
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_call_holds_for_what_it_calls() {
    let arguments = json!({"tool": "sleep", "arguments": {"ms": 20_000}});
    let (kit, result) = played(&World::default(), ("relay", arguments)).await;
    assert_eq!(output(&result), "Done.");
    assert_eq!(steps(&kit)[1..4], ["m0.c0 begins", "m0.c0/sleep#0 begins", "m0.c0 tool_timeout"]);
    assert_eq!(kit.runs()[1].result, None);
}

#[tokio::test(start_paused = true)]
async fn calls_that_go_in_a_circle_end() {
    let mut arguments = json!({"tool": "echo", "arguments": {"text": "in"}});
    for _ in 0..7 {
        arguments = json!({"tool": "relay", "arguments": arguments});
    }
    let (kit, result) = played(&World::default(), ("relay", arguments.clone())).await;
    assert_eq!(output(&result), "Done.");
    let deepest = at(&kit, &format!("m0.c0{}/echo#0", "/relay#0".repeat(7))).pop().unwrap();
    assert_eq!(deepest.error.unwrap().code, "call_depth_limit");
}

#[tokio::test(start_paused = true)]
async fn without_a_turn_around_it_a_tool_just_runs() {
    use turnmill::tool::Tool as _;
    let position = Position::call(0, 0);
    let world = World::default();
    let ids = (SessionId::new("s").unwrap(), TurnId::new("t").unwrap());
    let context =
        ToolContext::builder(ids.0, ids.1, &position).deps(turnmill::tool::Deps::new(world.clone())).build();
    let paid = Settle.call(&context, json!({"times": 2})).await.unwrap();
    assert_eq!(paid.as_json(), r#"["paid 0","paid 1"]"#);
    assert_eq!(world.noted(), ["s/t/m0.c0/pay#0 pays 0", "s/t/m0.c0/pay#1 pays 1"]);
    // Also one that needs a person (specification P, "Approval").
    assert_eq!(context.call(PayOut, json!({})).await.unwrap().as_json(), "null");
    assert_eq!(context.call(Pay, json!({"cents": "x"})).await.unwrap_err().code, "invalid_arguments");
    let unknown = context.call("pay", cents(1)).await.unwrap_err();
    assert_eq!(unknown.code, "unknown_tool");
}

#[tokio::test(start_paused = true)]
async fn a_retry_pays_for_what_is_recorded_once() {
    let mut kit = Kit::new(nesting(&World::default()));
    let turn = turn("a", "go", [calls([("paying", json!({}))]), says("Done.")]);
    kit.deploy({
        let agent = AgentSpec::new("a", "scripted").tools(["paying"]);
        tools(&World::default()).tool(Paying).agent(agent)
    });
    // The inner call is recorded, the outer one runs again and is tried again.
    assert!(kit.crash_before(&turn, EventType::ToolResult, Some("m0.c0")).await);
    let result = kit.run(&turn).await;
    assert_eq!((result.usage.tool_calls, result.usage.cost.to_string()), (2, "0.25".into()));
    let usage = at(&kit, "m0.c0").pop().unwrap().usage.unwrap();
    assert_eq!((usage.tool_calls, usage.cost.to_string()), (1, "0.25".into()));
}

/// Pay, and fail but at the last try.
#[turnmill::tool(writes, retry = 2)]
async fn paying(ctx: &ToolContext) -> Result<(), ToolError> {
    ctx.call(Pay, cents(1)).await?;
    if ctx.attempt() < 3 { Err(ToolError::retryable("not yet")) } else { Ok(()) }
}

/// Draw a number, and note it under its own key.
#[turnmill::tool(writes)]
async fn post(ctx: &ToolContext) -> Result<(), ToolError> {
    let drawn: u64 = ctx.call(Draw, json!({})).await?.read()?;
    ctx.deps::<World>()?.note(format!("{} posts {drawn}", ctx.idempotency_key()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_call_inside_has_told_is_on_the_log_before_a_tool_acts_upon_it() {
    let turn = turn("a", "go", [calls([("post", json!({}))]), says("Done.")]);
    for written in 1.. {
        let world = World::default();
        let agent = AgentSpec::new("a", "scripted").tools(["post"]);
        let mut kit = Kit::new(tools(&world).tool(Post).agent(agent));
        let died = kit.crash_unwritten_after(&turn, written).await;
        assert_eq!(output(&kit.run(&turn).await), "Done.");
        let mut posted = world.noted();
        posted.dedup();
        assert_eq!(posted.len(), 1, "after {written}: one key, one content");
        if !died {
            break;
        }
    }
}

/// Draw for ever, on a thread that nothing can stop.
#[turnmill::tool(writes, timeout = "5ms")]
fn draws(ctx: &ToolContext) -> Result<(), ToolError> {
    let handle = tokio::runtime::Handle::current();
    loop {
        handle.block_on(ctx.call(Draw, json!({})).into_future())?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_a_tool_has_left_behind_calls_nothing_any_more_and_is_not_counted() {
    async fn code(ctx: AgentContext) -> Answer {
        for n in 0..20 {
            let _ = ctx.call(Draws, json!({})).id(n.to_string()).await;
        }
        Ok("ok".into())
    }
    let agent = AgentSpec::new("a", "scripted").max_tool_calls(1_000_000.try_into().unwrap());
    let mut kit = Kit::new(tools(&World::default()).tool(Draws).agent(agent.code(code)));
    let result = kit.run(&turn("a", "go", [])).await;
    let outer = |event: &StepEvent| {
        event.kind == EventType::ToolResult && event.position.as_ref().unwrap().parent().is_none()
    };
    let recorded: u32 = kit
        .events()
        .iter()
        .filter(|event| outer(event))
        .map(|event| 1 + event.usage.map_or(0, |usage| usage.tool_calls))
        .sum();
    assert_eq!((output(&result), result.usage.tool_calls), ("ok", recorded));
}
