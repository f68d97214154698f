//! What cannot be a tool.

use turnmill::tool::{ToolContext, ToolError};

#[turnmill::tool]
async fn undescribed() -> Result<(), ToolError> {
    Ok(())
}

/// No return type.
#[turnmill::tool]
async fn silent() {}

/// References and patterns.
#[turnmill::tool]
async fn borrows(
    ctx: &ToolContext,
    text: &str,
    list: Vec<&str>,
    cow: std::borrow::Cow<'_, str>,
    (a, b): (u8, u8),
    _: u8,
) -> Result<(), ToolError> {
    Ok(())
}

/// The context is a reference, and comes first.
#[turnmill::tool]
async fn contexts(ctx: ToolContext, again: &mut ToolContext) -> Result<(), ToolError> {
    Ok(())
}

/// Generics.
#[turnmill::tool]
async unsafe extern "C" fn generic<T: Send>(any: T, some: impl Send) -> Result<(), ToolError> {
    Ok(())
}

/// A method.
#[turnmill::tool]
async fn method(self) -> Result<(), ToolError> {
    Ok(())
}

/// The struct needs a name of its own.
#[allow(non_snake_case)]
#[turnmill::tool]
async fn Lookup() -> Result<(), ToolError> {
    Ok(())
}

/// Names are ASCII.
#[turnmill::tool]
async fn größe() -> Result<(), ToolError> {
    Ok(())
}

#[turnmill::tool]
struct NoFunction;

fn main() {}
