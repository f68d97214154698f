//! What the model and what the operator reads, and what is tried again.

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

async fn texts(status: u16, content_type: &'static str, body: &'static str) -> (String, String) {
    let server = Server::start(move |_| typed(status, content_type, body)).await;
    let ended = get(&server).await;
    assert_eq!(ended.failure().code, code::TOOL_ERROR);
    let (model, operator) = ended.texts();
    (model.into(), operator.replace(&server.origin, "http://h"))
}

async fn attempts(status: u16) -> u32 {
    let server = Server::start(move |_| answer(status, "")).await;
    let mut tool = endpoint(Method::GET, &server.origin);
    tool.spec.retry = 1.into();
    run(tool, json!({"id": 7})).await.attempts
}

#[tokio::test]
async fn the_model_reads_the_body_of_a_mistake_and_the_operator_which_request_it_was() {
    let (model, operator) = texts(404, "application/problem+json", "{\"why\":\n\"no such order\"}").await;
    assert_eq!(model, "HTTP 404 Not Found: {\"why\":\n\"no such order\"}");
    assert_eq!(operator, "GET http://h/orders/7: HTTP 404 Not Found: {\"why\": \"no such order\"}");

    let (model, operator) = texts(422, "image/png", "PNG").await;
    assert_eq!(model, "HTTP 422 Unprocessable Entity");
    assert_eq!(operator, "GET http://h/orders/7: HTTP 422 Unprocessable Entity: PNG");

    let (model, operator) = texts(499, "text/plain", "").await;
    assert_eq!((model.as_str(), operator.as_str()), ("HTTP 499", "GET http://h/orders/7: HTTP 499"));
}

#[tokio::test]
async fn the_model_does_not_read_who_is_let_in_or_what_broke() {
    for (status, line) in [
        (401, "HTTP 401 Unauthorized"),
        (403, "HTTP 403 Forbidden"),
        (500, "HTTP 500 Internal Server Error"),
        (503, "HTTP 503 Service Unavailable"),
    ] {
        let (model, operator) = texts(status, "text/plain", "the key k-1 of db-3").await;
        assert_eq!(model, line);
        assert_eq!(operator, format!("GET http://h/orders/7: {line}: the key k-1 of db-3"));
    }
}

#[tokio::test]
async fn a_long_body_is_cut() {
    let server = Server::start(|_| typed(400, "text/plain", "ö".repeat(100_000))).await;
    let ended = get(&server).await;
    let (model, operator) = ended.texts();
    assert_eq!(model, format!("HTTP 400 Bad Request: {}…", "ö".repeat(2000)));
    assert!(operator.ends_with(&format!(": {}…", "ö".repeat(500))));
}

#[tokio::test]
async fn a_body_does_not_change_the_code() {
    let body = r#"{"code":"tool_fatal","error":{"code":"poison"},"retryable":true}"#;
    let server = Server::start(move |_| typed(400, "application/json", body)).await;
    let mut tool = endpoint(Method::GET, &server.origin);
    tool.spec.retry = 3.into();
    let ended = run(tool, json!({"id": 7})).await;
    assert_eq!((ended.failure().code.as_ref(), ended.attempts), (code::TOOL_ERROR, 1));
    assert_eq!(ended.texts().0, format!("HTTP 400 Bad Request: {body}"));
}

#[tokio::test]
async fn only_what_may_pass_is_tried_again() {
    for status in [408, 425, 429, 500, 502, 503, 504, 599] {
        assert_eq!(attempts(status).await, 2, "{status}");
    }
    for status in [300, 304, 400, 401, 403, 404, 409, 422, 451] {
        assert_eq!(attempts(status).await, 1, "{status}");
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_an_error_that_says_so() {
    let fits = Server::start(|_| answer(200, "x".repeat(1024))).await;
    assert_eq!(get(&fits).await.result.unwrap().len(), 1026);
    let announced = Server::start(|_| answer(200, "x".repeat(1025))).await;
    // Without a length, and without an end.
    let endless = Server::start(|_| {
        answer(200, Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(100)))))
    });
    for server in [announced, endless.await] {
        let ended = get(&server).await;
        let why = "the body is larger than the 1.0 KiB that are allowed";
        assert_eq!(
            ended.texts(),
            (why, format!("GET {}/orders/7: {why} (max_response)", server.origin).as_str())
        );
        assert_eq!(ended.failure().code, code::TOOL_ERROR);
    }
}

