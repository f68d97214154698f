//! What becomes of the calls of a reply: which run, which are answered, and under which ids.

use super::*;

#[test]
fn an_unknown_tool_gets_the_exact_text_of_the_specification() {
    let mut engine = engine(&["b", "a"], 8);
    engine.reply(asks_for(&["x", "", "A", "b "]));
    let texts: Vec<_> = calls(&engine).iter().map(|call| answer(call).clone()).collect();
    let expected = ["x", "", "A", "b "]
        .map(|name| Failure::new(code::UNKNOWN_TOOL, format!("unknown tool '{name}'; available: b, a")));
    assert_eq!(texts, expected);
}

#[test]
fn an_unknown_name_is_cut_to_64_characters() {
    let mut engine = engine(&["a"], 8);
    for (name, shown) in [("ü".repeat(64), "ü".repeat(64)), ("ü".repeat(65), "ü".repeat(64))] {
        engine.reply(asks_for(&[&name]));
        let calls = calls(&engine);
        assert_eq!(answer(&calls[0]).message, format!("unknown tool '{shown}'; available: a"));
        assert_eq!(calls[0].name, name, "the record keeps the name as the model wrote it");
        ok(&mut engine);
    }
}

#[test]
fn at_most_20_names_are_listed_in_the_order_of_registration() {
    let names: Vec<_> = (0..21).rev().map(|n| format!("t{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for count in [20, 21] {
        let mut engine = engine(&names[..count], 8);
        engine.reply(asks_for(&["x"]));
        let expected = format!("unknown tool 'x'; available: {}", names[..20].join(", "));
        assert_eq!(answer(&calls(&engine)[0]).message, expected);
    }
}

#[test]
fn unknown_and_known_tools_of_one_reply_stand_side_by_side() {
    let mut engine = engine(&["echo", "add"], 8);
    engine.reply(asks(vec![
        call(Some("1"), "add", r#"{"b": 2, "a": 1}"#),
        call(Some("2"), "nope", r#"{"b": 2, "a": 1}"#),
        call(Some("3"), "echo", "{"),
        call(Some("4"), "echo", ""),
    ]));
    let calls = calls(&engine);
    let positions: Vec<_> = calls.iter().map(|call| call.position.to_string()).collect();
    assert_eq!(positions, ["m0.c0", "m0.c1", "m0.c2", "m0.c3"]);
    assert_eq!(calls[0].plan, CallPlan::Run(Arguments { canonical: r#"{"a":1,"b":2}"#.into() }));
    assert_eq!(answer(&calls[1]).code, code::UNKNOWN_TOOL);
    assert_eq!(answer(&calls[2]).code, code::INVALID_ARGUMENTS);
    assert_eq!(calls[3].plan, CallPlan::Run(Arguments { canonical: "{}".into() }));
    ok(&mut engine);
    assert_eq!(engine.asked().0, 1);
    assert_eq!(engine.used().tool_calls, 4, "the refused calls count");
}

#[test]
fn arguments_that_are_no_object_are_answered_and_the_turn_goes_on() {
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let bad = ["{\"{\"", "{", r#"{"a":1}{"a":2}"#, r#"{"a": "unt"#, "[]", r#"{"a":"\udc00"}"#, &deep];
    for arguments in bad {
        let mut engine = engine(&["echo"], 8);
        engine.reply(asks(vec![call(None, "echo", arguments)]));
        let calls = calls(&engine);
        assert_eq!(answer(&calls[0]).code, code::INVALID_ARGUMENTS, "{arguments:.40}");
        assert_eq!(calls[0].raw_arguments, arguments);
        ok(&mut engine);
        engine.reply(text("done"));
        assert_eq!(outcome(&engine), Outcome::Completed { output: "done".into() });
    }
}

#[test]
fn arguments_as_deep_as_they_may_be_are_planned() {
    let deep = format!("{}{}", "{\"a\":".repeat(127), "1".to_owned() + &"}".repeat(127));
    let mut engine = engine(&["echo"], 8);
    engine.reply(asks(vec![call(None, "echo", &deep), call(None, "echo", "{}")]));
    let calls = calls(&engine);
    assert!(matches!(calls[0].plan, CallPlan::Run(_)), "{:?}", calls[0].plan);
    assert_ne!(calls[0].input, calls[1].input);
}

#[test]
fn a_reply_that_was_cut_off_runs_none_of_its_calls() {
    let mut engine = engine(&["echo"], 8);
    engine.reply(Reply {
        stop_reason: StopReason::MaxTokens,
        ..asks(vec![call(None, "echo", "{}"), call(None, "nope", "{}"), call(None, "echo", "{\"a\":")])
    });
    for call in calls(&engine) {
        assert_eq!(answer(&call).code, code::REPLY_TRUNCATED, "{}", call.name);
        assert!(answer(&call).message.contains("token limit"));
    }
    ok(&mut engine);
    assert_eq!(engine.asked().0, 1, "the model is told, and the turn goes on");
    assert_eq!(engine.used().tool_calls, 3);
}

fn ids(engine: &Engine) -> Vec<String> {
    (engine.messages().iter())
        .filter_map(|message| match message {
            Message::Assistant { tool_calls, .. } => Some(tool_calls.iter().map(|call| call.id.clone())),
            _ => None,
        })
        .flatten()
        .collect()
}

#[test]
fn ids_that_are_missing_empty_or_taken_are_replaced_by_own_ones() {
    let mut engine = engine(&["echo"], 32);
    let id = |id| call(id, "echo", "");
    engine.reply(asks(vec![id(Some("x")), id(Some("x")), id(None), id(Some("")), id(Some("y"))]));
    ok(&mut engine);
    engine.reply(asks(vec![id(Some("y")), id(Some("z")), id(Some("m0.c1"))]));
    ok(&mut engine);
    assert_eq!(ids(&engine), ["x", "m0.c1", "m0.c2", "m0.c3", "y", "m1.c0", "z", "m1.c2"]);
}

#[test]
fn an_own_id_that_the_provider_has_used_is_still_unique() {
    let mut engine = engine(&["echo"], 32);
    let id = |id| call(id, "echo", "");
    engine.reply(asks(vec![id(Some("m0.c1")), id(None), id(Some("m0.c1'")), id(Some("m1.c0"))]));
    ok(&mut engine);
    engine.reply(asks(vec![id(None)]));
    assert_eq!(ids(&engine), ["m0.c1", "m0.c1'", "m0.c2", "m1.c0", "m1.c0'"]);
}

#[test]
fn ids_differ_from_those_of_the_conversation_that_came_as_input() {
    let call =
        |id: &str| ToolCall { id: id.into(), name: "echo".into(), arguments: "{}".into(), extra: None };
    let past = Message::Assistant {
        content: None,
        thinking: Vec::new(),
        tool_calls: vec![call("m0.c0"), call("x")],
    };
    let mut engine = Loop::new(Setup { input: vec![past], ..setup(&["echo"]) }, Limits::tool_calls(8));
    engine.reply(asks(vec![super::call(None, "echo", ""), super::call(Some("x"), "echo", "")]));
    assert_eq!(ids(&engine), ["m0.c0", "x", "m0.c0'", "m0.c1"]);
}

#[test]
fn five_calls_get_five_results_each_under_its_id_in_call_order() {
    let mut engine = engine(&["echo"], 8);
    engine.reply(asks((0..5).map(|n| call(Some(&format!("id{n}")), "echo", "")).collect()));
    hand_in(&mut engine, |index| Ok(format!("\"result {index}\"")));
    let answers: Vec<_> = engine.messages()[3..].to_vec();
    let expected: Vec<_> = (0..5)
        .map(|n| Message::Tool {
            tool_call_id: format!("id{n}"),
            name: "echo".into(),
            content: format!("result {n}"),
            is_error: false,
        })
        .collect();
    assert_eq!(answers, expected);
}

#[test]
fn a_text_reaches_the_model_as_it_is_and_anything_else_as_json() {
    let cases = [
        (r#""hi \u0000\n""#, "hi \0\n"),
        (r#""""#, ""),
        (r#"{"a":1.0}"#, r#"{"a":1.0}"#),
        ("null", "null"),
        ("[\"x\"]", "[\"x\"]"),
        ("18446744073709551616", "18446744073709551616"),
    ];
    for (json, expected) in cases {
        let result = CallResult { position: Position::call(0, 0), result: Ok(json.into()) };
        assert_eq!(result.text(), expected);
    }
}

#[test]
fn a_failed_tool_fails_the_turn_where_the_agent_says_so_and_what_the_model_gets_wrong_does_not() {
    for (code, tells, fails) in [
        (code::TOOL_ERROR, false, true),
        (code::TOOL_TIMEOUT, false, true),
        (code::INVALID_RESULT, false, true),
        (code::UNKNOWN_OUTCOME, false, true),
        (code::UNKNOWN_TOOL, false, false),
        (code::INVALID_ARGUMENTS, false, false),
        (code::REPLY_TRUNCATED, false, false),
        (code::TOOL_FATAL, true, true),
        (code::POISON, true, true),
    ] {
        for (what, ends) in [(OnToolError::TellModel, tells), (OnToolError::FailTurn, fails)] {
            let mut engine =
                Loop::new(Setup { on_tool_error: what, ..setup(&["echo"]) }, Limits::tool_calls(32));
            engine.reply(asks_for(&["echo", "echo"]));
            let failure = Failure::new(code, "it failed");
            engine.results(vec![
                CallResult { position: Position::call(0, 0), result: Ok("1".into()) },
                CallResult { position: Position::call(0, 1), result: Err(failure.clone()) },
            ]);
            let ended = matches!(engine.next(), Next::End(Outcome::Failed(why)) if *why == failure);
            assert_eq!(ended, ends, "{code} under {what:?}");
        }
    }
}

#[test]
fn a_poisoned_record_is_one_whatever_else_failed() {
    for what in [OnToolError::TellModel, OnToolError::FailTurn] {
        for other in [code::TOOL_ERROR, code::TOOL_FATAL] {
            let mut engine =
                Loop::new(Setup { on_tool_error: what, ..setup(&["echo"]) }, Limits::tool_calls(32));
            engine.reply(asks_for(&["echo", "echo", "echo"]));
            let failed = |index: usize, code: &'static str| CallResult {
                position: Position::call(0, index),
                result: Err(Failure::new(code, "it failed")),
            };
            engine.results(vec![failed(0, other), failed(1, code::POISON), failed(2, other)]);
            let Next::End(Outcome::Failed(failure)) = engine.next() else { panic!("{other} under {what:?}") };
            assert_eq!(failure.code, code::POISON, "{other} under {what:?}");
        }
    }
}
