//! The loop, played by hand, with the account of its agent beside it.

mod calls;
mod hashes;
mod property;

use std::ops::Deref;

use rust_decimal::Decimal;

use super::*;
use crate::turn::{Arguments, CallPlan, Ledger, Limits, StopReason, Usage, Used};

/// A loop and its agent's account, as a worker has them.
struct Loop {
    engine: Engine,
    ledger: Ledger,
    replies: u32,
    /// What a call of the tool `paid` costs.
    price: Decimal,
}

impl Deref for Loop {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Loop {
    fn new(setup: Setup, limits: Limits) -> Self {
        Self {
            engine: Engine::new(setup),
            ledger: Ledger::new(limits),
            replies: 0,
            price: "0.25".parse().unwrap(),
        }
    }

    fn used(&self) -> Used {
        self.ledger.used(0)
    }

    /// The number of the reply that comes next, and the hash of what it answers.
    fn asked(&self) -> (u32, Hash) {
        match self.next() {
            Next::Model { input } => (self.replies, input),
            other => panic!("expected a question to the model, got {other:?}"),
        }
    }

    fn reply(&mut self, reply: Reply) {
        let number = self.replies;
        self.replies += 1;
        self.ledger.add(0, Used::reply(reply.usage));
        self.engine.reply(number, reply);
        let Next::Calls(calls) = self.engine.next() else { return };
        let paid = |call: &&Call| call.name == "paid" && matches!(call.plan, CallPlan::Run(_));
        let cost = calls.iter().filter(paid).fold(Decimal::ZERO, |sum, _| sum.saturating_add(self.price));
        let count = u32::try_from(calls.len()).unwrap();
        match self.ledger.check_calls(0, &format!("reply m{number}"), count, cost) {
            Ok(()) => self.ledger.add(0, Used::calls(count)),
            Err(overdrawn) => self.engine.fail(overdrawn.failure),
        }
    }

    fn results(&mut self, results: Vec<CallResult>) {
        self.engine.results(results);
    }

