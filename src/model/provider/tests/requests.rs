//! What is sent.

use super::*;
use crate::turn::{Extra, Thinking, ToolCall};

/// The request for these messages, as a server gets it.
async fn sent(api: Api, messages: &[Message], tools: &[Arc<Definition>], options: Options) -> Value {
    let server = server(streamed(sse(&whole(api, "ok", &[], StopReason::EndTurn)))).await;
    let remote = Remote { options, ..remote(endpoint(api, &format!("{}/v1", server.uri()), |_| {})) };
    ask(&remote, messages, tools).await.unwrap();
    let requests = server.received_requests().await.unwrap();
    let [request] = requests.as_slice() else { panic!("one request") };
    let path = if api == Api::Anthropic { "/v1/messages" } else { "/v1/chat/completions" };
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", path));
    let key = match api {
        Api::Anthropic => ("x-api-key", KEY.to_owned()),
        Api::OpenAi => ("authorization", format!("Bearer {KEY}")),
    };
    assert_eq!(request.headers[key.0], key.1);
    assert_eq!(request.headers["content-type"], "application/json");
    request.body_json().unwrap()
}

fn conversation() -> Vec<Message> {
    let called = |id: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: "add".into(),
        arguments: arguments.into(),
        extra: None,
    };
    let answer = |id: &str, content: &str, is_error| Message::Tool {
        tool_call_id: id.into(),
        name: "add".into(),
        content: content.into(),
        is_error,
    };
    let thought = |provider: &str, text: &str, signature: Option<&str>, redacted: Option<&str>| Thinking {
        field: None,
        provider: provider.into(),
        text: text.into(),
        signature: signature.map(Into::into),
        redacted: redacted.map(Into::into),
    };
    vec![
        Message::System { content: "Be brief.".into() },
        Message::User { content: "add".into() },
        Message::Assistant {
            content: Some("Adding.".into()),
            thinking: vec![
                thought("here", "I add.", Some("SIG"), None),
                thought("here", "", None, Some("ENC")),
                thought("elsewhere", "no", Some("X"), None),
            ],
            tool_calls: vec![called("x1", r#"{"a": 12345678901234567890123}"#), called("m0.c1", r#"{"a":"#)],
        },
        answer("x1", "3", false),
        answer("m0.c1", "invalid arguments", true),
    ]
}

#[tokio::test]
async fn anthropic_gets_thoughts_calls_and_results_in_its_order() {
    let body = sent(Api::Anthropic, &conversation(), &[tool()], Options::default()).await;
    let odd = crate::model::provider::history::id("m0.c1").into_owned();
    assert_eq!(
        body,
        json!({
            "model": "m",
            "max_tokens": 8192,
            "stream": true,
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": [{"name": "add", "description": "Add two numbers.",
                       "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "add"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "I add.", "signature": "SIG"},
                    {"type": "redacted_thinking", "data": "ENC"},
                    {"type": "text", "text": "Adding."},
                    {"type": "tool_use", "id": "x1", "name": "add", "input": {"a": 12345678901234567890123_f64}},
                    {"type": "tool_use", "id": odd, "name": "add", "input": {"invalid_arguments": "{\"a\":"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "x1", "content": "3"},
                    {"type": "tool_result", "tool_use_id": odd, "content": "invalid arguments", "is_error": true},
                ]},
            ],
        })
    );
}

#[tokio::test]
async fn openai_gets_calls_as_texts_and_each_result_for_itself() {
    let body = sent(Api::OpenAi, &conversation(), &[tool()], Options::default()).await;
    let odd = crate::model::provider::history::id("m0.c1").into_owned();
    let called = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}});
    assert_eq!(
        body,
        json!({
            "model": "m",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "add", "description": "Add two numbers.",
                       "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "add"},
                {"role": "assistant", "content": "Adding.", "reasoning_content": "I add.", "tool_calls": [
                    called("x1", r#"{"a": 12345678901234567890123}"#),
                    called(&odd, r#"{"invalid_arguments":"{\"a\":"}"#),
                ]},
                {"role": "tool", "tool_call_id": "x1", "content": "3"},
                {"role": "tool", "tool_call_id": odd, "content": "invalid arguments"},
            ],
        })
    );
}

