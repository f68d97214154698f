//! Tools to try things with: `[tools] samples = true`.

use std::sync::Arc;
use std::time::Duration;

use super::{Tool, ToolContext, ToolError};

/// The sample tools, in the order of their registration.
pub fn samples() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Echo), Arc::new(Add), Arc::new(Sleep), Arc::new(Flaky)]
}

/// Return the text as it is.
#[crate::tool(read_only)]
async fn echo(text: String) -> Result<String, ToolError> {
    Ok(text)
}

/// Add two integers.
#[crate::tool(read_only)]
async fn add(a: i64, b: i64) -> Result<i64, ToolError> {
    a.checked_add(b).ok_or_else(|| ToolError::invalid_arguments("the sum does not fit 64 bits"))
}

/// Sleep for some milliseconds, then say so.
#[crate::tool(read_only, timeout = "1h")]
async fn sleep(ms: u32) -> Result<String, ToolError> {
    tokio::time::sleep(Duration::from_millis(ms.into())).await;
    Ok(format!("slept {ms} ms"))
}

/// Fail as often as asked, then succeed. Tried again up to three times.
#[crate::tool(read_only, retry = 3)]
async fn flaky(ctx: &ToolContext, fail_times: u32) -> Result<String, ToolError> {
    let attempt = ctx.attempt();
    if attempt <= fail_times {
        return Err(ToolError::retryable(format!("attempt {attempt} failed, as asked")));
    }
    Ok(format!("attempt {attempt} succeeded"))
}
