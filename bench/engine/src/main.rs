//! Plays turns through the pure engine, as a worker does: `turnmill-engine-bench TURNS STEPS`. For a counter of
//! instructions, which takes the difference of two runs with more and with fewer turns; see `scripts/instructions`.

#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../../../src/turn/mod.rs"]
mod turn;

use std::sync::Arc;

use turn::{
    Call, CallPlan, CallResult, Counters, Decision, Definition, Engine, IdempotencyKey, Ledger, Limits,
    Message, Next, OnToolError, Outcome, Position, Reply, ReplyCall, SessionId, Setup, StopReason, TurnId,
    Used, decide,
};

/// A turn of so many calls, one after the other, each with its reply.
fn play(tool: &Arc<Definition>, turn: &TurnId, session: &SessionId, steps: usize) -> usize {
    let mut engine = Engine::new(Setup {
        system: Some("You help people with their orders.".into()),
        input: vec![Message::User { content: "Where is order 7?".into() }],
        tools: vec![Arc::clone(tool)],
        on_tool_error: OnToolError::TellModel,
    });
    let mut ledger = Ledger::new(Limits::tool_calls(10_000));
    let mut counters = Counters::default();
    let mut asked = 0;
    loop {
        match engine.next() {
            Next::Model { input } => {
                let number = counters.reply();
                let position = Position::reply(number);
                let Decision::Run { .. } = decide::<()>(None, &input) else { return 0 };
                let key = IdempotencyKey::new(session, turn, &position);
                std::hint::black_box(key.to_string());
                let calls = (asked < steps).then(|| ReplyCall {
                    id: Some(format!("call_{asked}")),
                    name: tool.name.clone(),
                    arguments: format!("{{\"order\":{asked},\"detail\":\"everything about it\"}}"),
                    extra: None,
                });
                asked += 1;
                let text = calls.is_none().then(|| "It left the warehouse on Monday.".into());
                let stop_reason = if calls.is_some() { StopReason::ToolUse } else { StopReason::default() };
                let reply =
                    Reply { text, calls: calls.into_iter().collect(), stop_reason, ..Reply::default() };
                ledger.add(0, Used::reply(reply.usage));
                engine.reply(number, reply);
            }
            Next::Calls(calls) => {
                ledger.add(0, Used::calls(u32::try_from(calls.len()).unwrap_or(u32::MAX)));
                let results = calls.iter().map(|Call { position, plan, input, .. }| {
                    std::hint::black_box(decide::<()>(None, input));
                    std::hint::black_box(IdempotencyKey::new(session, turn, position).to_string());
                    let result = match plan {
                        CallPlan::Run(arguments) => Ok(arguments.canonical.clone()),
                        CallPlan::Answer(failure) => Err(failure.clone()),
                    };
                    CallResult { position: position.clone(), result }
                });
                let results = results.collect();
                engine.results(results);
            }
            Next::End(Outcome::Completed { output }) => return output.len(),
            Next::End(Outcome::Failed(failure)) => {
                eprintln!("{failure:?}");
                std::process::exit(1);
            }
        }
    }
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let [turns, steps] = numbers[..] else {
        eprintln!("turnmill-engine-bench TURNS STEPS");
        std::process::exit(2);
    };
    let parameters = serde_json::json!({
        "type": "object",
        "properties": {"order": {"type": "integer"}, "detail": {"type": "string"}},
        "required": ["order"],
    });
    let tool = Arc::new(Definition::new("look_up_order", "Looks an order up.", parameters));
    let (turn, session) = (TurnId::new("t-1"), SessionId::new("s-1"));
    let (Ok(turn), Ok(session)) = (turn, session) else { std::process::exit(2) };
    let written: usize = (0..turns).map(|_| play(&tool, &turn, &session, steps)).sum();
    println!("{turns} turns of {steps} steps, {written} bytes of answers");
}
