//! Providers that are servers: what they send, and what comes of it.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | a provider, and how it is asked |
//! | `streams` | streams of both shapes, and the replies that they are |
//! | `cases` | what broke others |
//! | `broken` | streams that are cut, and whose events are taken out, doubled and mixed up |
//! | `requests` | what is sent |
//! | `failures` | what is tried again, where, and how often |

mod broken;
mod cases;
mod failures;
mod requests;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use wiremock::{Match, Mock, MockServer, ResponseTemplate, matchers};

use super::*;
use crate::model::Listener;
use crate::turn::{Definition, Message, Reply, ReplyCall, StopReason};

/// Both shapes.
const SHAPES: [Api; 2] = [Api::Anthropic, Api::OpenAi];

const KEY: &str = "sk-a-key-that-is-secret";

/// A provider at this address.
fn endpoint(api: Api, base_url: &str, change: impl FnOnce(&mut Settings<'_>)) -> Arc<Endpoint> {
    let mut settings = Settings {
        name: "here",
        api,
        base_url,
        api_key: Some(KEY),
        headers: HeaderMap::new(),
        max_retries: 0,
        max_retry_after: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
    };
    change(&mut settings);
    Arc::new(Endpoint::new(settings).unwrap())
}

/// A model of it.
fn remote(endpoint: Arc<Endpoint>) -> Remote {
    Remote {
        candidates: vec![Candidate { endpoint, model: "m".into(), price: None }],
        options: Options::default(),
        max_time: Duration::from_secs(20),
    }
}

/// Asks it something.
async fn ask(remote: &Remote, messages: &[Message], tools: &[Arc<Definition>]) -> Result<Reply, Failure> {
    let metadata = BTreeMap::new();
    let listener = Listener::default();
    remote.complete(Request { agent: "a", reply: 0, messages, tools, metadata: &metadata, listener }).await
}

fn hello() -> Vec<Message> {
    vec![Message::User { content: "hello".into() }]
}

/// The stream of these events.
fn sse(events: &[Value]) -> String {
    let event = |event: &Value| match event {
        Value::String(text) => format!("data: {text}\n\n"),
        event => format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("message")),
    };
    events.iter().map(event).collect()
}

fn streamed(body: impl Into<Vec<u8>>) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(body, "text/event-stream")
}

/// A server that answers every request so.
async fn server(response: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(matchers::any()).respond_with(response).mount(&server).await;
    server
}

/// What comes of a stream over HTTP.
async fn reply_to(api: Api, body: impl Into<Vec<u8>>) -> Result<Reply, Failure> {
    let server = server(streamed(body)).await;
    ask(&remote(endpoint(api, &server.uri(), |_| {})), &hello(), &[]).await
}

/// A call of a reply.
fn call(id: &str, name: &str, arguments: &str) -> ReplyCall {
    ReplyCall { id: Some(id.into()), name: name.into(), arguments: arguments.into(), extra: None }
}

/// The stream of a reply with this text and these calls, as providers write it; arguments in pieces.
fn whole(api: Api, text: &str, calls: &[ReplyCall], stop: StopReason) -> Vec<Value> {
    match api {
        Api::Anthropic => streams::anthropic(text, calls, stop),
        Api::OpenAi => streams::openai(text, calls, stop),
    }
}

/// A text in pieces of a few characters.
fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(7).map(|piece| piece.iter().collect()).collect()
}

/// Whether a request has this header.
struct HasHeader(&'static str, &'static str);

impl Match for HasHeader {
    fn matches(&self, request: &wiremock::Request) -> bool {
        request.headers.get(self.0).is_some_and(|value| value == self.1)
    }
}

/// The bodies of the requests that a server got.
async fn bodies(server: &MockServer) -> Vec<Value> {
    let requests = server.received_requests().await.unwrap();
    requests.iter().map(|request| request.body_json().unwrap()).collect()
}

/// A tool that models are offered.
fn tool() -> Arc<Definition> {
    Arc::new(Definition::new(
        "add",
        "Add two numbers.",
        json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
    ))
}
