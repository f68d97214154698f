//! Streams that are cut, and whose events are taken out, doubled and mixed up: no call is ever doubled, merged or invented.

use proptest::prelude::*;

use super::*;
use crate::model::provider::draft::MAX_REPLY;

/// What a shape's reader makes of these events.
fn read(api: Api, events: &[Value]) -> Result<Reply, Fault> {
    let mut reader = api.reader("here");
    for event in events {
        let over = match event {
            Value::String(text) => reader.event(text)?,
            event => reader.event(&event.to_string())?,
        };
        if over {
            break;
        }
    }
    reader.end()
}

#[tokio::test]
async fn a_stream_without_its_end_is_an_error_that_may_pass() {
    for api in SHAPES {
        let body = sse(&whole(api, "hello", &[call("x", "add", r#"{"a":1}"#)], StopReason::ToolUse));
        let end = match api {
            Api::Anthropic => body.find("event: message_stop").unwrap(),
            // What follows is no part of the reply.
            Api::OpenAi => body.find(r#""finish_reason":"tool_calls""#).unwrap(),
        };
        for cut in (0..end).step_by(11).chain([end]) {
            let failure = reply_to(api, &body[..cut]).await.unwrap_err();
            assert_eq!(failure.code, code::MODEL_STREAM, "{api:?} cut at {cut}: {failure}");
        }
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_what_it_says() {
    for api in SHAPES {
        let mut events = whole(api, "hello", &[], StopReason::EndTurn);
        events.insert(
            2,
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        );
        let failure = reply_to(api, sse(&events)).await.unwrap_err();
        assert_eq!(failure.code, code::MODEL_OVERLOADED, "{api:?}: {failure}");
    }
}

#[tokio::test]
async fn a_refusal_is_no_answer() {
    let mut events = streams::anthropic("I", &[], StopReason::EndTurn);
    for event in &mut events {
        if event["type"] == "message_delta" {
            event["delta"]["stop_reason"] = json!("refusal");
        }
    }
    assert_eq!(reply_to(Api::Anthropic, sse(&events)).await.unwrap_err().code, code::CONTENT_FILTER);
    let filtered = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]});
    let refused = json!({"choices": [{"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}]});
    for chunk in [filtered, refused] {
        assert_eq!(
            reply_to(Api::OpenAi, sse(&[chunk, "[DONE]".into()])).await.unwrap_err().code,
            code::CONTENT_FILTER
        );
    }
}

#[tokio::test]
async fn a_reply_that_ends_for_another_reason_is_no_reply() {
    let with = |finish: &str, calls: bool| {
        let delta = if calls {
            json!({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "add", "arguments": "{}"}}]})
        } else {
            json!({"content": "half a"})
        };
        sse(&[
            json!({"choices": [{"index": 0, "delta": delta}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        ])
    };
    let cases = [
        ("insufficient_system_resource", true, code::MODEL_STREAM),
        ("abort", false, code::MODEL_STREAM),
        ("MALFORMED_FUNCTION_CALL", false, code::MODEL_STREAM),
        ("tool_calls", false, code::MODEL_STREAM),
        ("SAFETY", false, code::CONTENT_FILTER),
        ("content_filter: hate", false, code::CONTENT_FILTER),
    ];
    for (finish, calls, code) in cases {
        assert_eq!(reply_to(Api::OpenAi, with(finish, calls)).await.unwrap_err().code, code, "{finish}");
    }
    for (finish, stop) in
        [("STOP", StopReason::ToolUse), ("eos", StopReason::ToolUse), ("MAX_TOKENS", StopReason::MaxTokens)]
    {
        assert_eq!(reply_to(Api::OpenAi, with(finish, true)).await.unwrap().stop_reason, stop, "{finish}");
    }
    // A server that says it in each chunk has said it when it is done.
    let chunk =
        |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]});
    let cut = [chunk("half"), chunk(" a")];
    assert_eq!(reply_to(Api::OpenAi, sse(&cut)).await.unwrap_err().code, code::MODEL_STREAM);
    let whole = [chunk("all"), chunk(" of it"), "[DONE]".into()];
    assert_eq!(reply_to(Api::OpenAi, sse(&whole)).await.unwrap().text.as_deref(), Some("all of it"));
    let without = streams::anthropic("Let me", &[], StopReason::ToolUse);
    assert_eq!(reply_to(Api::Anthropic, sse(&without)).await.unwrap_err().code, code::MODEL_STREAM);
    let whole = json!({"type": "message", "content": []});
    assert_eq!(reply_to(Api::Anthropic, sse(&[whole])).await.unwrap_err().code, code::MODEL_REQUEST);
}

#[tokio::test]
async fn whatever_a_stream_says_is_bounded() {
    let endless = |api: Api| {
        let chunk = match api {
            Api::Anthropic => {
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x".repeat(1 << 20)}})
            }
            Api::OpenAi => json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(1 << 20)}}]}),
        };
        let mut events = whole(api, "x", &[], StopReason::EndTurn);
        events.splice(3..3, std::iter::repeat_n(chunk, MAX_REPLY / (1 << 20) + 1));
        sse(&events)
    };
    let many = |api: Api| {
        let calls: Vec<_> = (0..2_000).map(|n| call(&n.to_string(), "add", "{}")).collect();
        sse(&whole(api, "", &calls, StopReason::ToolUse))
    };
    for api in SHAPES {
        let begins = json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "tool_use", "id": "x", "name": "add", "input": {"a": "x".repeat(MAX_REPLY)}}});
        let mut with_input = streams::anthropic("x", &[], StopReason::EndTurn);
        with_input.insert(5, begins);
        let failure = reply_to(Api::Anthropic, sse(&with_input[..6])).await.unwrap_err();
        assert!(failure.detail.unwrap().contains("larger than"));
        // Without an end of its only line, too.
        for body in [endless(api), many(api), format!("data: {}", "x".repeat(7 * MAX_REPLY))] {
            let failure = reply_to(api, body).await.unwrap_err();
            assert_eq!(failure.code, code::MODEL_STREAM, "{api:?}: {failure}");
        }
    }
}

