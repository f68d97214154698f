//! What ends a turn that would use more than it may, and what is still allowed then.

use super::*;

fn limited(change: impl Fn(&mut Limits)) -> Engine {
    let mut setup = setup(&["echo", "paid"], 32);
    setup.costs.insert("paid".into(), "0.25".parse().unwrap());
    change(&mut setup.limits);
    Engine::new(setup)
}

fn tokens(input_tokens: u64, output_tokens: u64, reply: Reply) -> Reply {
    Reply { usage: Usage { input_tokens, output_tokens }, ..reply }
}

fn costing(engine: &mut Engine, costs: &[&str]) {
    let results = costs.iter().enumerate().map(|(index, cost)| CallResult {
        position: Position::call(engine.used().model_calls - 1, index),
        result: Ok("1".into()),
        cost: cost.parse().unwrap(),
    });
    let results = results.collect();
    engine.results(results);
}

fn ended(engine: &Engine) -> (String, String) {
    match outcome(engine) {
        Outcome::Failed(failure) => (failure.code.into_owned(), failure.message),
        Outcome::Completed { output } => ("completed".into(), output),
    }
}

#[test]
fn the_last_allowed_model_call_may_answer_and_may_not_call_what_no_model_would_read() {
    let mut answers = limited(|limits| limits.max_model_calls = Some(2));
    answers.reply(asks_for(&["echo"]));
    ok(&mut answers);
    answers.reply(text("done"));
    assert_eq!(ended(&answers).0, "completed");

    let mut calls = limited(|limits| limits.max_model_calls = Some(2));
    calls.reply(asks_for(&["echo"]));
    ok(&mut calls);
    calls.reply(asks_for(&["echo"]));
    let message = "the turn has made 2 model calls, and may make 2 (model_calls)".to_owned();
    assert_eq!(ended(&calls), (code::MODEL_CALL_LIMIT.into(), message));
    assert_eq!(calls.used().tool_calls, 1, "what did not run is not counted");

    let none = limited(|limits| limits.max_model_calls = Some(0));
    assert_eq!(none.forbids_model().unwrap().code, code::MODEL_CALL_LIMIT);
    assert_eq!(limited(|_| {}).forbids_model(), None);
}

#[test]
fn an_answer_counts_whatever_tokens_it_took_and_calls_beyond_them_do_not_run() {
    let mut answers = limited(|limits| limits.max_tokens = Some(10));
    answers.reply(tokens(100, 100, text("done")));
    assert_eq!(ended(&answers).0, "completed");

    let mut calls = limited(|limits| limits.max_tokens = Some(10));
    calls.reply(tokens(4, 5, asks_for(&["echo"])));
    ok(&mut calls);
    calls.reply(tokens(0, 1, asks_for(&["echo"])));
    let message = "the turn has used 10 tokens, and may use 10 (tokens)".to_owned();
    assert_eq!(ended(&calls), (code::TOKEN_LIMIT.into(), message));
}

#[test]
fn the_last_call_that_can_be_paid_reaches_the_model_and_one_more_does_not_run() {
    let mut engine = limited(|limits| limits.max_cost = Some("0.75".parse().unwrap()));
    engine.reply(asks_for(&["paid", "echo"]));
    // A hit of the cache.
    costing(&mut engine, &["0", "0"]);
    engine.reply(asks_for(&["paid", "paid", "paid"]));
    costing(&mut engine, &["0.25", "0.25", "0.25"]);
    assert_eq!(engine.used().cost, "0.75".parse().unwrap());
    let mut free = limited(|limits| limits.max_cost = Some(Decimal::ZERO));
    for engine in [&mut engine, &mut free] {
        engine.reply(asks_for(&["echo"]));
        costing(engine, &["0"]);
        engine.reply(asks_for(&["echo", "paid"]));
        assert_eq!(ended(engine).0, code::COST_LIMIT);
    }
    let message = "reply m3 brings what the turn costs to as much as 1.00, and it may cost 0.75 (cost)";
    assert_eq!(ended(&engine).1, message);
}

#[test]
fn calls_that_are_answered_without_a_run_cost_nothing() {
    let cut_off = Reply { stop_reason: StopReason::MaxTokens, ..asks_for(&["paid"]) };
    for reply in [cut_off, asks(vec![call(None, "paid", "{")])] {
        let mut engine = limited(|limits| limits.max_cost = Some(Decimal::ZERO));
        engine.reply(reply);
        assert!(matches!(engine.next(), Next::Calls(_)));
    }
}

#[test]
fn what_has_begun_goes_on_whatever_the_limits_are_by_now() {
    for change in [
        |limits: &mut Limits| limits.max_cost = Some(Decimal::ZERO),
        |limits: &mut Limits| limits.max_tool_calls = 0,
        |limits: &mut Limits| limits.max_tokens = Some(0),
        |limits: &mut Limits| limits.max_model_calls = Some(0),
    ] {
        let mut engine = limited(change);
        engine.reply_begun(asks_for(&["paid"]));
        assert!(matches!(engine.next(), Next::Calls(_)));
        assert_eq!(engine.used().tool_calls, 1);
    }
}

#[test]
fn no_cost_is_too_large_to_be_added() {
    let mut setup = setup(&["paid"], 32);
    setup.costs.insert("paid".into(), Decimal::MAX);
    setup.limits.max_cost = Some(1.into());
    let mut engine = Engine::new(setup);
    engine.reply(asks_for(&["paid", "paid"]));
    assert_eq!(ended(&engine).0, code::COST_LIMIT);
    engine.pay(Decimal::MAX);
    engine.pay(Decimal::MAX);
    assert_eq!(engine.used().cost, Decimal::MAX);
}
