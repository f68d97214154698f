//! What broke others: the first table of the cases, over HTTP, as streams of both shapes. What the loop makes of such replies
//! is tested with the loop.

use super::*;

/// Calls with these arguments come as they were written.
async fn comes_as_written(calls: &[ReplyCall], stop: StopReason) {
    for api in SHAPES {
        let reply = reply_to(api, sse(&whole(api, "", calls, stop))).await.unwrap();
        assert_eq!((reply.calls.as_slice(), reply.stop_reason), (calls, stop), "{api:?}");
    }
}

#[tokio::test]
async fn malformed_arguments_come_as_they_were_written() {
    let malformed = [
        r#"{"{""#,
        "{",
        r#"{"a":1}{"a":2}"#,
        r#"{"a":1} {"a":2} {"a":3}"#,
        r#"{"a": "unterminated"#,
        r#"{"a":1e999}"#,
        "not json at all",
        "null",
        "[]",
        "\u{0}",
    ];
    for arguments in malformed {
        comes_as_written(&[call("x", "add", arguments), call("y", "add", "{}")], StopReason::ToolUse).await;
    }
}

#[tokio::test]
async fn a_reply_that_is_cut_off_at_its_limit_says_so() {
    comes_as_written(&[call("x", "add", r#"{"a": 1, "b""#)], StopReason::MaxTokens).await;
    // Anthropic may leave the end of the block out then.
    let mut events = streams::anthropic("", &[call("x", "add", r#"{"a": 1"#)], StopReason::MaxTokens);
    events.retain(|event| event["type"] != "content_block_stop");
    let reply = reply_to(Api::Anthropic, sse(&events)).await.unwrap();
    assert_eq!(
        (reply.calls, reply.stop_reason),
        (vec![call("x", "add", r#"{"a": 1"#)], StopReason::MaxTokens)
    );
}

#[tokio::test]
async fn a_call_may_lack_its_id_its_name_and_its_arguments() {
    for (id, name) in [(Value::Null, json!("")), (json!(""), Value::Null)] {
        let events = [
            json!({"type": "message_start", "message": {}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": id, "name": name, "input": null}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ];
        let reply = reply_to(Api::Anthropic, sse(&events)).await.unwrap();
        assert_eq!(reply.calls, [ReplyCall::default()]);
        let chunks = [
            json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": null}}]}}]}),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
            json!("[DONE]"),
        ];
        let reply = reply_to(Api::OpenAi, sse(&chunks)).await.unwrap();
        assert_eq!(reply.calls, [ReplyCall::default()]);
    }
}

#[tokio::test]
async fn later_deltas_with_an_empty_name_and_id_overwrite_nothing() {
    let delta = |arguments: &str, id: &str, name: &str| {
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]}}]})
    };
    // The third server says both again and again.
    for (id, name) in [("", ""), ("x", ""), ("x", "add")] {
        let chunks = [
            delta("", "x", "add"),
            delta(r#"{"a""#, id, name),
            delta(":1}", id, name),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!("[DONE]"),
        ];
        assert_eq!(
            reply_to(Api::OpenAi, sse(&chunks)).await.unwrap().calls,
            [call("x", "add", r#"{"a":1}"#)]
        );
    }
}

#[tokio::test]
async fn calls_with_one_id_are_two() {
    comes_as_written(&[call("x", "add", r#"{"a":1}"#), call("x", "add", r#"{"a":2}"#)], StopReason::ToolUse)
        .await;
}

#[tokio::test]
async fn empty_arguments_come_as_nothing() {
    comes_as_written(&[call("x", "add", "")], StopReason::ToolUse).await;
}

#[tokio::test]
async fn surrogates_in_pairs_are_text_and_halves_stay_what_they_are() {
    // As the model wrote them: JSON in a JSON text, so that the escapes are escaped.
    let arguments = [r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\udc00"}"#, "{\"a\":\"😀\"}"];
    for arguments in arguments {
        comes_as_written(&[call("x", "add", arguments)], StopReason::ToolUse).await;
    }
    // As a server writes them that does not escape them once more, a half in each piece.
    let chunk = |piece: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"x","function":{{"name":"add","arguments":"{piece}"}}}}]}}}}]}}"#
        )
    };
    let end = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
    let with = |first: &str, second: &str| {
        let chunks = [
            chunk(&format!(r#"{{\"a\":\"{first}"#)),
            chunk(&format!(r#"{second}\"}}"#)),
            end.into(),
            "[DONE]".into(),
        ];
        chunks.map(Value::String)
    };
    let whole = reply_to(Api::OpenAi, sse(&with(r"\ud83d", r"\ude00"))).await.unwrap();
    assert_eq!(whole.calls[0].arguments, r#"{"a":"\ud83d\ude00"}"#);
    assert_eq!(crate::turn::Arguments::parse(&whole.calls[0].arguments).unwrap().canonical, "{\"a\":\"😀\"}");
    let half = reply_to(Api::OpenAi, sse(&with("", r"\udc00"))).await.unwrap();
    assert!(crate::turn::Arguments::parse(&half.calls[0].arguments).is_err(), "{:?}", half.calls);
}

#[tokio::test]
async fn nul_in_an_argument_is_kept() {
    comes_as_written(&[call("x", "add", "{\"a\":\"x\\u0000y\"}")], StopReason::ToolUse).await;
}

#[tokio::test]
async fn arguments_may_be_nested_deeply_and_be_long() {
    let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    for arguments in [deep, long] {
        comes_as_written(&[call("x", "add", &arguments)], StopReason::ToolUse).await;
    }
}

#[tokio::test]
async fn five_calls_are_five_in_their_order() {
    let calls: Vec<_> = (0..5).map(|n| call(&format!("id{n}"), "add", &format!("{{\"a\":{n}}}"))).collect();
    comes_as_written(&calls, StopReason::ToolUse).await;
}

#[tokio::test]
async fn a_tool_that_was_not_offered_is_handed_on() {
    comes_as_written(&[call("x", "never offered!", "{}")], StopReason::ToolUse).await;
}

/// Chunks with these deltas of calls, and the calls that they are.
async fn are(deltas: &[Value], expected: &[ReplyCall]) {
    let mut chunks: Vec<_> = deltas
        .iter()
        .map(|delta| json!({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]}))
        .collect();
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    chunks.push("[DONE]".into());
    assert_eq!(reply_to(Api::OpenAi, sse(&chunks)).await.unwrap().calls, expected, "{deltas:?}");
}

#[tokio::test]
async fn indices_of_openai_may_begin_anywhere_be_missing_or_all_the_same() {
    let f = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let two = [call("x", "add", r#"{"a":1}"#), call("y", "add", r#"{"a":2}"#)];
    let (one, other) = (f("add", r#"{"a":1}"#), f("add", r#"{"a":2}"#));
    // From 1, and far away.
    are(
        &[
            json!({"index": 1, "id": "x", "function": one}),
            json!({"index": 2_000_000, "id": "y", "function": other}),
        ],
        &two,
    )
    .await;
    // Missing.
    are(&[json!({"id": "x", "function": one}), json!({"id": "y", "function": other})], &two).await;
    // All the same.
    are(
        &[json!({"index": 0, "id": "x", "function": one}), json!({"index": 0, "id": "y", "function": other})],
        &two,
    )
    .await;
    // Missing, in pieces, with and without the id.
    let pieces = |id: Value| {
        [
            json!({"id": "x", "function": f("add", r#"{"a""#)}),
            json!({"id": id, "function": f("", ":1}")}),
            json!({"id": "y", "function": f("add", "")}),
            json!({"function": {"arguments": r#"{"a":2}"#}}),
        ]
    };
    are(&pieces(Value::Null), &two).await;
    are(&pieces(json!("x")), &two).await;
    // Pieces that take turns.
    are(
        &[
            json!({"index": 0, "id": "x", "function": f("add", r#"{"a""#)}),
            json!({"index": 1, "id": "y", "function": f("add", r#"{"a""#)}),
            json!({"index": 0, "function": {"arguments": ":1}"}}),
            json!({"index": 1, "function": {"arguments": ":2}"}}),
        ],
        &two,
    )
    .await;
    // An id that only comes later.
    are(
        &[
            json!({"index": 0, "function": f("add", r#"{"a""#)}),
            json!({"index": 0, "id": "x", "function": f("", ":1}")}),
        ],
        &two[..1],
    )
    .await;
    // Two with one id and no index: a name begins the second.
    are(
        &[json!({"id": "x", "function": one}), json!({"id": "x", "function": other})],
        &[two[0].clone(), ReplyCall { id: Some("x".into()), ..two[1].clone() }],
    )
    .await;
    // A new id to each piece.
    are(
        &[
            json!({"index": 0, "id": "x", "function": f("add", r#"{"a""#)}),
            json!({"index": 0, "id": "z", "function": f("", ":1}")}),
        ],
        &two[..1],
    )
    .await;
    // The same index, and no id: each is whole.
    let nameless = |call: &ReplyCall| ReplyCall { id: None, ..call.clone() };
    are(
        &[json!({"index": 0, "function": one}), json!({"index": 0, "function": other})],
        &two.each_ref().map(nameless),
    )
    .await;
    // An index and then none.
    are(
        &[json!({"index": 0, "id": "x", "function": f("add", r#"{"a""#)}), json!({"function": f("", ":1}")})],
        &two[..1],
    )
    .await;
    // No index, and ids that take turns.
    are(
        &[
            json!({"id": "x", "function": f("add", r#"{"a""#)}),
            json!({"id": "y", "function": f("add", r#"{"a""#)}),
            json!({"id": "x", "function": f("", ":1}")}),
            json!({"id": "y", "function": f("", ":2}")}),
        ],
        &two,
    )
    .await;
    // Arguments that the server has parsed.
    are(&[json!({"index": 0, "id": "x", "function": {"name": "add", "arguments": {"a": 1}}})], &two[..1])
        .await;
}

#[tokio::test]
async fn indices_of_anthropic_may_begin_anywhere_or_be_missing() {
    let calls = [call("x", "add", r#"{"a":1}"#), call("y", "add", r#"{"a":2}"#)];
    for change in [|index: u64| Some(index + 1), |index| Some(index * 2_000_000), |_| None] {
        let mut events = streams::anthropic("", &calls, StopReason::ToolUse);
        for event in events.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(index) = event.remove("index").and_then(|index| change(index.as_u64()?)) {
                event.insert("index".into(), index.into());
            }
        }
        assert_eq!(reply_to(Api::Anthropic, sse(&events)).await.unwrap().calls, calls);
    }
}

#[tokio::test]
async fn anthropic_may_say_the_whole_input_at_the_start() {
    let mut events = streams::anthropic("", &[call("x", "add", "")], StopReason::ToolUse);
    for event in &mut events {
        if event["type"] == "content_block_start" {
            event["content_block"]["input"] = json!({"a": 1});
        }
    }
    assert_eq!(reply_to(Api::Anthropic, sse(&events)).await.unwrap().calls, [call("x", "add", r#"{"a":1}"#)]);
}

#[tokio::test]
async fn what_a_provider_wants_back_with_a_call_is_kept() {
    let extra = json!({"google": {"thought_signature": "SIG"}});
    let chunks = [
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "x", "extra_content": extra,
            "function": {"name": "add", "arguments": "{}"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    let reply = reply_to(Api::OpenAi, sse(&chunks)).await.unwrap();
    let kept = reply.calls[0].extra.as_ref().unwrap();
    assert_eq!((kept.provider.as_str(), kept.json.parse::<Value>().unwrap()), ("here", extra));
}
