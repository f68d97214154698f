//! What a recorded reply and a recorded call are bound to, and what does not matter to them.

use super::*;
use serde_json::json;

/// The transcript's hash after one call of `echo` and its result.
fn after_one_call(setup: Setup, reply: Reply, result: &str) -> Hash {
    let mut engine = Loop::new(setup, Limits::tool_calls(8));
    engine.reply(reply);
    hand_in(&mut engine, |_| Ok(result.into()));
    engine.asked().1
}

#[test]
fn a_reply_is_bound_to_everything_that_was_said() {
    let base = setup(&["echo"]);
    let reply = || asks(vec![call(Some("id"), "echo", "{}")]);
    let before = after_one_call(base.clone(), reply(), "1");
    let other_input = vec![Message::User { content: "go!".into() }];
    let others = [
        after_one_call(Setup { system: Some("You help!".into()), ..base.clone() }, reply(), "1"),
        after_one_call(Setup { system: None, ..base.clone() }, reply(), "1"),
        after_one_call(Setup { input: other_input, ..base.clone() }, reply(), "1"),
        after_one_call(base.clone(), Reply { text: Some("x".into()), ..reply() }, "1"),
        after_one_call(base.clone(), Reply { text: Some(String::new()), ..reply() }, "1"),
        after_one_call(base.clone(), asks(vec![call(Some("id"), "echo", "{ }")]), "1"),
        after_one_call(base.clone(), asks(vec![call(Some("other"), "echo", "{}")]), "1"),
        after_one_call(base.clone(), reply(), "2"),
        after_one_call(base.clone(), reply(), "1.0"),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(&before, other, "case {index}");
    }
    assert_eq!(before, after_one_call(base, reply(), "1"));
}

#[test]
fn a_reply_is_not_bound_to_the_offered_tools_or_the_usage() {
    let reply = |usage| Reply { usage, ..asks(vec![call(Some("id"), "echo", "{}")]) };
    let usage = Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() };
    let changed = Arc::new(Definition::new("echo", "Changed.", json!({"type": "object", "x": 1})));
    let tools = vec![tool("more"), changed];
    assert_eq!(
        after_one_call(setup(&["echo"]), reply(Usage::default()), "1"),
        after_one_call(Setup { tools, ..setup(&[]) }, reply(usage), "1"),
    );
}

#[test]
fn a_failed_and_a_good_result_of_one_text_differ() {
    let after = |result: fn() -> Result<String, Failure>| {
        let mut engine = engine(&["echo"], 8);
        engine.reply(asks_for(&["echo"]));
        hand_in(&mut engine, |_| result());
        engine.asked().1
    };
    assert_ne!(after(|| Ok("\"x\"".into())), after(|| Err(Failure::new(code::TOOL_ERROR, "x"))),);
}

fn input(tools: Vec<Arc<Definition>>, call: ReplyCall) -> Hash {
    let mut engine = Loop::new(Setup { tools, ..setup(&[]) }, Limits::tool_calls(8));
    engine.reply(asks(vec![call]));
    calls(&engine)[0].input.clone()
}

#[test]
fn a_call_is_bound_to_its_arguments_and_its_own_tool() {
    let define = |description: &str, parameters| Arc::new(Definition::new("pay", description, parameters));
    let schema = || json!({"type": "object"});
    let pay = || vec![define("Pay.", schema())];
    let base = input(pay(), call(None, "pay", r#"{"a":1,"b":2}"#));
    let others = [
        input(vec![define("Pay!", schema())], call(None, "pay", r#"{"a":1,"b":2}"#)),
        input(
            vec![define("Pay.", json!({"type": "object", "required": ["a"]}))],
            call(None, "pay", r#"{"a":1,"b":2}"#),
        ),
        input(vec![], call(None, "pay", r#"{"a":1,"b":2}"#)),
        input(pay(), call(None, "pay", r#"{"a":1,"b":3}"#)),
        input(pay(), call(None, "pay", r#"{"a":1.0,"b":2}"#)),
        input(pay(), call(None, "pay", r#"{"a":1,"b":2"#)),
        input(vec![tool("pay2")], call(None, "pay2", r#"{"a":1,"b":2}"#)),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(&base, other, "case {index}");
    }
}

#[test]
fn a_call_is_not_bound_to_other_tools_ids_or_the_spelling_of_its_arguments() {
    let pay = || tool("pay");
    let base = input(vec![pay()], call(None, "pay", r#"{"a":1,"b":"ü"}"#));
    let same = [
        input(vec![tool("more"), pay(), tool("other")], call(None, "pay", r#"{"a":1,"b":"ü"}"#)),
        input(vec![pay()], call(Some("id"), "pay", r#"{"a":1,"b":"ü"}"#)),
        input(vec![pay()], call(None, "pay", r#" { "b" : "\u00fc", "a" : 0, "a" : 1 } "#)),
    ];
    for (index, other) in same.iter().enumerate() {
        assert_eq!(&base, other, "case {index}");
    }
    let empty = ["", "null", "{}", " { } "].map(|arguments| input(vec![pay()], call(None, "pay", arguments)));
    assert!(empty.iter().all(|hash| *hash == empty[0]));
}

#[test]
fn the_key_order_of_a_schema_does_not_change_a_definition() {
    let hash = |json: &str| Definition::new("t", "d", serde_json::from_str(json).unwrap()).hash().clone();
    assert_eq!(hash(r#"{"a":{"x":1,"y":2},"b":3}"#), hash(r#"{"b":3,"a":{"y":2,"x":1}}"#));
    assert_ne!(hash(r#"{"a":[1,2]}"#), hash(r#"{"a":[2,1]}"#));
}
