//! Direct calls: where they stand, and what comes of them.

use super::*;

#[tokio::test(start_paused = true)]
async fn calls_stand_at_the_number_of_calls_of_their_tool_or_at_their_id() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        ctx.call(Pay, cents(1)).await?;
        ctx.call("draw", json!({})).await?;
        ctx.call("pay", cents(2)).id("order 9").await?;
        let last = ctx.call(Pay, cents(3)).await?;
        Answer::Ok(last.read()?)
    })
    .await;
    assert_eq!(output(&result), "paid 3");
    assert_eq!(ran(&kit), ["pay#0", "draw#0", "pay#id=order%209", "pay#1"]);
    assert_eq!(kit.runs()[2].key, "session/turn/pay#id=order%209");
    assert_eq!((result.usage.tool_calls, result.usage.cost.to_string()), (4, "0.75".into()));
    let event = &at(&kit, "pay#0")[1];
    assert_eq!(
        (event.tool.as_deref(), event.agent.as_deref(), &event.cause),
        (Some("pay"), Some("a"), &None)
    );
    assert_eq!(event.idempotency_key.as_ref().unwrap().as_str(), "session/turn/pay#0");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_keeps_its_place_and_says_why() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        let mut codes = Vec::new();
        codes.push(ctx.call("fail", json!({"kind": "so"})).await.unwrap_err());
        codes.push(ctx.call("fail", json!({"kind": 7})).await.unwrap_err());
        codes.push(ctx.call("fail", json!("so")).await.unwrap_err());
        codes.push(ctx.call("fail", f64::NAN).await.unwrap_err());
        codes.push(ctx.call("nope", json!({})).await.unwrap_err());
        codes.push(ctx.call("fail", json!({"kind": "fatal"})).await.unwrap_err());
        codes.push(ctx.call("fail", json!({"kind": "poison"})).await.unwrap_err());
        Answer::Ok(codes.iter().map(|failure| failure.code.as_ref()).collect::<Vec<_>>().join(" "))
    })
    .await;
    let expected =
        "tool_error invalid_arguments invalid_arguments invalid_arguments unknown_tool tool_fatal poison";
    assert_eq!(output(&result), expected);
    let expected = [
        "fail#0 begins",
        "fail#0 tool_error",
        "fail#1 invalid_arguments",
        "fail#2 invalid_arguments",
        "fail#3 invalid_arguments",
        "nope#0 unknown_tool",
        "fail#4 begins",
        "fail#4 tool_fatal",
        "fail#5 begins",
        "fail#5 poison",
    ];
    assert_eq!(steps(&kit), expected);
    let message = at(&kit, "nope#0")[0].error.clone().unwrap().message;
    assert!(
        message.starts_with("unknown tool 'nope'; available: draw, pay, fail, pay_out, echo"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_that_goes_up_fails_the_turn_with_its_code() {
    for (kind, expected) in [("so", "tool_error"), ("fatal", "tool_fatal"), ("poison", "poison")] {
        let (kit, result) = run(move |ctx: AgentContext| async move {
            ctx.call(Fail, json!({"kind": kind})).await?;
            Answer::Ok("not so".into())
        })
        .await;
        assert_eq!(code(&result), expected);
        assert_eq!(kit.dead_letters().len(), usize::from(kind == "poison"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_id_again_is_the_same_call() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        let first: u64 = ctx.call(Draw, json!({})).id("x").await?.read()?;
        let again: u64 = ctx.call(Draw, json!({})).id("x").await?.read()?;
        Answer::Ok(format!("{first} {again}"))
    })
    .await;
    assert_eq!((output(&result), ran(&kit), result.usage.tool_calls), ("0 0", vec!["draw#id=x".into()], 1));

    let (kit, result) = run(|ctx: AgentContext| async move {
        ctx.call(Pay, cents(1)).id("x").await?;
        // Whatever the code makes of it.
        let _ = ctx.call(Pay, cents(2)).id("x").await;
        Answer::Ok("not so".into())
    })
    .await;
    assert_eq!((code(&result), ran(&kit).len()), ("replay_input_changed", 1));
    let failure =
        kit.events().into_iter().find(|event| event.kind == EventType::TurnOutput).unwrap().error.unwrap();
    assert!(failure.message.contains("the arguments have changed"), "{failure}");
    let both = r#"recorded with {"cents":1}, now with {"cents":2}"#;
    assert!(failure.for_operator().ends_with(both), "{failure:?}");
    assert_eq!(result.error.unwrap().detail, None, "the arguments are for the operator");
}

#[tokio::test(start_paused = true)]
async fn calls_run_side_by_side_and_two_under_one_id_do_not() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        let (a, b) = tokio::join!(ctx.call(Pay, cents(1)).id("a"), ctx.call(Pay, cents(2)).id("b"));
        Answer::Ok(format!("{} {}", a?.as_json(), b?.as_json()))
    })
    .await;
    assert_eq!(output(&result), r#""paid 1" "paid 2""#);
    let (mut begun, mut ended) = (steps(&kit)[..2].to_vec(), steps(&kit)[2..].to_vec());
    begun.sort();
    ended.sort();
    assert_eq!(begun, ["pay#id=a begins", "pay#id=b begins"]);
    assert_eq!(ended, ["pay#id=a ok", "pay#id=b ok"]);

    async fn together(ctx: AgentContext) -> Answer {
        let (a, b) = tokio::join!(ctx.call(Pay, cents(1)).id("a"), ctx.call(Pay, cents(1)).id("a"));
        Answer::Ok(format!("{a:?} {b:?}"))
    }
    let (kit, result) = run(together).await;
    assert_eq!(code(&result), "concurrent_call_id");
    assert_eq!(steps(&kit), ["pay#id=a begins", "pay#id=a ok"], "what had begun came to its end");

    // The same after a crash, though the first one's result is there by then.
    let mut kit = Kit::new(app(together));
    assert!(kit.crash_before(&go(), EventType::TurnOutput, None).await);
    assert_eq!(code(&kit.run(&go()).await), "concurrent_call_id");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_needs_a_person_ends_the_turn_whatever_the_code_makes_of_it() {
    async fn direct(ctx: AgentContext) -> Answer {
        let _ = ctx.call(PayOut, json!({})).await;
        Answer::Ok("not so".into())
    }
    async fn raced(ctx: AgentContext) -> Answer {
        tokio::select! {
            biased;
            _ = ctx.call("pay_out", json!({})).into_future() => {}
            _ = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
        Answer::Ok("not so".into())
    }
    async fn asks(ctx: AgentContext) -> Answer {
        let _ = ctx.interrupt("May I?").await;
        Answer::Ok("not so".into())
    }
    let turns = [run(direct).await, run(raced).await, run(asks).await];
    for (kit, result) in turns {
        assert_eq!((code(&result), ran(&kit).len(), steps(&kit).len()), ("tool_registration_error", 0, 0));
    }
    let (_, result) = run(direct).await;
    let message = "the tool \"pay_out\" (registered by this program), called directly at pay_out#0, requires approval, \
                   and a worker cannot wait for a person";
    assert_eq!(result.error.unwrap().message, message);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_has_begun_and_does_not_end() {
    let (kit, result) = run(|ctx: AgentContext| async move {
        let late =
            tokio::time::timeout(std::time::Duration::from_millis(1), ctx.call(Pay, cents(1)).into_future());
        Answer::Ok(late.await.map_or_else(|_| "late".into(), |paid| format!("{paid:?}")))
    })
    .await;
    assert_eq!((output(&result), steps(&kit)), ("late", vec!["pay#0 begins".into()]));
}

#[tokio::test(start_paused = true)]
async fn what_outlives_its_agent_learns_that_the_turn_is_over() {
    let world = World::default();
    let noted = world.clone();
    let mut kit = Kit::new(app_with(&world, move |ctx: AgentContext| {
        let noted = noted.clone();
        async move {
            let own = ctx.clone();
            tokio::spawn(async move {
                let call = own.call(Pay, cents(1)).await;
                noted.note(call.unwrap_err().code);
                noted.note(own.call(Pay, cents(2)).await.unwrap_err().code);
                noted.note(own.now().await.unwrap_err().code);
            });
            tokio::task::yield_now().await;
            Answer::Ok("done".into())
        }
    }));
    assert_eq!(output(&kit.run(&go()).await), "done");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(world.noted(), ["cancelled"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_turns_and_an_error_has_its_text() {
    let (_, result) =
        run(|_: AgentContext| async { panic!("the agent panics, as it should") as Answer }).await;
    assert_eq!(code(&result), "agent_panicked");
    let (_, result) =
        run(|_: AgentContext| async { Answer::Err("x".parse::<u8>().unwrap_err().into()) }).await;
    let error = result.error.unwrap();
    assert_eq!(
        (error.code.as_ref(), error.message.as_str()),
        ("agent_error", "invalid digit found in string")
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_under_an_id_is_paid_once_however_often_it_is_looked_at() {
    async fn thrice(ctx: AgentContext) -> Answer {
        for _ in 0..3 {
            ctx.call(Pay, cents(1)).id("x").await?;
        }
        Ok("paid".into())
    }
    let mut kit = Kit::new(app(thrice));
    assert!(kit.crash_before(&go(), EventType::TurnOutput, None).await);
    let result = kit.run(&go()).await;
    assert_eq!((result.usage.tool_calls, result.usage.cost.to_string()), (1, "0.25".into()));
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_no_json_are_no_others() {
    let call = |arguments: f64| {
        move |ctx: AgentContext| async move {
            let called = match arguments.is_nan() {
                true => ctx.call("draw", arguments).await,
                false => ctx.call("draw", json!({})).await,
            };
            Answer::Ok(format!("{called:?}"))
        }
    };
    let mut kit = Kit::new(app(call(f64::NAN)));
    assert!(kit.crash_before(&go(), EventType::TurnOutput, None).await);
    let message = at(&kit, "draw#0")[0].error.clone().unwrap().message;
    assert_eq!(
        message,
        "the arguments for draw cannot be written as JSON: it has a number that JSON cannot carry: NaN"
    );
    kit.deploy(app(call(0.0)));
    assert_eq!(code(&kit.run(&go()).await), "replay_input_changed");
}

/// Take a minute.
#[turnmill::tool(timeout = "10m")]
async fn minute() -> Result<(), ToolError> {
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn code_that_goes_on_past_the_end_that_a_step_has_said_ends_so_all_the_same() {
    async fn past(ctx: AgentContext) -> Answer {
        tokio::select! {
            biased;
            _ = async { tokio::join!(ctx.call("minute", json!({})), ctx.call(PayOut, json!({}))) } => {}
            _ = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
        Ok("not so".into())
    }
    let mut kit = Kit::new(app(past).tool(Minute));
    assert_eq!(code(&kit.run(&go()).await), "tool_registration_error");
}
