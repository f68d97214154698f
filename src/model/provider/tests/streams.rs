//! Streams of both shapes, and the replies that they are.

use super::*;
use crate::turn::{Thinking, Usage};

/// As Anthropic streams it.
pub(super) fn anthropic(text: &str, calls: &[ReplyCall], stop: StopReason) -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2, "output_tokens": 1}}}),
    ];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !text.is_empty() {
        let deltas = pieces(text).iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect();
        block(json!({"type": "text", "text": ""}), deltas);
    }
    for ReplyCall { id, name, arguments, .. } in calls {
        let deltas = pieces(arguments);
        let deltas =
            deltas.iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
        block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas);
    }
    events.insert(1, json!({"type": "ping"}));
    let reason = match stop {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
    };
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}),
    );
    events.push(json!({"type": "message_stop"}));
    events
}

/// As OpenAI streams it.
pub(super) fn openai(text: &str, calls: &[ReplyCall], stop: StopReason) -> Vec<Value> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk",
               "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null})
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    events.extend(pieces(text).iter().map(|piece| chunk(json!({"content": piece}), None)));
    for (index, ReplyCall { id, name, arguments, .. }) in calls.iter().enumerate() {
        let start = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        events.push(chunk(json!({"tool_calls": [start]}), None));
        events.extend(pieces(arguments).iter().map(|piece| {
            chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), None)
        }));
    }
    let finish = match stop {
        StopReason::EndTurn => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
    };
    events.push(chunk(json!({}), Some(finish)));
    events.push(json!({"id": "chatcmpl-1", "choices": [], "usage":
        {"prompt_tokens": 16, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}}));
    events.push("[DONE]".into());
    events
}

#[tokio::test]
async fn a_text_and_calls_side_by_side_with_what_they_used() {
    let calls = [call("a1", "add", r#"{"a": 1, "b": 12345678901234567890}"#), call("a2", "get", "{}")];
    for api in SHAPES {
        let mut reply =
            reply_to(api, sse(&whole(api, "Let me see.", &calls, StopReason::ToolUse))).await.unwrap();
        let served = reply.served.take().unwrap();
        assert_eq!((served.model.as_str(), served.attempts, served.cost), ("here::m", 1, None));
        let cache_write_tokens = if api == Api::Anthropic { 2 } else { 0 };
        let usage = Usage { input_tokens: 16, output_tokens: 7, cache_read_tokens: 4, cache_write_tokens };
        let expected = Reply {
            text: Some("Let me see.".into()),
            calls: calls.to_vec(),
            stop_reason: StopReason::ToolUse,
            usage,
            ..Reply::default()
        };
        assert_eq!(reply, expected, "{api:?}");
    }
}

#[tokio::test]
async fn a_text_alone_is_the_last_word() {
    for api in SHAPES {
        let reply = reply_to(api, sse(&whole(api, "häppy 😀", &[], StopReason::EndTurn))).await.unwrap();
        assert_eq!(
            (reply.text.as_deref(), reply.stop_reason),
            (Some("häppy 😀"), StopReason::EndTurn),
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn line_ends_comments_and_unknown_events_make_no_difference() {
    for api in SHAPES {
        let body = sse(&whole(api, "hi", &[call("x", "add", "{}")], StopReason::ToolUse));
        let odd = format!(": keep alive\r\n\r\n{}", body.replace('\n', "\r\n"));
        assert_eq!(reply_to(api, odd).await.unwrap().calls, [call("x", "add", "{}")], "{api:?}");
    }
    let mut events = anthropic("hi", &[], StopReason::EndTurn);
    events.insert(2, json!({"type": "something_new", "index": 0, "delta": {"type": "new_delta"}}));
    events.insert(4, json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}}));
    assert_eq!(reply_to(Api::Anthropic, sse(&events)).await.unwrap().text.as_deref(), Some("hi"));
}

#[tokio::test]
async fn thoughts_are_kept_as_their_provider_wants_them_back() {
    let mut events = anthropic("", &[call("x", "add", "{}")], StopReason::ToolUse);
    let block = |index: u32, start: Value| json!({"type": "content_block_start", "index": index, "content_block": start});
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 8, "delta": delta});
    let thoughts = [
        block(8, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(json!({"type": "thinking_delta", "thinking": "I could "})),
        delta(json!({"type": "thinking_delta", "thinking": "add."})),
        delta(json!({"type": "signature_delta", "signature": "SIG"})),
        json!({"type": "content_block_stop", "index": 8}),
        block(9, json!({"type": "redacted_thinking", "data": "ENC"})),
        json!({"type": "content_block_stop", "index": 9}),
    ];
    events.splice(2..2, thoughts);
    let reply = reply_to(Api::Anthropic, sse(&events)).await.unwrap();
    let thought = Thinking { provider: "here".into(), ..Thinking::default() };
    let said = Thinking { text: "I could add.".into(), signature: Some("SIG".into()), ..thought.clone() };
    assert_eq!(reply.thinking, [said, Thinking { redacted: Some("ENC".into()), ..thought.clone() }]);

    let mut chunks = openai("", &[call("x", "add", "{}")], StopReason::ToolUse);
    let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]});
    chunks.splice(1..1, [chunk("I could "), chunk("add.")]);
    let reply = reply_to(Api::OpenAi, sse(&chunks)).await.unwrap();
    assert_eq!(reply.thinking, [Thinking { text: "I could add.".into(), ..thought.clone() }]);
    assert_eq!(reply.calls, [call("x", "add", "{}")]);
    // Other servers call it otherwise, or say it twice.
    let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"reasoning": text}}]});
    chunks.splice(1..3, [chunk("I could "), chunk("add.")]);
    let reply = reply_to(Api::OpenAi, sse(&chunks)).await.unwrap();
    let said = Thinking { text: "I could add.".into(), ..thought };
    assert_eq!(reply.thinking, [Thinking { field: Some("reasoning".into()), ..said.clone() }]);
    let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"reasoning": text, "reasoning_content": text}}]});
    chunks.splice(1..3, [chunk("I could "), chunk("add.")]);
    assert_eq!(reply_to(Api::OpenAi, sse(&chunks)).await.unwrap().thinking, [said]);
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_read_all_the_same() {
    let body = json!({"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": null, "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3}});
    let stream = sse(&openai("", &[call("x", "add", r#"{"a":1}"#)], StopReason::ToolUse));
    // Whatever the response says that it is.
    for kind in ["application/json", "text/event-stream", "text/plain"] {
        for (body, read) in [(body.to_string(), 5), (format!("\n{body}"), 5), (stream.clone(), 16)] {
            let server = server(ResponseTemplate::new(200).set_body_raw(body, kind)).await;
            let remote = remote(endpoint(Api::OpenAi, &server.uri(), |_| {}));
            let reply = ask(&remote, &hello(), &[]).await.unwrap();
            assert_eq!((reply.calls, reply.usage.input_tokens), (vec![call("x", "add", r#"{"a":1}"#)], read));
        }
    }
}

#[tokio::test]
async fn what_a_model_thought_counts_as_written_where_its_server_leaves_it_out() {
    let chunks = [
        json!({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115}}),
    ];
    let usage = reply_to(Api::OpenAi, sse(&chunks)).await.unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (10, 105));
}
