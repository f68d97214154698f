//! Whatever a model replies and tools return: the loop never panics, always ends, and repeats itself.

use std::collections::HashSet;

use super::*;
use proptest::prelude::*;

type Outcomes = Vec<Result<String, Failure>>;

const MAX_CALLS: u32 = 6;

fn any_call() -> impl Strategy<Value = ReplyCall> {
    let id = prop_oneof![
        Just(None),
        Just(Some(String::new())),
        "[xy]".prop_map(Some),
        "m[01]\\.c[012]'?".prop_map(Some),
    ];
    let name = prop_oneof![
        4 => Just("echo".to_owned()),
        2 => Just("add".to_owned()),
        1 => "\\PC{0,70}",
    ];
    let arguments = prop_oneof![
        4 => Just("{}".to_owned()),
        1 => Just(r#"{"b":[1.0,{"c":null}],"a":"\u0000"}"#.to_owned()),
        1 => "[\\[\\]{}\",:a1 \\\\]{0,12}",
        1 => any::<String>(),
    ];
    (id, name, arguments).prop_map(|(id, name, arguments)| ReplyCall { id, name, arguments, extra: None })
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let stop = prop_oneof![Just(StopReason::EndTurn), Just(StopReason::ToolUse), Just(StopReason::MaxTokens)];
    let usage = (any::<u64>(), any::<u64>()).prop_map(|(input_tokens, output_tokens)| Usage {
        input_tokens,
        output_tokens,
        ..Usage::default()
    });
    let calls = prop::collection::vec(any_call(), 0..4);
    (any::<Option<String>>(), calls, stop, usage).prop_map(|(text, calls, stop_reason, usage)| Reply {
        text,
        calls,
        stop_reason,
        usage,
        ..Reply::default()
    })
}

fn any_outcomes() -> impl Strategy<Value = Outcomes> {
    let one = prop_oneof![
        8 => Just(Ok("null".to_owned())),
        4 => any::<String>().prop_map(|text| Ok(serde_json::to_string(&text).unwrap())),
        2 => any::<String>().prop_map(|text| Err(Failure::new(code::TOOL_ERROR, text))),
        1 => Just(Err(Failure::new(code::TOOL_FATAL, "fatal"))),
        1 => Just(Err(Failure::new(code::POISON, "poison"))),
    ];
    // Too few and too many results are the driver's mistake; the loop must bear it.
    prop::collection::vec(one, 0..6)
}

/// Plays the replies, then one without calls; returns everything that the engine said, and the engine.
fn play(script: &[(Reply, Outcomes)], strict: bool) -> (Vec<String>, Loop) {
    let mut engine = engine(&["echo", "add"], MAX_CALLS);
    let mut said = Vec::new();
    let mut replies = script.iter();
    let mut outcomes = Outcomes::new();
    for _ in 0..2 * script.len() + 3 {
        said.push(format!("{:?}", engine.next()));
        match engine.next() {
            Next::Model { .. } => match replies.next() {
                Some((reply, results)) => {
                    outcomes.clone_from(results);
                    engine.reply(reply.clone());
                }
                None => engine.reply(text("done")),
            },
            Next::Calls(calls) => {
                let mut given = std::mem::take(&mut outcomes);
                if strict {
                    given.resize(calls.len(), Ok("null".into()));
                }
                let results = calls.iter().map(|call| call.position.clone()).cycle().zip(given);
                engine.results(results.map(|(position, result)| CallResult { position, result }).collect());
            }
            Next::End(_) => return (said, engine),
        }
    }
    panic!("the turn did not end: {said:?}")
}

proptest! {
    #[test]
    fn always_ends_and_repeats_itself(
        script in prop::collection::vec((any_reply(), any_outcomes()), 0..6),
        strict in any::<bool>(),
    ) {
        let (said, engine) = play(&script, strict);
        prop_assert!(engine.used().tool_calls <= MAX_CALLS);
        prop_assert_eq!(said, play(&script, strict).0);
    }

    #[test]
    fn every_call_of_the_transcript_is_answered_once_under_an_id_of_its_own(
        script in prop::collection::vec((any_reply(), any_outcomes()), 0..6),
    ) {
        let (_, engine) = play(&script, true);
        let mut seen = HashSet::new();
        let mut waiting = Vec::new();
        for message in engine.messages() {
            match message {
                Message::Assistant { tool_calls, .. } => {
                    prop_assert!(waiting.is_empty(), "unanswered: {:?}", waiting);
                    waiting = tool_calls.iter().rev().map(|call| call.id.clone()).collect();
                    for call in tool_calls {
                        prop_assert!(seen.insert(call.id.clone()), "{} comes twice", call.id);
                    }
                }
                Message::Tool { tool_call_id, .. } => {
                    prop_assert_eq!(waiting.pop(), Some(tool_call_id.clone()));
                }
                _ => {}
            }
        }
        // Only the reply that broke the limit is left without answers.
        let over_limit = matches!(outcome(&engine), Outcome::Failed(f) if f.code == code::TOOL_CALL_LIMIT);
        prop_assert_eq!(over_limit, !waiting.is_empty());
    }

    #[test]
    fn a_model_that_never_stops_calling_is_stopped_by_the_limit(calls in prop::collection::vec(any_call(), 1..4)) {
        let mut engine = engine(&["echo", "add"], MAX_CALLS);
        for _ in 0..=MAX_CALLS {
            if matches!(engine.next(), Next::End(_)) {
                break;
            }
            engine.reply(asks(calls.clone()));
            if matches!(engine.next(), Next::Calls(_)) {
                ok(&mut engine);
            }
        }
        let Outcome::Failed(failure) = outcome(&engine) else { panic!("{:?}", engine.next()) };
        prop_assert_eq!(failure.code, code::TOOL_CALL_LIMIT);
    }
}