    fn fail(&mut self, failure: Failure) {
        self.engine.fail(failure);
    }
}

fn tool(name: &str) -> Arc<Definition> {
    Arc::new(Definition::new(name, "A tool.", serde_json::json!({"type": "object"})))
}

fn setup(tools: &[&str]) -> Setup {
    Setup {
        system: Some("You help.".into()),
        input: vec![Message::User { content: "go".into() }],
        tools: tools.iter().map(|name| tool(name)).collect(),
        on_tool_error: OnToolError::TellModel,
    }
}

fn engine(tools: &[&str], max_tool_calls: u32) -> Loop {
    Loop::new(setup(tools), Limits::tool_calls(max_tool_calls))
}

fn text(text: &str) -> Reply {
    Reply { text: Some(text.into()), ..Reply::default() }
}

fn call(id: Option<&str>, name: &str, arguments: &str) -> ReplyCall {
    ReplyCall { id: id.map(Into::into), name: name.into(), arguments: arguments.into(), extra: None }
}

fn asks(calls: Vec<ReplyCall>) -> Reply {
    Reply { calls, stop_reason: StopReason::ToolUse, ..Reply::default() }
}

/// Calls of these tools, without ids and arguments.
fn asks_for(names: &[&str]) -> Reply {
    asks(names.iter().map(|name| call(None, name, "{}")).collect())
}

fn calls(engine: &Engine) -> Vec<Call> {
    match engine.next() {
        Next::Calls(calls) => calls.to_vec(),
        other => panic!("expected calls, got {other:?}"),
    }
}

fn outcome(engine: &Engine) -> Outcome {
    match engine.next() {
        Next::End(outcome) => outcome.clone(),
        other => panic!("expected an end, got {other:?}"),
    }
}

fn answer(call: &Call) -> &Failure {
    match &call.plan {
        CallPlan::Answer(failure) => failure,
        CallPlan::Run(arguments) => panic!("{} would run with {arguments:?}", call.name),
    }
}

/// Hands in one result for each call: what `result` says, or the failure that the engine planned.
fn hand_in(engine: &mut Loop, result: impl Fn(usize) -> Result<String, Failure>) {
    let results = (calls(engine).into_iter().enumerate())
        .map(|(index, call)| CallResult {
            result: match call.plan {
                CallPlan::Run(_) => result(index),
                CallPlan::Answer(failure) => Err(failure),
            },
            position: call.position,
        })
        .collect();
    engine.results(results);
}

fn ok(engine: &mut Loop) {
    hand_in(engine, |_| Ok("null".into()));
}

#[test]
fn a_reply_without_calls_is_the_last_word() {
    let mut engine = engine(&["echo"], 1);
    engine.reply(text("done"));
    assert_eq!(outcome(&engine), Outcome::Completed { output: "done".into() });
    assert_eq!(engine.used().model_calls, 1);
}

#[test]
fn it_asks_the_same_until_it_is_answered() {
    let mut engine = engine(&["echo"], 8);
    let first = engine.asked();
    assert_eq!(first, engine.asked());
    // An answer to a question that was not asked changes nothing.
    engine.results(vec![CallResult { position: Position::call(0, 0), result: Ok("1".into()) }]);
    assert_eq!(first, engine.asked());

    engine.reply(asks_for(&["echo", "nope"]));
    assert_eq!(calls(&engine), calls(&engine));
    ok(&mut engine);
    let second = engine.asked();
    assert_eq!(second, engine.asked());
    assert_eq!((first.0, second.0), (0, 1));
    assert_ne!(first.1, second.1);

    engine.reply(text("done"));
    assert_eq!(outcome(&engine), outcome(&engine));
}

#[test]
fn as_many_calls_as_allowed_leave_the_model_its_final_answer() {
    let mut engine = engine(&["echo"], 3);
    engine.reply(asks_for(&["echo", "echo"]));
    ok(&mut engine);
    engine.reply(asks_for(&["echo"]));
    ok(&mut engine);
    engine.reply(text("done"));
    assert_eq!(outcome(&engine), Outcome::Completed { output: "done".into() });
    assert_eq!(engine.used().tool_calls, 3);
}

#[test]
fn one_call_more_than_allowed_fails_the_turn_and_none_of_its_reply_runs() {
    for names in [&["echo", "echo"][..], &["echo", "nope"], &["nope", ""]] {
        let mut engine = engine(&["echo"], 3);
        engine.reply(asks_for(&["echo", "nope"]));
        ok(&mut engine);
        engine.reply(asks_for(names));
        let Outcome::Failed(failure) = outcome(&engine) else { panic!("{names:?}") };
        assert_eq!(failure.code, code::TOOL_CALL_LIMIT);
        assert!(failure.message.contains("m1") && failure.message.contains("4 tool calls"), "{failure}");
        assert_eq!(engine.used().tool_calls, 2, "what did not run is not counted");
    }
}

#[test]
fn a_failure_from_outside_ends_the_turn_in_every_state() {
    let failure = Failure::new(code::MODEL_ERROR, "down");
    let mut fresh = engine(&["echo"], 3);
    fresh.fail(failure.clone());
    assert_eq!(outcome(&fresh), Outcome::Failed(failure.clone()));
    let mut calling = engine(&["echo"], 3);
    calling.reply(asks_for(&["echo"]));
    calling.fail(failure.clone());
    assert_eq!(outcome(&calling), Outcome::Failed(failure));
}

#[test]
fn usage_adds_up_over_the_replies() {
    let mut engine = engine(&["echo"], 3);
    let usage = Usage { input_tokens: 5, output_tokens: u64::MAX, ..Usage::default() };
    engine.reply(Reply { usage, ..asks_for(&["echo"]) });
    ok(&mut engine);
    engine.reply(Reply { usage, ..text("done") });
    let tokens = Usage { input_tokens: 10, output_tokens: u64::MAX, ..Usage::default() };
    assert_eq!(engine.used(), Used { model_calls: 2, tool_calls: 1, tokens, ..Used::default() });
}

#[test]
fn of_calls_that_end_the_turn_a_poison_or_else_the_first_decides_and_every_result_is_kept() {
    let failure = |code| Failure::new(code, format!("because of {code}"));
    let cases = [
        ([Some(code::TOOL_FATAL), Some(code::POISON)], Outcome::Failed(failure(code::POISON))),
        ([Some(code::POISON), Some(code::TOOL_FATAL)], Outcome::Failed(failure(code::POISON))),
        ([Some(code::TOOL_ERROR), Some(code::POISON)], Outcome::Failed(failure(code::POISON))),
        ([None, Some(code::TOOL_FATAL)], Outcome::Failed(failure(code::TOOL_FATAL))),
        ([Some(code::TOOL_FATAL), None], Outcome::Failed(failure(code::TOOL_FATAL))),
    ];
    for (codes, expected) in cases {
        let mut engine = engine(&["echo"], 3);
        engine.reply(asks_for(&["echo", "echo"]));
        hand_in(&mut engine, |index| codes[index].map_or(Ok("1".into()), |code| Err(failure(code))));
        assert_eq!(outcome(&engine), expected, "{codes:?}");
        assert_eq!(engine.messages().len(), 5, "{codes:?}");
    }
}

#[test]
fn every_other_failure_goes_back_to_the_model() {
    let ending = [code::TOOL_FATAL, code::POISON];
    for code in code::ALL.iter().filter(|code| !ending.contains(code)) {
        let mut engine = engine(&["echo"], 3);
        engine.reply(asks(vec![call(Some("id"), "echo", "")]));
        hand_in(&mut engine, |_| Err(Failure::new(code, "the reason")));
        assert_eq!(engine.asked().0, 1, "{code}");
        let expected = Message::Tool {
            tool_call_id: "id".into(),
            name: "echo".into(),
            content: "the reason".into(),
            is_error: true,
        };
        assert_eq!(engine.messages().last(), Some(&expected), "{code}");
    }
}
