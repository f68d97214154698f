//! From a response to a result, or to an error and its two texts: the model reads what it can act on, the operator
//! which request it was.
//!
//! The status decides what an error means; a body is only quoted.

use std::time::SystemTime;

use bytesize::ByteSize;
use reqwest::header::HeaderMap;
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::value::RawValue;

use super::client::Refused;
use super::text::Content;
use crate::tool::{Output, ToolError};
use crate::{http, retry};

/// How much of an error's body the model reads, in characters.
const MAX_QUOTED: usize = 2000;
/// How much of it the operator reads.
const MAX_LOGGED: usize = 500;
/// Enough bytes for either, whatever the charset.
const ENOUGH: usize = 4 * MAX_QUOTED + 64;

/// What was asked for, as an operator reads it. Without the query: it has arguments, and perhaps a key.
pub(super) struct Asked(String);

impl Asked {
    pub(super) fn new(method: &Method, url: &Url) -> Self {
        Self(format!("{method} {}{}", url.origin().ascii_serialization(), url.path()))
    }
}

/// What the response to a request makes of a call.
///
/// # Errors
/// The status is not one of success, or the body is too large, cut off, or not what its type says.
pub(super) async fn read(
    asked: &Asked,
    mut response: Response,
    limit: ByteSize,
) -> Result<Output, ToolError> {
    let status = Status(response.status());
    let content = Content::of(response.headers());
    if !status.0.is_success() {
        let start = http::start_of(&mut response, ENOUGH).await;
        return Err(failed(asked, status, &content, &start, response.headers()));
    }
    let body = whole(asked, &mut response, limit).await?;
    let unusable = |why: String| {
        ToolError::permanent(format!("{}: {status}: {why}", asked.0)).for_model(format!("{status}: {why}"))
    };
    if body.is_empty() {
        return Output::of(&());
    }
    let text = content.decode(&body).map_err(unusable)?;
    if !content.is_json() {
        return Output::of(&text);
    }
    // As raw text: a number keeps every digit.
    let json: &RawValue = serde_json::from_str(&text)
        .map_err(|error| unusable(format!("the body is not valid JSON: {error}")))?;
    Output::of(&json)
}

/// The body of a success.
async fn whole(asked: &Asked, response: &mut Response, limit: ByteSize) -> Result<Vec<u8>, ToolError> {
    let too_large = || {
        let why = format!("the body is larger than the {limit} that are allowed");
        ToolError::permanent(format!("{}: {why} (max_response)", asked.0)).for_model(why)
    };
    let fits = |length: usize| u64::try_from(length).is_ok_and(|length| length <= limit.as_u64());
    if response.content_length().is_some_and(|length| length > limit.as_u64()) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreached(asked, error))? {
        if !fits(body.len().saturating_add(chunk.len())) {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn failed(asked: &Asked, status: Status, content: &Content, start: &[u8], headers: &HeaderMap) -> ToolError {
    let body = content.glance(start);
    let mut message = format!("{}: {status}", asked.0);
    let mut for_model = status.to_string();
    if !body.trim().is_empty() {
        message = format!("{message}: {}", one_line(&cut(&body, MAX_LOGGED)));
        if status.is_for_the_model() && content.is_readable() {
            for_model = format!("{for_model}: {}", cut(&body, MAX_QUOTED));
        }
    }
    if !status.may_pass() {
        return ToolError::permanent(message).for_model(for_model);
    }
    let error = ToolError::retryable(message).for_model(for_model);
    match retry::asked_for(headers, SystemTime::now()) {
        Some(pause) => error.retry_after(pause),
        None => error,
    }
}

/// What it means that there is no response.
pub(super) fn no_answer(asked: &Asked, error: reqwest::Error) -> ToolError {
    match Refused::of(&error) {
        Some(refused) => ToolError::permanent(format!("{}: {refused}", asked.0))
            .for_model(format!("the service {refused}")),
        // Nothing was sent, and nothing ever will be.
        None if error.is_builder() => {
            ToolError::permanent(cause(asked, error)).for_model("the request cannot be sent")
        }
        None => unreached(asked, error),
    }
}

fn unreached(asked: &Asked, error: reqwest::Error) -> ToolError {
    ToolError::retryable(cause(asked, error)).for_model("the service could not be reached")
}

/// The error with its causes. Its own URL has the query.
fn cause(asked: &Asked, error: reqwest::Error) -> String {
    format!("{}: {}", asked.0, ToolError::from(error.without_url()).message())
}

/// A status of a response: `HTTP 404 Not Found`.
#[derive(Clone, Copy)]
struct Status(StatusCode);

impl Status {
    /// Whether the same request may succeed later.
    fn may_pass(self) -> bool {
        self.0.is_server_error() || matches!(self.0.as_u16(), 408 | 425 | 429)
    }

    /// Whether the body is about the call. A server's own failure is nothing that a model mends, and who is let in
    /// is nothing that it should read about.
    fn is_for_the_model(self) -> bool {
        self.0.is_client_error() && self.0 != StatusCode::UNAUTHORIZED && self.0 != StatusCode::FORBIDDEN
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HTTP {}", self.0.as_u16())?;
        self.0.canonical_reason().map_or(Ok(()), |reason| write!(f, " {reason}"))
    }
}

/// The first characters of a text.
fn cut(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A body must not break a line of the log, or write to a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
