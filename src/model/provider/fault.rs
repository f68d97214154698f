//! Why a request to a provider came to nothing, and what is to be done about it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::turn::{Failure, code};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The key is missing, wrong, or not allowed to do this.
    Authentication,
    /// The provider does not take the request.
    Request,
    /// Too many requests or tokens.
    Rate,
    /// What was paid for is used up.
    Quota,
    /// The provider cannot answer now.
    Overload,
    /// Nobody was reached, or the connection broke.
    Network,
    /// What came is no reply, or has no end.
    Stream,
    /// The provider will not answer this.
    ContentFilter,
    /// The transcript is longer than the model takes.
    ContextLength,
}

impl Kind {
    /// The code of a turn that fails for it.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Authentication => code::MODEL_AUTHENTICATION,
            Self::Request => code::MODEL_REQUEST,
            Self::Rate | Self::Quota => code::MODEL_RATE_LIMIT,
            Self::Overload => code::MODEL_OVERLOADED,
            Self::Network => code::MODEL_UNREACHABLE,
            Self::Stream => code::MODEL_STREAM,
            Self::ContentFilter => code::CONTENT_FILTER,
            Self::ContextLength => code::CONTEXT_LENGTH,
        }
    }

    /// What is told to whoever reads the result.
    fn says(self) -> &'static str {
        match self {
            Self::Authentication => "the provider refused the key",
            Self::Request => "the provider does not take the request",
            Self::Rate => "the provider is asked too often",
            Self::Quota => "what was paid for is used up",
            Self::Overload => "the provider cannot answer now",
            Self::Network => "the provider was not reached",
            Self::Stream => "what the provider sent is no whole reply",
            Self::ContentFilter => "the provider will not answer this",
            Self::ContextLength => "the transcript is longer than the model takes",
        }
    }

    /// Whether the same request may go better later.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Rate | Self::Overload | Self::Network | Self::Stream)
    }

    /// Whether another model is asked once this one is given up.
    pub(super) fn may_go_elsewhere(self) -> bool {
        self.may_pass() || self == Self::Quota
    }
}

/// A request that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// For the operator.
    pub(super) message: String,
    /// How long the provider asks to wait.
    pub(super) retry_after: Option<Duration>,
}

impl Fault {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// What came is no reply.
    pub(super) fn stream(message: impl Into<String>) -> Self {
        Self::new(Kind::Stream, message)
    }

    /// What a provider says in a response with this status, or in a stream (200).
    pub(super) fn said(status: u16, body: &str) -> Self {
        // One server puts its errors into a list.
        let body = match serde_json::from_str::<[&RawValue; 1]>(body) {
            Ok([one]) => one.get(),
            Err(_) => body,
        };
        let said: Said = serde_json::from_str(body).unwrap_or_default();
        let (kind, message) = (said.kind(status), said.message().unwrap_or_else(|| body.trim().to_owned()));
        let message = match (status, message.is_empty()) {
            (200, _) => message,
            (_, true) => format!("HTTP {status}"),
            (_, false) => format!("HTTP {status}: {message}"),
        };
        Self::new(kind, message)
    }

    /// With as much of the text as is kept, and without what is secret, which whoever is quoted may have quoted.
    #[must_use]
    pub(super) fn shown(mut self, scrub: impl Fn(&str) -> String) -> Self {
        // First: half a secret is one too, and would not be found.
        self.message = scrub(&self.message);
        if let Some((end, _)) = self.message.char_indices().nth(MAX_QUOTED) {
            self.message.truncate(end);
            self.message.push('…');
        }
        self
    }

    /// Why a turn fails for it, after so many attempts at this model. What the provider says is for the operator: it may
    /// name accounts.
    pub(super) fn into_failure(self, model: &str, attempts: u32) -> Failure {
        let times = if attempts <= 1 { String::new() } else { format!(" after {attempts} attempts") };
        let detail = Some(format!("{model}{times}: {}", self.message));
        Failure { detail, ..Failure::new(self.kind.code(), format!("{model}{times}: {}", self.kind.says())) }
    }
}

/// How much of what a provider says is kept, in characters.
const MAX_QUOTED: usize = 1000;

/// An error as Anthropic, OpenAI and those that follow them write it. Each part as it is: who writes something else is
/// quoted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

