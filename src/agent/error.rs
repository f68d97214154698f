//! `AgentError`: why an agent failed.

use std::any::Any;
use std::fmt;

use crate::tool::{ErrorKind, ToolError};
use crate::turn::{Failure, code};

/// Why an agent failed: the turn fails with its code and text.
///
/// `?` keeps the code of a failed step, and makes `agent_error` of any other error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError(Failure);

impl AgentError {
    /// An error with the code `agent_error`.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(Failure::new(code::AGENT_ERROR, message.to_string()))
    }

    /// The failure with its code.
    pub fn failure(&self) -> &Failure {
        &self.0
    }

    /// The failure with its code, owned.
    pub fn into_failure(self) -> Failure {
        self.0
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for AgentError {
    fn from(error: E) -> Self {
        if let Some(failure) = (&error as &dyn Any).downcast_ref::<Failure>() {
            return Self(failure.clone());
        }
        // The error and what caused it, as a tool's.
        Self::new(ToolError::from(error))
    }
}

/// What a tool's function, called from an agent's code, failed with: fatal and poison stay so.
impl From<ToolError> for AgentError {
    fn from(error: ToolError) -> Self {
        let code = match error.kind() {
            ErrorKind::Poison => code::POISON,
            ErrorKind::Fatal => code::TOOL_FATAL,
            _ => code::AGENT_ERROR,
        };
        Self(Failure::new(code, error.message()))
    }
}

/// So that what fails in a step's own code can go up by `?`.
impl From<AgentError> for ToolError {
    fn from(error: AgentError) -> Self {
        Self::from(error.0)
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_keeps_its_code_and_other_errors_have_one() {
        let kept = AgentError::from(Failure::new(code::TOOL_TIMEOUT, "late"));
        assert_eq!(kept.failure().code, code::TOOL_TIMEOUT);
        let error = AgentError::from("x".parse::<u8>().unwrap_err());
        assert_eq!(error.to_string(), "agent_error: invalid digit found in string");
    }
}
