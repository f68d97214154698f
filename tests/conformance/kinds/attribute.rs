//! As functions under `#[tool]`.

use std::sync::Arc;

use turnmill::tool::{Tool, ToolContext, ToolError};

use super::{Claimed, Price, claimed, down, enter, price};

pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(Greet),
        Arc::new(PriceOf),
        Arc::new(Book),
        Arc::new(Flaky),
        Arc::new(Refuse),
        Arc::new(BeDown),
        Arc::new(Broken),
        Arc::new(Slow),
        Arc::new(ReachOut),
    ]
}

/// Greet somebody.
#[turnmill::tool(read_only)]
async fn greet(ctx: &ToolContext, name: String) -> Result<String, ToolError> {
    enter(ctx)?;
    Ok(format!("hello, {name}"))
}

/// Say a price.
#[turnmill::tool(name = "price", cache_ttl = "1h", cost_per_call = "0.002", deterministic)]
async fn price_of(
    ctx: &ToolContext,
    item: String,
    #[serde(default = "euro")] currency: String,
) -> Result<Price, ToolError> {
    enter(ctx)?;
    let _ = currency;
    Ok(price(item))
}

fn euro() -> String {
    "EUR".into()
}

/// Book something.
#[turnmill::tool(writes, requires_approval, approval_timeout = "1m", on_unknown_outcome = "report")]
fn book(ctx: &ToolContext) -> Result<(), ToolError> {
    enter(ctx).map(drop)
}

/// Fail as often as asked.
#[turnmill::tool(retry(max = 3, initial = "1ms", max_delay = "5ms"))]
async fn flaky(ctx: &ToolContext, fail_times: usize) -> Result<String, ToolError> {
    match enter(ctx)? <= fail_times {
        true => Err(ToolError::retryable("not yet")),
        false => Ok("done".into()),
    }
}

/// Refuse for good.
#[turnmill::tool(retry = 3)]
async fn refuse(ctx: &ToolContext) -> Result<(), ToolError> {
    enter(ctx)?;
    Err(ToolError::permanent("never"))
}

/// Be down.
#[turnmill::tool(name = "down")]
fn be_down(ctx: &ToolContext) -> Result<(), ToolError> {
    enter(ctx)?;
    Err(down())
}

/// Return what may be no result.
#[turnmill::tool]
async fn broken(ctx: &ToolContext, how: String) -> Result<Claimed, ToolError> {
    enter(ctx)?;
    Ok(claimed(&how))
}

/// Never answer.
#[turnmill::tool(timeout = "50ms")]
async fn slow(ctx: &ToolContext) -> Result<(), ToolError> {
    enter(ctx)?;
    std::future::pending().await
}

/// Reach out.
#[turnmill::tool(name = "outside")]
async fn reach_out(ctx: &ToolContext) -> Result<&'static str, ToolError> {
    ctx.http()?;
    enter(ctx)?;
    Ok("out")
}
