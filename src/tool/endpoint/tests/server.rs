//! A server on this machine that notes what it is asked.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use reqwest::Method;
use reqwest::header::HeaderMap;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// A request that came in.
#[derive(Clone)]
pub(super) struct Seen {
    pub method: Method,
    /// Path and query.
    pub target: String,
    headers: HeaderMap,
    pub body: String,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(super) struct Server {
    pub origin: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Server {
    /// `respond` is told how many requests there were before.
    pub(super) async fn start(respond: impl Fn(usize) -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let router = axum::Router::new().fallback(async move |request: Request| {
            let (head, body) = request.into_parts();
            let body = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
            let (method, headers) = (head.method, head.headers);
            let mut noted = noted.lock().unwrap();
            noted.push(Seen { method, target: head.uri.to_string(), headers, body });
            respond(noted.len() - 1)
        });
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { origin, seen, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

pub(super) fn answer(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

pub(super) fn typed(status: u16, content_type: &str, body: impl Into<Body>) -> Response {
    let mut response = answer(status, body);
    response.headers_mut().insert("content-type", content_type.parse().unwrap());
    response
}