impl Said<'_> {
    fn details(&self) -> Details<'_> {
        self.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default()
    }

    fn message(&self) -> Option<String> {
        let message = text(self.details().message).or_else(|| text(self.error));
        message.or_else(|| text(self.message)).or_else(|| self.detail.map(|detail| detail.get().to_owned()))
    }

    /// What the error says of itself goes before what its status says.
    fn kind(&self, status: u16) -> Kind {
        let Details { kind, code, .. } = self.details();
        let names = [text(kind), text(code)];
        let is = |known: &[&str]| names.iter().flatten().any(|name| known.contains(&name.as_str()));
        let message = self.message().unwrap_or_default().to_ascii_lowercase();
        // In a stream some say the status as the code.
        let status = match code.and_then(|code| serde_json::from_str(code.get()).ok()) {
            Some(code @ 400..600) if status == 200 => code,
            _ => status,
        };
        let of_server = status == 200 || status >= 500;
        let tells = |known: &[&str]| known.iter().any(|words| message.contains(words));
        if is(&["insufficient_quota", "billing_error", "billing_hard_limit_reached"])
            || tells(&["credit balance is too low"])
            || status == 402
        {
            return Kind::Quota;
        }
        if is(&["context_length_exceeded", "request_too_large", "exceed_context_size_error"])
            || tells(&[
                "prompt is too long",
                "maximum context length",
                "exceeds the context",
                "context window",
            ])
            || status == 413
        {
            return Kind::ContextLength;
        }
        if is(&["content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"]) {
            return Kind::ContentFilter;
        }
        if is(&["authentication_error", "permission_error", "invalid_api_key"]) {
            return Kind::Authentication;
        }
        if is(&["rate_limit_error", "rate_limit_exceeded", "requests", "tokens"]) {
            return Kind::Rate;
        }
        if is(&["overloaded_error", "engine_overloaded"])
            || of_server && is(&["api_error", "server_error", "timeout_error"])
        {
            return Kind::Overload;
        }
        match status {
            401 | 403 => Kind::Authentication,
            429 => Kind::Rate,
            408 | 409 | 425 => Kind::Overload,
            400..500 => Kind::Request,
            200 if is(&["invalid_request_error", "not_found_error"]) => Kind::Request,
            200 => Kind::Overload,
            500.. => Kind::Overload,
            _ => Kind::Request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_decides_and_the_status_where_nothing_is() {
        let cases = [
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                Kind::Authentication,
            ),
            (403, "", Kind::Authentication),
            (
                404,
                r#"{"error":{"message":"The model does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
                Kind::Request,
            ),
            (
                400,
                r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                Kind::ContextLength,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 250000 tokens"}}"#,
                Kind::ContextLength,
            ),
            (413, "<html>", Kind::ContextLength),
            (
                400,
                r#"{"error":{"message":"no","type":null,"param":"prompt","code":"content_filter","status":400}}"#,
                Kind::ContentFilter,
            ),
            (
                429,
                r#"{"error":{"message":"slow","type":"requests","code":"rate_limit_exceeded"}}"#,
                Kind::Rate,
            ),
            (
                429,
                r#"{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Kind::Quota,
            ),
            (429, "", Kind::Rate),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Kind::Overload,
            ),
            (503, "down", Kind::Overload),
            (
                200,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Kind::Overload,
            ),
            (200, r#"{"error":{"message":"broke","code":500}}"#, Kind::Overload),
            (200, r#"{"error":{"message":"no","code":400}}"#, Kind::Request),
            (200, r#"{"error":{"message":"slow","code":429}}"#, Kind::Rate),
            (
                400,
                r#"[{"error":{"message":"The input token count exceeds the context window","code":400}}]"#,
                Kind::ContextLength,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                Kind::Quota,
            ),
            (401, r#"{"error":{"message":"no","type":"api_error"}}"#, Kind::Authentication),
            (422, r#"{"detail":[{"msg":"wrong"}]}"#, Kind::Request),
            (301, "", Kind::Request),
        ];
        for (status, body, kind) in cases {
            assert_eq!(Fault::said(status, body).kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn what_is_said_is_quoted_and_cut() {
        assert_eq!(Fault::said(400, r#"{"error":{"message":"bad"}}"#).message, "HTTP 400: bad");
        assert_eq!(Fault::said(400, r#"{"error":"bad"}"#).message, "HTTP 400: bad");
        assert_eq!(Fault::said(422, r#"{"detail":[1]}"#).message, "HTTP 422: [1]");
        assert_eq!(Fault::said(500, " down\n").message, "HTTP 500: down");
        assert_eq!(Fault::said(500, "").message, "HTTP 500");
        let key = "ü".repeat(980) + "sk-123456789012345678901234567890";
        let shown = Fault::said(500, &key)
            .shown(|text| text.replace("sk-123456789012345678901234567890", "[secret]"));
        assert_eq!(shown.message, format!("HTTP 500: {}[secret]", "ü".repeat(980)));
        let long = Fault::said(500, &"ü".repeat(5000)).shown(str::to_owned);
        assert_eq!(long.message.chars().count(), MAX_QUOTED + 1);
    }
}
