//! Agents that call agents: by their model, like tools, and from code.

use turnmill::testing::{calls, says};

use super::*;

/// `front` has a model that is offered the agents `billing` and, where it says so, itself; what `billing` says in a turn is
/// its own script.
fn desk(world: &World, billing: AgentSpec) -> App {
    let front = AgentSpec::new("a", "scripted").sub_agents(["billing"]);
    tools(world)
        .agent(front)
        .agent(billing.description("Knows all about money.").tools(["draw", "pay", "fail"]))
}

fn billing() -> AgentSpec {
    AgentSpec::new("billing", "scripted").system("You bill.")
}

/// The front asks billing once, which says this.
fn turn_of(said: &[Value]) -> Turn {
    let mut turn = turn("a", "go", [calls([("billing", json!({"input": "Pay 7."}))]), says("Done.")]);
    turn.metadata.insert("script.billing".into(), json!({"replies": said}).to_string());
    turn
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_called_like_a_tool_and_its_steps_stand_inside_the_call() {
    let mut kit = Kit::new(desk(&World::default(), billing()));
    let said = [
        json!({"calls": [{"name": "pay", "arguments": {"cents": 7}}], "usage": {"input_tokens": 5, "output_tokens": 1}}),
        says("Paid."),
    ];
    let result = kit.run(&turn_of(&said)).await;
    assert_eq!(output(&result), "Done.");
    let expected = [
        "m0 ok",
        "m0.c0 begins",
        "m0.c0/m0 ok",
        "m0.c0/m0.c0 begins",
        "m0.c0/m0.c0 ok",
        "m0.c0/m1 ok",
        "m0.c0 ok",
        "m1 ok",
    ];
    assert_eq!(steps(&kit), expected);
    let used = (result.usage.model_calls, result.usage.tool_calls, result.usage.input_tokens);
    assert_eq!((used, result.usage.cost.to_string()), ((4, 2, 5), "0.25".into()));
    let inside = &at(&kit, "m0.c0/m0.c0")[0];
    assert_eq!(
        (inside.agent.as_deref(), inside.cause.as_ref().unwrap().as_str()),
        (Some("billing"), "m0.c0/m0")
    );
    let end = at(&kit, "m0.c0").pop().unwrap();
    assert_eq!((end.agent.as_deref(), end.output.unwrap().get()), (Some("a"), "\"Paid.\""));
    assert_eq!(end.usage.unwrap().model_calls, 2);
    assert_eq!(kit.runs()[0].key, "session/turn/m0.c0/m0.c0");
}

#[tokio::test(start_paused = true)]
async fn what_it_had_done_is_not_done_again_and_counts() {
    let said = [calls([("draw", json!({})), ("pay", cents(7))]), says("Paid.")];
    for crash in [
        (EventType::ToolResult, "m0.c0/m0.c1"),
        (EventType::ToolResult, "m0.c0"),
        (EventType::ModelReply, "m1"),
    ] {
        let mut kit = Kit::new(desk(&World::default(), billing()));
        assert!(kit.crash_before(&turn_of(&said), crash.0, Some(crash.1)).await);
        let result = kit.run(&turn_of(&said)).await;
        let used = (result.usage.model_calls, result.usage.tool_calls, result.usage.cost.to_string());
        assert_eq!((output(&result), used), ("Done.", (4, 3, "0.25".into())), "{crash:?}");
        let draws = ran(&kit).iter().filter(|at| *at == "m0.c0/m0.c0").count();
        assert_eq!(draws, 1, "{crash:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn its_failure_is_read_by_the_model_unless_it_ends_the_turn() {
    let failing = |kind: &str| [calls([("fail", json!({"kind": kind}))]), says("Never mind.")];
    for (said, expected) in [
        (vec![json!({"error": "down"})], "m0.c0 model_error"),
        (failing("so").to_vec(), "m0.c0 ok"),
        (vec![], "m0.c0 script_exhausted"),
    ] {
        let mut kit = Kit::new(desk(&World::default(), billing()));
        assert_eq!(output(&kit.run(&turn_of(&said)).await), "Done.");
        assert!(steps(&kit).contains(&expected.to_owned()), "{:?}", steps(&kit));
    }
    for (kind, expected) in [("fatal", "tool_fatal"), ("poison", "poison")] {
        let mut kit = Kit::new(desk(&World::default(), billing()));
        let result = kit.run(&turn_of(&failing(kind))).await;
        assert_eq!(code(&result), expected);
        assert_eq!(kit.dead_letters().len(), usize::from(kind == "poison"));
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_arguments_of_a_call_are_the_models_to_mend() {
    let mut kit = Kit::new(desk(&World::default(), billing()));
    let wrong = [
        ("billing", json!({})),
        ("billing", json!({"input": 7})),
        ("billing", json!({"input": "x", "more": 1})),
    ];
    let result = kit.run(&turn("a", "go", [calls(wrong), says("Done.")])).await;
    assert_eq!(output(&result), "Done.");
    assert_eq!(
        steps(&kit)[1..4],
        ["m0.c0 invalid_arguments", "m0.c1 invalid_arguments", "m0.c2 invalid_arguments"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_has_limits_of_its_own_within_its_callers() {
    let said = [calls([("pay", cents(1)), ("pay", cents(2))]), says("Paid.")];
    let limited = billing().max_tool_calls(1.try_into().unwrap());
    let mut kit = Kit::new(desk(&World::default(), limited));
    let result = kit.run(&turn_of(&said)).await;
    assert_eq!((output(&result), result.usage.tool_calls), ("Done.", 1), "its caller goes on");
    let failed = at(&kit, "m0.c0").pop().unwrap().error.unwrap();
    assert_eq!(failed.code, "tool_call_limit");
    let message = "reply m0.c0/m0 brings agent \"billing\" to 2 tool calls, and it may make 1 (tool_calls)";
    assert_eq!(failed.message, message);

    let mut turn = turn_of(&said);
    turn.budget = Some(serde_json::from_value(json!({"tool_calls": 2})).unwrap());
    let mut kit = Kit::new(desk(&World::default(), billing()));
    let result = kit.run(&turn).await;
    assert_eq!(code(&result), "tool_call_limit");
    let message = "reply m0.c0/m0 brings the turn to 3 tool calls, and it may make 2 (tool_calls)";
    assert_eq!((result.error.unwrap().message.as_str(), ran(&kit).len()), (message, 0));
}

#[tokio::test(start_paused = true)]
async fn its_time_runs_from_its_first_start() {
    let slow = json!({"text": "Paid.", "delay_ms": 40_000});
    let limited = || billing().max_run_time(std::time::Duration::from_secs(60));
    let mut kit = Kit::new(desk(&World::default(), limited()));
    assert_eq!(output(&kit.run(&turn_of(std::slice::from_ref(&slow))).await), "Done.");

    let mut kit = Kit::new(desk(&World::default(), limited()));
    assert!(
        kit.crash_before(&turn_of(std::slice::from_ref(&slow)), EventType::ModelReply, Some("m0.c0/m0"))
            .await
    );
    let result = kit.run(&turn_of(&[slow])).await;
    assert_eq!(output(&result), "Done.");
    let failed = at(&kit, "m0.c0").pop().unwrap().error.unwrap();
    assert_eq!(
        (failed.code.as_ref(), failed.message.as_str()),
        ("run_time_limit", "agent \"billing\" has run for 1m, which is as long as it may")
    );
}

#[tokio::test(start_paused = true)]
async fn code_calls_agents_side_by_side_and_the_same_direct_call_in_each_has_its_own_key() {
    let world = World::default();
    let front = AgentSpec::new("a", "scripted").code(|ctx: AgentContext| async move {
        let (one, two, named) = tokio::join!(
            ctx.call_agent("payer", "1"),
            ctx.call_agent("payer", "2"),
            ctx.call_agent("payer", "3").id("x")
        );
        let unknown = ctx.call_agent("nobody", "4").await.unwrap_err();
        Answer::Ok(format!("{}, {}, {}, {}", one?, two?, named?, unknown.code))
    });
    let payer = AgentSpec::new("payer", "scripted").code(|ctx: AgentContext| async move {
        let cents: u64 = ctx.text().parse()?;
        Answer::Ok(ctx.call(Pay, json!({"cents": cents})).await?.read()?)
    });
    let mut kit = Kit::new(tools(&world).agent(front).agent(payer));
    let result = kit.run(&go()).await;
    assert_eq!(output(&result), "paid 1, paid 2, paid 3, unknown_agent");
    let mut ran = ran(&kit);
    ran.sort();
    assert_eq!(ran, ["payer#0/pay#0", "payer#1/pay#0", "payer#id=x/pay#0"]);
    assert_eq!(result.usage.tool_calls, 7);
}

#[tokio::test(start_paused = true)]
async fn agents_that_call_one_another_in_a_circle_end() {
    let turning = |name: &str, next: &'static str| {
        AgentSpec::new(name, "scripted").code(move |ctx: AgentContext| async move {
            match ctx.call_agent(next, "go on").await {
                Ok(deeper) => Answer::Ok(format!("{} {deeper}", ctx.agent())),
                Err(failure) => Answer::Ok(failure.code.into()),
            }
        })
    };
    let mut kit = Kit::new(App::new().agent(turning("a", "b")).agent(turning("b", "a")));
    assert_eq!(output(&kit.run(&go()).await), "a b a b a b a b call_depth_limit");
}

#[tokio::test(start_paused = true)]
#[should_panic = "agent \"hidden\" is offered the tool \"pay_out\""]
async fn a_gated_tool_inside_of_a_called_agent_is_refused_at_bind() {
    let front = AgentSpec::new("a", "scripted").sub_agents(["hidden"]);
    let hidden = AgentSpec::new("hidden", "scripted").tools(["pay_out"]);
    Kit::new(tools(&World::default()).agent(front).agent(hidden));
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_sub_agents_is_found_at_bind() {
    for (names, tools_of, expected) in [
        (
            vec!["nobody"],
            vec![],
            "agents[0].sub_agents[0]: agent \"a\": no agent is called \"nobody\"; there are a, pay, not so",
        ),
        (vec!["not so"], vec![], "its name is not one or more of A-Z a-z 0-9 _ -"),
        (vec!["pay"], vec!["pay"], "the agent is offered a tool \"pay\" too"),
        (
            vec!["pay", "pay"],
            vec![],
            "agents[0].sub_agents[1]: agent \"a\": the agent \"pay\" is there twice",
        ),
    ] {
        let front = AgentSpec::new("a", "scripted").sub_agents(names).tools(tools_of);
        let others = ["pay", "not so"].map(|name| AgentSpec::new(name, "scripted"));
        let mut app = tools(&World::default()).agent(front);
        for other in others {
            app = app.agent(other);
        }
        let panic =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(Kit::new(app)))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_called_agent_that_does_not_do_the_same_again_fails_the_turn_whatever_its_caller_makes_of_it() {
    let program = |calls: bool| {
        let front = AgentSpec::new("a", "scripted").code(|ctx: AgentContext| async move {
            let _ = ctx.call_agent("b", "go").await;
            Answer::Ok("not so".into())
        });
        let inner = AgentSpec::new("b", "scripted").code(move |ctx: AgentContext| async move {
            if calls {
                ctx.call(Pay, cents(1)).await?;
            }
            Answer::Ok("ok".into())
        });
        tools(&World::default()).agent(front).agent(inner)
    };
    let mut kit = Kit::new(program(true));
    assert!(kit.crash_before(&go(), EventType::ToolResult, Some("b#0")).await);
    kit.deploy(program(false));
    let result = kit.run(&go()).await;
    assert_eq!(code(&result), "replay_input_changed");
    assert!(result.error.unwrap().message.starts_with("position b#0/pay#0: "));
}