#[test]
fn what_is_out_of_order_is_no_reply() {
    let events = streams::anthropic("hi", &[call("x", "add", "{}")], StopReason::ToolUse);
    for at in 0..events.len() - 1 {
        let mut again = events.clone();
        again.insert(at, events[at].clone());
        let double = read(Api::Anthropic, &again);
        let harmless =
            matches!(events[at]["type"].as_str(), Some("ping" | "message_delta" | "content_block_delta"));
        assert_eq!(double.is_ok(), harmless, "{}", events[at]);
    }
}

#[derive(Debug, Clone)]
enum Change {
    Cut(usize),
    Remove(usize),
    Double(usize),
    Swap(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0usize..64;
    prop_oneof![
        at().prop_map(Change::Cut),
        at().prop_map(Change::Remove),
        at().prop_map(Change::Double),
        (at(), at()).prop_map(|(one, other)| Change::Swap(one, other)),
    ]
}

fn changed(mut events: Vec<Value>, changes: &[Change]) -> Vec<Value> {
    for change in changes {
        let len = events.len();
        if len == 0 {
            break;
        }
        match *change {
            Change::Cut(at) => events.truncate(at % len),
            Change::Remove(at) => drop(events.remove(at % len)),
            Change::Double(at) => events.insert(at % len, events[at % len].clone()),
            Change::Swap(one, other) => events.swap(one % len, other % len),
        }
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_call_is_doubled_merged_or_invented(
        count in 0usize..5,
        changes in prop::collection::vec(change(), 0..6),
        anthropic: bool,
    ) {
        let api = if anthropic { Api::Anthropic } else { Api::OpenAi };
        // Arguments without a character of another call's, so that it is seen where each piece came from.
        let letter = |n: usize| char::from(b'p' + u8::try_from(n).unwrap());
        let calls: Vec<_> = (0..count)
            .map(|n| call(&format!("id{n}"), &format!("tool{n}"), &letter(n).to_string().repeat(20)))
            .collect();
        let stop = if count == 0 { StopReason::EndTurn } else { StopReason::ToolUse };
        let events = whole(api, "text", &calls, stop);
        let Ok(reply) = read(api, &changed(events, &changes)) else { return Ok(()) };
        prop_assert!(reply.calls.len() <= count, "invented or doubled: {:?}", reply.calls);
        let mut seen = std::collections::HashSet::new();
        for made in &reply.calls {
            let mut letters: Vec<_> = made.arguments.chars().collect();
            letters.dedup();
            prop_assert!(letters.len() <= 1, "merged: {made:?}");
            // Where the beginning of a call is gone, so may be its id and name; but never is it another's.
            let n = match (&made.id, letters.first()) {
                (Some(id), _) => id.strip_prefix("id").unwrap().parse().unwrap(),
                (None, Some(letter)) => usize::try_from(u32::from(*letter) - u32::from('p')).unwrap(),
                (None, None) => continue,
            };
            prop_assert!(letters.first().is_none_or(|found| *found == letter(n)), "merged: {made:?}");
            prop_assert!(made.name.is_empty() || made.name == format!("tool{n}"), "merged: {made:?}");
            prop_assert!(seen.insert(n), "doubled: {:?}", reply.calls);
        }
    }

    #[test]
    fn no_event_makes_a_reader_panic(
        events in prop::collection::vec("(\\{\"type\":\"[a-z_]{1,20}\",\"index\":[0-9]{1,22}\\}|.{0,40})", 0..8),
        anthropic: bool,
    ) {
        let api = if anthropic { Api::Anthropic } else { Api::OpenAi };
        let events: Vec<_> = events.into_iter().map(Value::String).collect();
        let _ = read(api, &events);
    }
}
