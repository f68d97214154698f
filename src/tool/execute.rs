//! One call of a tool: its timeout, its retries, its panics.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::error::ErrorKind;
use super::{Output, Registered, ToolContext, ToolError};
use crate::retry::Backoff;
use crate::turn::{Failure, code};

/// How a call went.
#[derive(Debug)]
pub struct Execution {
    /// What the tool returned, or why it failed.
    pub result: Result<Output, Failure>,
    /// The number of the last attempt.
    pub attempts: u32,
}

/// Runs a tool whose arguments hold against its schema, again as often as it allows, under one idempotency
/// key. The first run has the number `first_attempt`.
///
/// Cancel safety: dropping the future drops the tool's own; a blocking tool goes on, and its result is
/// discarded.
pub async fn execute(
    tool: &Arc<Registered>,
    context: &ToolContext,
    arguments: Value,
    first_attempt: u32,
) -> Execution {
    let mut attempt = first_attempt;
    let mut retries = tool.spec.retry.max;
    let mut waits = tool.spec.retry.wait.map(|wait| Backoff::between(wait.initial, wait.max_delay));
    loop {
        match run_once(tool, context, arguments.clone(), attempt).await {
            Ok(output) => {
                return Execution { result: Ok(output), attempts: attempt };
            }
            Err(fault) if retries == 0 || !fault.retryable => {
                return Execution { result: Err(fault.failure), attempts: attempt };
            }
            Err(fault) => {
                tracing::info!(
                    tool = tool.spec.name,
                    attempt,
                    code = %fault.failure.code,
                    error = fault.failure.message,
                    "tool failed, trying again"
                );
                if let Some(waits) = &mut waits {
                    tokio::select! {
                        () = waits.wait() => {}
                        // Nobody wants another attempt.
                        () = context.cancelled() => {
                            return Execution { result: Err(fault.failure), attempts: attempt };
                        }
                    }
                }
            }
        }
        retries -= 1;
        attempt = attempt.saturating_add(1);
    }
}

struct Fault {
    failure: Failure,
    retryable: bool,
}

async fn run_once(
    tool: &Arc<Registered>,
    context: &ToolContext,
    arguments: Value,
    attempt: u32,
) -> Result<Output, Fault> {
    let (context, _cancel_when_over) = context.for_attempt(attempt);
    // A task of its own, so that a panic ends the attempt and nothing else.
    let call = {
        let tool = Arc::clone(tool);
        async move { tool.tool.call(&context, arguments).await }
    };
    // What the tool logs, whatever is logged.
    let span = tracing::error_span!("tool", tool = tool.spec.name, attempt);
    let task = tokio::spawn(call.instrument(span));
    let name = &tool.spec.name;
    match tokio::time::timeout(tool.spec.timeout, AbortOnDropHandle::new(task)).await {
        Ok(Ok(Ok(output))) => match tool.check_result(&output) {
            Ok(()) => Ok(output),
            Err(failure) => Err(Fault { failure, retryable: false }),
        },
        Ok(Ok(Err(error))) => Err(fault(name, &error)),
        Ok(Err(join)) => {
            tracing::error!(tool = name, attempt, code = code::TOOL_PANICKED, error = %join, "tool panicked");
            Err(Fault {
                failure: Failure::new(code::TOOL_PANICKED, format!("tool {name} failed unexpectedly")),
                retryable: true,
            })
        }
        Err(_) => {
            let limit = humantime::format_duration(tool.spec.timeout);
            Err(Fault {
                failure: Failure::new(
                    code::TOOL_TIMEOUT,
                    format!("tool {name} did not answer within {limit}"),
                ),
                // Its thread cannot be stopped: a retry would run beside it (specification P, "Options").
                retryable: !tool.spec.blocking,
            })
        }
    }
}

fn fault(name: &str, error: &ToolError) -> Fault {
    let text = error.message();
    let failure = match error.kind() {
        ErrorKind::Retryable => Failure::new(code::TOOL_ERROR, text),
        ErrorKind::InvalidArguments => {
            Failure::new(code::INVALID_ARGUMENTS, format!("invalid arguments for {name}: {text}"))
        }
        ErrorKind::InvalidResult => Failure::new(
            code::INVALID_RESULT,
            format!("the result of tool {name} cannot be written as JSON: {text}"),
        ),
        ErrorKind::Fatal => Failure::new(code::TOOL_FATAL, format!("tool {name}: {text}")),
        ErrorKind::Poison => Failure::new(code::POISON, format!("tool {name}: {text}")),
    };
    Fault { failure, retryable: error.kind() == ErrorKind::Retryable }
}

#[cfg(test)]
mod tests;
