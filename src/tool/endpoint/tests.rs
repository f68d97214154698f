//! Calls of endpoints, against servers that answer as the test says.

mod errors;
mod server;

use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use serde_json::{Value, json};

use super::*;
use crate::tool::{Registry, Retry, RetryWait, execute};
use crate::turn::{ExternalIoMode, Failure, Position, SessionId, TurnId, code};
use server::{Server, answer, typed};

/// A tool with the argument `id` in its path.
fn endpoint(method: Method, origin: &str) -> Endpoint {
    let schema = json!({"type": "object", "properties": {"id": {}}, "required": ["id"]});
    let (name, value) = header("X-Key", "secret").unwrap();
    Endpoint {
        spec: Spec::new("get_order", "Find an order.", schema),
        method,
        url: Template::parse(&format!("{origin}/orders/{{id}}?v=1")).unwrap(),
        headers: HeaderMap::from_iter([(name, value)]),
        max_response: ByteSize::kib(1),
    }
}

struct Ended {
    result: Result<String, Failure>,
    attempts: u32,
}

impl Ended {
    fn failure(&self) -> &Failure {
        self.result.as_ref().expect_err("a failure")
    }

    /// What the model and what the operator reads.
    fn texts(&self) -> (&str, &str) {
        (&self.failure().message, self.failure().for_operator())
    }
}

async fn run(tool: Endpoint, arguments: Value) -> Ended {
    let mut registry = Registry::new();
    registry.register(Arc::new(tool)).unwrap();
    let (session, turn) = (SessionId::new("s").unwrap(), TurnId::new("t").unwrap());
    let context = ToolContext::builder(session, turn, &Position::call(0, 0))
        .external_io_mode(ExternalIoMode::RuntimeRecorded)
        .build();
    let ended = execute(registry.get("get_order").unwrap(), &context, arguments, 1).await;
    Ended { result: ended.result.map(Output::into_json), attempts: ended.attempts }
}

async fn get(server: &Server) -> Ended {
    run(endpoint(Method::GET, &server.origin), json!({"id": 7})).await
}

/// The result of a body, or what the model reads.
async fn result_of(content_type: &'static str, body: impl AsRef<[u8]>) -> Result<String, String> {
    let body = body.as_ref().to_vec();
    let server = Server::start(move |_| typed(200, content_type, body.clone())).await;
    get(&server).await.result.map_err(|failure| {
        assert_eq!(failure.code, code::TOOL_ERROR);
        failure.message
    })
}

#[tokio::test]
async fn arguments_go_into_the_query_or_into_the_body() {
    let server = Server::start(|_| answer(200, "")).await;
    let arguments = json!({"id": "a/b", "n": 9_007_199_254_740_993_u64, "x": 1.0, "list": [1, "b"]});
    for method in [Method::GET, Method::DELETE, Method::POST, Method::PUT, Method::PATCH] {
        let ended = run(endpoint(method.clone(), &server.origin), arguments.clone()).await;
        assert_eq!(ended.result.unwrap(), "null");
        let seen = server.seen().pop().unwrap();
        assert_eq!((&seen.method, seen.header("x-key")), (&method, Some("secret")));
        if method == Method::GET || method == Method::DELETE {
            assert_eq!(seen.target, "/orders/a%2Fb?v=1&n=9007199254740993&x=1.0&list=1&list=b");
            assert_eq!((seen.body.as_str(), seen.header("content-type")), ("", None));
        } else {
            assert_eq!(seen.target, "/orders/a%2Fb?v=1");
            assert_eq!(seen.body, r#"{"n":9007199254740993,"x":1.0,"list":[1,"b"]}"#);
            assert_eq!(seen.header("content-type"), Some("application/json"));
        }
    }
}

#[tokio::test]
async fn an_argument_that_would_lead_elsewhere_is_not_sent() {
    let server = Server::start(|_| answer(200, "")).await;
    let ended = run(endpoint(Method::GET, &server.origin), json!({"id": ".."})).await;
    assert_eq!(ended.failure().code, code::INVALID_ARGUMENTS);
    assert!(ended.failure().message.starts_with("invalid arguments for get_order: with id the path"));
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_retry_has_the_same_idempotency_key() {
    let server = Server::start(|before| answer(if before < 2 { 503 } else { 204 }, "")).await;
    let mut tool = endpoint(Method::POST, &server.origin);
    tool.spec.retry = 3.into();
    let ended = run(tool, json!({"id": 7})).await;
    assert_eq!((ended.result.unwrap().as_str(), ended.attempts), ("null", 3));
    let seen = server.seen();
    let keys: Vec<_> = seen.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys, [Some("s/t/m0.c0"); 3]);
}

#[tokio::test]
async fn a_retry_waits_as_long_as_the_server_asks() {
    let wait = RetryWait { initial: Duration::from_millis(1), max_delay: Duration::from_secs(2) };
    for (asked, attempts) in [("1", 2), ("3", 1)] {
        let server = Server::start(move |before| {
            let mut response = answer(if before == 0 { 429 } else { 200 }, "");
            response.headers_mut().insert("retry-after", asked.parse().unwrap());
            response
        });
        let server = server.await;
        let mut tool = endpoint(Method::GET, &server.origin);
        tool.spec.retry = Retry { max: 3, wait: Some(wait) };
        let begun = std::time::Instant::now();
        let ended = run(tool, json!({"id": 7})).await;
        assert_eq!((ended.attempts, ended.result.is_ok()), (attempts, attempts == 2), "{asked}");
        assert!(attempts == 1 || begun.elapsed() >= Duration::from_secs(1));
    }
}

#[tokio::test]
async fn json_keeps_every_digit() {
    let json = "{\"b\": 1.0, \"a\": [9007199254740993, 123456789012345678901234567890, 1e400, 0.10]}";
    let exact = r#"{"a":[9007199254740993,123456789012345678901234567890,1e400,0.10],"b":1.0}"#;
    for content_type in ["application/json", "application/vnd.shop+json; charset=utf-8"] {
        assert_eq!(result_of(content_type, json).await.unwrap(), exact);
    }
    let utf_16: Vec<u8> = "{\"ö\": 1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(result_of("application/json; charset=utf-16le", utf_16).await.unwrap(), r#"{"ö":1}"#);
    assert_eq!(result_of("application/json", "").await.unwrap(), "null");
    let broken = result_of("application/json", "{\"a\": secret}").await.unwrap_err();
    assert!(
        broken.starts_with("HTTP 200 OK: the body is not valid JSON: expected value at line 1"),
        "{broken}"
    );
}

#[tokio::test]
async fn what_is_not_json_is_text_in_its_charset() {
    assert_eq!(result_of("text/plain", "größe\u{0}!").await.unwrap(), r#""größe\u0000!""#);
    assert_eq!(result_of("text/html", "{\"a\": 1}").await.unwrap(), r#""{\"a\": 1}""#);
    let utf_16: Vec<u8> = "\u{feff}größe".encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert_eq!(result_of("text/plain; charset=utf-16", utf_16).await.unwrap(), "\"größe\"");
    let invalid = result_of("text/plain", b"gr\xf6\xdfe").await.unwrap_err();
    assert_eq!(invalid, "HTTP 200 OK: the body is not valid UTF-8 text");
}

#[tokio::test]
async fn a_result_is_held_against_its_schema() {
    let server = Server::start(|_| typed(200, "application/json", "[]")).await;
    let mut tool = endpoint(Method::GET, &server.origin);
    tool.spec.output = Some(json!({"type": "object"}));
    assert_eq!(run(tool, json!({"id": 7})).await.failure().code, code::INVALID_RESULT);
}
