//! `ToolError`: why a tool failed, and what that means for the call and the turn.

use std::fmt;

/// Why a tool failed.
///
/// `?` turns any error into a retryable one. The text goes to the model, so it should say what the model
/// can do about it; keep secrets out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    kind: ErrorKind,
    message: String,
}

/// What an error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Tried again as often as the tool's `retry` says; then the model reads the error.
    Retryable,
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

    /// An error that no retry can mend: the turn fails.
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
        Self { kind, message: message.to_string() }
    }

    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The error and what caused it, joined by colons.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
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