#[tokio::test]
async fn a_number_keeps_every_digit() {
    let server = server(streamed(sse(&whole(Api::Anthropic, "ok", &[], StopReason::EndTurn)))).await;
    ask(&remote(endpoint(Api::Anthropic, &server.uri(), |_| {})), &conversation(), &[]).await.unwrap();
    let body = String::from_utf8(server.received_requests().await.unwrap().remove(0).body).unwrap();
    assert!(body.contains(r#"{"a": 12345678901234567890123}"#), "{body}");
}

#[tokio::test]
async fn what_an_agent_says_of_its_replies_is_in_the_request() {
    let options = Options {
        temperature: Some(0.5),
        max_reply_tokens: Some(100),
        prompt_cache: true,
        more: serde_json::from_value(json!({"top_p": 0.9, "thinking": {"type": "enabled"}})).unwrap(),
    };
    let (messages, cache) = (conversation(), json!({"type": "ephemeral"}));
    for api in SHAPES {
        let body = sent(api, &messages, &[tool()], options.clone()).await;
        assert_eq!(
            (&body["temperature"], &body["max_tokens"], &body["top_p"]),
            (&json!(0.5), &json!(100), &json!(0.9))
        );
        assert_eq!(body["thinking"], json!({"type": "enabled"}));
        if api == Api::Anthropic {
            assert_eq!(body["system"][0]["cache_control"], cache);
            assert_eq!(body["messages"][2]["content"][1]["cache_control"], cache);
            assert_eq!(body.to_string().matches("cache_control").count(), 2);
        }
    }
    let without_system = sent(Api::Anthropic, &messages[1..2], &[tool()], options).await;
    assert_eq!(without_system["tools"][0]["cache_control"], cache);
}

#[tokio::test]
async fn a_reasoning_model_of_openai_has_another_name_for_its_limit() {
    let server = server(streamed(sse(&whole(Api::OpenAi, "ok", &[], StopReason::EndTurn)))).await;
    let mut remote = remote(endpoint(Api::OpenAi, &server.uri(), |_| {}));
    remote.candidates[0].model = "o3-mini".into();
    remote.options.max_reply_tokens = Some(9);
    ask(&remote, &hello(), &[]).await.unwrap();
    let body = &bodies(&server).await[0];
    assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(9), None));
}

#[tokio::test]
async fn what_no_provider_takes_is_not_sent() {
    let odd = vec![
        Message::User { content: String::new() },
        Message::User { content: "hi".into() },
        Message::Assistant { content: Some("\n\n".into()), thinking: Vec::new(), tool_calls: Vec::new() },
        Message::Assistant { content: None, thinking: Vec::new(), tool_calls: Vec::new() },
    ];
    let body = sent(Api::Anthropic, &odd, &[], Options::default()).await;
    assert_eq!(body["messages"], json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]));
    let body = sent(Api::OpenAi, &odd, &[], Options::default()).await;
    assert_eq!(body["messages"][3], json!({"role": "assistant", "content": ""}));
}

#[tokio::test]
async fn headers_of_the_configuration_are_sent_and_go_before_the_key() {
    let reply = streamed(sse(&whole(Api::OpenAi, "ok", &[], StopReason::EndTurn)));
    let server = MockServer::start().await;
    let sent = HasHeader("x-team", "seven");
    Mock::given(sent).and(HasHeader("authorization", "Basic abc")).respond_with(reply).mount(&server).await;
    let endpoint = endpoint(Api::OpenAi, &server.uri(), |settings| {
        settings.headers.insert("x-team", "seven".parse().unwrap());
        settings.headers.insert("authorization", "Basic abc".parse().unwrap());
    });
    ask(&remote(endpoint), &hello(), &[]).await.unwrap();
}

#[tokio::test]
async fn what_a_provider_sent_with_a_call_or_a_thought_goes_back_to_it_alone() {
    let extra = |provider: &str| Some(Extra { json: r#"{"sig":1}"#.into(), provider: provider.into() });
    let called = |id: &str, provider: &str| ToolCall {
        id: id.into(),
        name: "add".into(),
        arguments: "{}".into(),
        extra: extra(provider),
    };
    let thought = Thinking {
        field: Some("reasoning".into()),
        provider: "here".into(),
        text: "Hm.".into(),
        ..Thinking::default()
    };
    let messages = [Message::Assistant {
        content: None,
        thinking: vec![thought],
        tool_calls: vec![called("functions.add:0", "here"), called("y", "elsewhere")],
    }];
    let body = sent(Api::OpenAi, &messages, &[], Options::default()).await;
    let message = &body["messages"][0];
    assert_eq!(message["content"], "");
    assert_eq!((&message["reasoning"], message.get("reasoning_content")), (&json!("Hm."), None));
    let calls = &message["tool_calls"];
    assert_eq!((&calls[0]["extra_content"], calls[1].get("extra_content")), (&json!({"sig": 1}), None));
    assert_eq!(calls[0]["id"], "functions.add:0");
}

#[tokio::test]
async fn a_loop_that_another_provider_began_goes_on_without_thinking() {
    let options =
        || Options { more: serde_json::from_value(json!({"thinking": {}})).unwrap(), ..Options::default() };
    let mut messages = conversation();
    assert!(sent(Api::Anthropic, &messages, &[], options()).await.get("thinking").is_some());
    let Message::Assistant { thinking, .. } = &mut messages[2] else { panic!() };
    thinking.retain(|thought| thought.provider != "here");
    assert!(sent(Api::Anthropic, &messages, &[], options()).await.get("thinking").is_none());
    messages.push(Message::User { content: "and now?".into() });
    assert!(sent(Api::Anthropic, &messages, &[], options()).await.get("thinking").is_some());
}

#[tokio::test]
async fn a_server_that_does_not_know_a_field_is_not_sent_it() {
    let options = |more: Value| Options {
        max_reply_tokens: Some(9),
        more: serde_json::from_value(more).unwrap(),
        ..Options::default()
    };
    let body = sent(Api::OpenAi, &hello(), &[], options(json!({"stream_options": {}}))).await;
    assert_eq!((body.get("stream_options"), &body["max_tokens"]), (None, &json!(9)));
    let body = sent(Api::OpenAi, &hello(), &[], options(json!({"max_completion_tokens": 7}))).await;
    assert_eq!((body.get("max_tokens"), &body["max_completion_tokens"]), (None, &json!(7)));
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
}
