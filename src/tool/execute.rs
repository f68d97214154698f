//! One call of a tool: its timeout, its retries, its panics.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::cache::Lookup;
use super::error::ErrorKind;
use super::{Output, Registered, ToolContext, ToolError};
use crate::retry::Backoff;
use crate::turn::{Failure, code};

/// How a call went.
#[derive(Debug)]
pub struct Execution {
    /// What the tool returned, or why it failed.
    pub result: Result<Output, Failure>,
    /// How often the tool was run for the call in all: the number of the last attempt.
    pub attempts: u32,
    /// Whether the result is that of another call, so that the tool was not run.
    pub cache_hit: bool,
}

/// Runs a tool whose arguments hold against its schema, again as often as it allows, under one idempotency
/// key. The first run has the number `first_attempt`. Where the tool keeps its results, another call's with the same
/// arguments will do.
///
/// Cancel safety: dropping the future drops the tool's own; a blocking tool goes on, and its result is
/// discarded.
pub async fn execute(
    tool: &Arc<Registered>,
    context: &ToolContext,
    arguments: Value,
    first_attempt: u32,
) -> Execution {
    match tool.spec.cache_ttl {
        None => run(tool, context, arguments, first_attempt).await,
        Some(_) => Box::pin(run_unless_cached(tool, context, arguments, first_attempt)).await,
    }
}

async fn run_unless_cached(
    tool: &Arc<Registered>,
    context: &ToolContext,
    arguments: Value,
    first_attempt: u32,
) -> Execution {
    match context.environment().cache.lookup(tool, context, &arguments).await {
        None => run(tool, context, arguments, first_attempt).await,
        Some(Lookup::Hit(output)) => {
            Execution { result: Ok(output), attempts: first_attempt.saturating_sub(1), cache_hit: true }
        }
        Some(Lookup::Cancelled) => {
            let message = "the call was cancelled while it waited for another one's result; it did not run";
            Execution {
                result: Err(Failure::new(code::CANCELLED, message)),
                attempts: first_attempt.saturating_sub(1),
                cache_hit: false,
            }
        }
        Some(Lookup::Miss(ticket)) => {
            let execution = run(tool, context, arguments, first_attempt).await;
            ticket.done(tool, execution.result.as_ref().ok()).await;
            execution
        }
    }
}

async fn run(
    tool: &Arc<Registered>,
    context: &ToolContext,
    mut arguments: Value,
    first_attempt: u32,
) -> Execution {
    let mut attempt = first_attempt;
    let mut retries = tool.spec.retry.max;
    let mut waits = tool.spec.retry.wait.map(|wait| Box::new(Backoff::between(wait.initial, wait.max_delay)));
    loop {
        // The last attempt leaves nothing for another.
        let given = if retries > 0 { arguments.clone() } else { arguments.take() };
        match run_once(tool, context, given, attempt).await {
            Ok(output) => {
                return Execution { result: Ok(output), attempts: attempt, cache_hit: false };
            }
            Err(Fault { failure, retryable, retry_after }) => {
                let asked = retry_after.unwrap_or_default();
                let again = retries > 0 && retryable && asked <= tool.spec.retry.longest_wait();
                let (code, error) = (failure.code.as_ref(), failure.for_operator());
                tracing::info!(
                    tool = tool.spec.name,
                    attempt,
                    code,
                    error = start(error),
                    again,
                    "tool failed"
                );
                let pause = asked.max(waits.as_mut().map(|waits| waits.pause()).unwrap_or_default());
                // A call that nobody wants any longer is not tried again.
                if !again || !Box::pin(waited(pause, context)).await {
                    return Execution { result: Err(failure), attempts: attempt, cache_hit: false };
                }
            }
        }
        retries -= 1;
        attempt = attempt.saturating_add(1);
    }
}

/// Waits, if there is anything to wait for. False: the call was cancelled meanwhile.
async fn waited(pause: Duration, context: &ToolContext) -> bool {
    if pause.is_zero() {
        return !context.is_cancelled();
    }
    tokio::select! {
        biased;
        () = context.cancelled() => false,
        () = tokio::time::sleep(pause) => true,
    }
}

/// As much of an error as a line of the log has room for: it may quote what it is about.
fn start(text: &str) -> &str {
    text.get(..text.floor_char_boundary(2000)).unwrap_or_default()
}

struct Fault {
    failure: Failure,
    retryable: bool,
    retry_after: Option<Duration>,
}

impl Fault {
    fn new(code: &'static str, message: String, retryable: bool) -> Self {
        Self { failure: Failure::new(code, message), retryable, retry_after: None }
    }
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
            Err(failure) => Err(Fault { failure, retryable: false, retry_after: None }),
        },
        Ok(Ok(Err(error))) => Err(fault(name, &error)),
        Ok(Err(join)) => {
            tracing::error!(tool = name, attempt, code = code::TOOL_PANICKED, error = %join, "tool panicked");
            Err(Fault::new(code::TOOL_PANICKED, format!("tool {name} failed unexpectedly"), true))
        }
        Err(_) => {
            let limit = humantime::format_duration(tool.spec.timeout);
            let message = format!("tool {name} did not answer within {limit}");
            // Its thread cannot be stopped: a retry would run beside it (specification P, "Options").
            Err(Fault::new(code::TOOL_TIMEOUT, message, !tool.spec.blocking))
        }
    }
}

fn fault(name: &str, error: &ToolError) -> Fault {
    let (code, before) = match error.kind() {
        ErrorKind::Retryable | ErrorKind::Permanent => (code::TOOL_ERROR, String::new()),
        ErrorKind::InvalidArguments => (code::INVALID_ARGUMENTS, format!("invalid arguments for {name}: ")),
        ErrorKind::InvalidResult => {
            (code::INVALID_RESULT, format!("the result of tool {name} cannot be written as JSON: "))
        }
        ErrorKind::Fatal => (code::TOOL_FATAL, format!("tool {name}: ")),
        ErrorKind::Poison => (code::POISON, format!("tool {name}: ")),
    };
    let text = error.model_message().unwrap_or(error.message());
    let mut failure = Failure::new(code, format!("{before}{text}"));
    failure.detail = error.model_message().map(|_| error.message().to_owned());
    Fault { failure, retryable: error.kind() == ErrorKind::Retryable, retry_after: error.pause() }
}

#[cfg(test)]
mod tests;
