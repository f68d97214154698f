//! What cannot stand between the brackets of the attribute.

struct ToolError;

/// A list of everything wrong at once.
#[turnmill_macros::tool(
    retires = 3,
    some::path,
    retry = "3",
    timeout = 10,
    name = "look up",
    read_only = true,
    writes,
    requires_approval(always),
    writes
)]
async fn everything() -> Result<(), ToolError> {
    Ok(())
}

/// An effect is one of two.
#[turnmill_macros::tool(read_only, writes)]
async fn both() -> Result<(), ToolError> {
    Ok(())
}

/// Durations have a unit.
#[turnmill_macros::tool(timeout = "10")]
async fn unit() -> Result<(), ToolError> {
    Ok(())
}

/// Durations are more than zero, counts are not less and fit.
#[turnmill_macros::tool(timeout = "0s", retry = -1)]
async fn zero() -> Result<(), ToolError> {
    Ok(())
}

#[turnmill_macros::tool(retry = 4294967296, description = " ")]
async fn empty() -> Result<(), ToolError> {
    Ok(())
}

#[turnmill_macros::tool(read_only writes)]
async fn comma() -> Result<(), ToolError> {
    Ok(())
}

/// A policy says how often, in parts that it knows.
#[turnmill_macros::tool(retry(initial = "1s"))]
async fn how_often() -> Result<(), ToolError> {
    Ok(())
}

/// One more.
#[turnmill_macros::tool(retry(max = 3, factor = 2))]
async fn factor() -> Result<(), ToolError> {
    Ok(())
}

/// One more.
#[turnmill_macros::tool(retry(max = "3"))]
async fn three() -> Result<(), ToolError> {
    Ok(())
}

/// One more.
#[turnmill_macros::tool(retry(max = 3, max_delay = "5"))]
async fn five() -> Result<(), ToolError> {
    Ok(())
}

/// One more.
#[turnmill_macros::tool(retry(max = 3, initial = "1m", max_delay = "5s"))]
async fn longer() -> Result<(), ToolError> {
    Ok(())
}

/// What is called what, and looked at here.
#[turnmill_macros::tool(
    requires_approval = true,
    schema = r#"{"type": }"#,
    cost_per_call = 0.002,
    cache_ttl = "soon",
    deterministic = "yes",
    approval_timeout = "0s"
)]
async fn more() -> Result<(), ToolError> {
    Ok(())
}

/// Nothing could time out.
#[turnmill_macros::tool(approval_timeout = "1h", schema = 7, cost_per_call = "-1")]
async fn nobody() -> Result<(), ToolError> {
    Ok(())
}

/// An object's schema, and no more digits than there are.
#[turnmill_macros::tool(schema = "[]", cost_per_call = "0.00000000000000000000000000001")]
async fn digits() -> Result<(), ToolError> {
    Ok(())
}

fn main() {}