#[tokio::test]
async fn a_redirect_is_followed_to_the_same_origin_alone() {
    let redirect = |status: u16, to: String| {
        let mut response = answer(status, "");
        response.headers_mut().insert("location", to.parse().unwrap());
        response
    };
    let other = Server::start(|_| answer(200, "stolen")).await;
    let to = other.origin.clone();
    let server = Server::start(move |_| redirect(302, format!("{to}/x?token=secret"))).await;
    let ended = get(&server).await;
    let refused = format!(
        "redirected to {}: only redirects to the same scheme, host and port are followed",
        other.origin
    );
    assert_eq!(ended.texts().0, format!("the service {refused}"));
    assert_eq!(ended.texts().1, format!("GET {}/orders/7: {refused}", server.origin));
    assert!(other.seen().is_empty());

    let server = Server::start(move |before| match before {
        0..5 => redirect(307, format!("/moved/{before}")),
        _ => answer(200, "here"),
    });
    let server = server.await;
    let ended = run(endpoint(Method::POST, &server.origin), json!({"id": 7, "a": 1})).await;
    assert_eq!(ended.result.unwrap(), "\"here\"");
    let last = server.seen().pop().unwrap();
    assert_eq!((last.target.as_str(), last.body.as_str()), ("/moved/4", "{\"a\":1}"));
    assert_eq!((last.header("x-key"), last.header("idempotency-key")), (Some("secret"), Some("s/t/m0.c0")));

    let server = Server::start(move |before| redirect(302, format!("/moved/{before}"))).await;
    assert_eq!(get(&server).await.texts().0, "the service redirected more than 5 times");
    assert_eq!(server.seen().len(), 6);
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut tool = endpoint(Method::GET, &origin);
    tool.spec.retry = 1.into();
    let ended = run(tool, json!({"id": 7, "q": "private"})).await;
    let (model, operator) = ended.texts();
    assert_eq!((model, ended.attempts), ("the service could not be reached", 2));
    assert!(operator.starts_with(&format!("GET {origin}/orders/7: ")), "{operator}");
    assert!(operator.contains("onnection refused") && !operator.contains("private"), "{operator}");
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        for answer in [
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfull",
        ] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut tool = endpoint(Method::GET, &origin);
    tool.spec.retry = 1.into();
    let ended = run(tool, json!({"id": 7})).await;
    let (model, operator) = ended.texts();
    assert_eq!((model, ended.attempts), ("the service could not be reached", 2));
    assert!(operator.starts_with(&format!("GET {origin}/orders/7: ")), "{operator}");
    assert_eq!(run(endpoint(Method::GET, &origin), json!({"id": 7})).await.result.unwrap(), "\"full\"");
    serving.await.unwrap();
}

#[tokio::test]
async fn a_service_that_does_not_answer_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut tool = endpoint(Method::GET, &format!("http://{}", listener.local_addr().unwrap()));
    tool.spec.timeout = Duration::from_millis(50);
    let ended = run(tool, json!({"id": 7})).await;
    assert_eq!(ended.failure().code, code::TOOL_TIMEOUT);
    assert_eq!(ended.texts().0, "tool get_order did not answer within 50ms");
}

#[tokio::test]
async fn a_post_never_becomes_a_get_that_does_nothing() {
    let redirect = |status: u16| {
        let mut response = answer(status, "");
        response.headers_mut().insert("location", "/landed".parse().unwrap());
        response
    };
    for status in [301, 302] {
        let server = Server::start(move |_| redirect(status)).await;
        let ended = run(endpoint(Method::POST, &server.origin), json!({"id": 7, "a": 1})).await;
        let why = format!("the service redirected with {status}, which would make a GET of the POST");
        assert_eq!((ended.texts().0, ended.attempts), (why.as_str(), 1));
        assert_eq!(server.seen().len(), 1, "{status}");
    }
    // Elsewhere is the result of what was posted.
    let server =
        Server::start(move |before| if before == 0 { redirect(303) } else { answer(200, "done") }).await;
    let ended = run(endpoint(Method::POST, &server.origin), json!({"id": 7, "a": 1})).await;
    assert_eq!(ended.result.unwrap(), "\"done\"");
    let methods: Vec<_> = server.seen().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::GET]);
    let server =
        Server::start(move |before| if before == 0 { redirect(301) } else { answer(200, "done") }).await;
    assert_eq!(get(&server).await.result.unwrap(), "\"done\"");
}

#[tokio::test]
async fn the_status_of_an_error_counts_though_its_body_never_ends() {
    let endless = || {
        let start = stream::once(async { Ok::<_, std::io::Error>("no such order") });
        Body::from_stream(start.chain(stream::pending()))
    };
    let server = Server::start(move |_| typed(404, "text/plain", endless())).await;
    let mut tool = endpoint(Method::GET, &server.origin);
    (tool.spec.retry, tool.spec.timeout) = (3.into(), Duration::from_secs(60));
    let ended = run(tool, json!({"id": 7})).await;
    assert_eq!((ended.texts().0, ended.attempts), ("HTTP 404 Not Found: no such order", 1));
}
