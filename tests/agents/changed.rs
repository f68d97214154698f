//! Code that does not do the same again: found out, never papered over.

use super::*;

/// Runs `first` until right before the turn's answer is recorded, then `second` on what is recorded.
async fn redeployed(first: impl Agent, second: impl Agent) -> (Kit, TurnResult) {
    let world = World::default();
    let mut kit = Kit::new(app_with(&world, first));
    assert!(kit.crash_before(&go(), EventType::TurnOutput, None).await);
    let ran = kit.runs().len();
    kit.deploy(app_with(&world, second));
    let result = kit.run(&go()).await;
    assert_eq!(kit.runs().len(), ran, "nothing runs");
    (kit, result)
}

fn pays(cents: u64, id: Option<&'static str>) -> impl Agent {
    move |ctx: AgentContext| async move {
        let call = ctx.call(Pay, json!({"cents": cents}));
        let call = match id {
            Some(id) => call.id(id),
            None => call,
        };
        Answer::Ok(call.await?.read()?)
    }
}

fn message(result: &TurnResult) -> &str {
    assert_eq!(code(result), "replay_input_changed");
    &result.error.as_ref().unwrap().message
}

#[tokio::test(start_paused = true)]
async fn other_arguments_are_found_with_both_sides() {
    for id in [None, Some("order")] {
        let (kit, result) = redeployed(pays(1, id), pays(2, id)).await;
        let text = message(&result);
        assert!(
            text.contains("a call of pay is recorded there, and the arguments have changed (recorded "),
            "{text}"
        );
        let event = kit.events().into_iter().find(|event| event.kind == EventType::TurnOutput).unwrap();
        let detail = event.error.unwrap().detail.unwrap();
        assert!(detail.ends_with(r#"recorded with {"cents":1}, now with {"cents":2}"#), "{detail}");
    }
    let (_, result) = redeployed(pays(1, None), pays(1, None)).await;
    assert_eq!(output(&result), "paid 1");
}

#[tokio::test(start_paused = true)]
async fn a_recorded_step_that_the_code_does_not_come_to_is_found() {
    let nothing = || |_: AgentContext| async { Answer::Ok("nothing".into()) };
    for id in [None, Some("order")] {
        let (_, result) = redeployed(pays(1, id), nothing()).await;
        let text = message(&result);
        assert!(text.contains("a step is recorded there, and the agent's code ended without it"), "{text}");
    }
    // Also one that came to a failure.
    let (_, result) =
        redeployed(pays(1, None), |_: AgentContext| async { Answer::Err(AgentError::new("no")) }).await;
    message(&result);
}

#[tokio::test(start_paused = true)]
async fn calls_in_another_order_do_not_take_one_anothers_places() {
    fn both(first: u64, second: u64) -> impl Agent {
        move |ctx: AgentContext| async move {
            let (a, b) =
                tokio::join!(ctx.call(Pay, json!({"cents": first})), ctx.call(Pay, json!({"cents": second})));
            Answer::Ok(format!("{} {}", a?.as_json(), b?.as_json()))
        }
    }
    let (_, result) = redeployed(both(1, 2), both(2, 1)).await;
    message(&result);
    let (_, result) = redeployed(both(1, 2), both(1, 2)).await;
    assert_eq!(output(&result), r#""paid 1" "paid 2""#);
    // Under ids the order does not matter.
    fn named(swap: bool) -> impl Agent {
        move |ctx: AgentContext| async move {
            let mut orders = [1, 2];
            if swap {
                orders.reverse();
            }
            for cents in orders {
                ctx.call(Pay, json!({"cents": cents})).id(cents.to_string()).await?;
            }
            Answer::Ok("ok".into())
        }
    }
    let (_, result) = redeployed(named(false), named(true)).await;
    assert_eq!(output(&result), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_is_not_taken_by_the_next_one() {
    fn code(skip: bool) -> impl Agent {
        move |ctx: AgentContext| async move {
            if !skip {
                ctx.call(Pay, json!({"cents": "none"})).await.unwrap_err();
            }
            Answer::Ok(ctx.call(Pay, cents(1)).await?.read()?)
        }
    }
    let (_, result) = redeployed(code(false), code(false)).await;
    assert_eq!(output(&result), "paid 1");
    let (_, result) = redeployed(code(false), code(true)).await;
    assert!(message(&result).starts_with("position pay#0: "));
}

#[tokio::test(start_paused = true)]
async fn a_step_at_a_place_of_another_kind_is_found() {
    use turnmill::agent::StepEffect;
    fn step(id: &'static str) -> impl Agent {
        move |ctx: AgentContext| async move {
            Answer::Ok(ctx.step(id, StepEffect::Read, |_| async { Ok("x".to_owned()) }).await?)
        }
    }
    let (_, result) = redeployed(step("a"), step("b")).await;
    // The other one is not recorded, so it would run: the fault is found when the code has ended.
    assert!(message(&result).starts_with("position step:a: "));
}
