//! `ToolError`: why a tool failed, and what that means for the call and the turn.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::turn::{Failure, code};

/// Why a tool failed.
///
/// `?` turns any error into a retryable one. Its text goes to the model and to the operator, unless
/// [`ToolError::for_model`] gives the model one of its own: what the model can do about it, without what it must not
/// read.
///
/// ```
/// # use turnmill::tool::ToolError;
/// let error = ToolError::permanent("account 17 of db-3 is locked").for_model("The account is locked.");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    kind: ErrorKind,
    message: String,
    for_model: Option<String>,
    retry_after: Option<Duration>,
}

/// What an error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Tried again as often as the tool's `retry` says; then the model reads the error.
    Retryable,
    /// Never retried, the model reads the error.
    Permanent,
    /// The arguments are wrong in a way that their schema does not say: never retried, the model reads
    /// the error.
    InvalidArguments,
    /// The result cannot be written as JSON: never retried, the model reads the error.
    InvalidResult,
    /// Never retried; the turn fails.
    Fatal,
    /// Never retried; the turn's record goes to the dead letters.
    Poison,
}

impl ToolError {
    /// An error that a retry may mend.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::of(ErrorKind::Retryable, message)
    }

    /// An error that no retry can mend, and that the model may find a way around.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::of(ErrorKind::Permanent, message)
    }

    /// An error that neither a retry nor the model can mend: the turn fails.
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self::of(ErrorKind::Fatal, message)
    }

    /// The turn must never be tried again: its record goes to the dead letters.
    pub fn poison(message: impl fmt::Display) -> Self {
        Self::of(ErrorKind::Poison, message)
    }

    /// The arguments are wrong; the model should call again with others.
    pub fn invalid_arguments(message: impl fmt::Display) -> Self {
        Self::of(ErrorKind::InvalidArguments, message)
    }

    pub(super) fn of(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), for_model: None, retry_after: None }
    }

    /// A call that the tool made itself has failed: that is recorded, and a retry would find it so.
    fn of_failure(failure: &Failure) -> Self {
        let kind = match failure.code.as_ref() {
            code::TOOL_FATAL => ErrorKind::Fatal,
            code::POISON => ErrorKind::Poison,
            _ => ErrorKind::Permanent,
        };
        let for_model = failure.detail.as_ref().map(|_| failure.message.clone());
        Self { for_model, ..Self::of(kind, failure.for_operator()) }
    }

    /// What the model reads, and a result of the turn says, instead of the error's own text, which events, logs and
    /// dead letters keep.
    #[must_use]
    pub fn for_model(mut self, text: impl fmt::Display) -> Self {
        self.for_model = Some(text.to_string());
        self
    }

    /// No retry before this time is over, as a server's `Retry-After` asks. Longer than the longest wait that the tool
    /// allows: there is no retry.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, for the operator.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the model reads, where that is something else.
    pub fn model_message(&self) -> Option<&str> {
        self.for_model.as_deref()
    }

    /// How long a retry has to wait at least.
    pub fn pause(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// The error and what caused it, joined by colons. A [`Failure`] of a call that the tool made itself stays fatal or
/// poison where it is, and is never retried.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        if let Some(failure) = (&error as &dyn Any).downcast_ref::<Failure>() {
            return Self::of_failure(failure);
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Many errors print their cause themselves.
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = cause.source();
        }
        Self::retryable(message)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
