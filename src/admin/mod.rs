//! The admin server: `/metrics`, `/livez` and `/readyz`. Nothing can be changed over it.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::health::Health;
use crate::metrics::metrics;

/// The text format's name.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where the server listens.
///
/// # Errors
/// The address is taken, or not this machine's.
pub(crate) async fn bind(listen: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(listen).await.map_err(|e| format!("[admin] listen = \"{listen}\": {e}"))
}

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, health: Health) {
    let routes = Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health);
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "the admin server has ended");
    }
}

async fn scrape(State(health): State<Health>) -> Response {
    if let Some(age) = health.poll_age() {
        metrics().poll_age.set(age.as_secs_f64());
    }
    match metrics().text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn livez(State(health): State<Health>) -> Response {
    answer(health.alive())
}

async fn readyz(State(health): State<Health>) -> Response {
    answer(health.ready())
}

fn answer(well: Result<(), String>) -> Response {
    match well {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}
