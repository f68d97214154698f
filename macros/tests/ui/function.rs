//! What cannot be a tool.

#![allow(unused)]

struct ToolContext;
struct ToolError;

#[turnmill_macros::tool]
async fn undescribed() -> Result<(), ToolError> {
    Ok(())
}

/// No return type.
#[turnmill_macros::tool]
async fn silent() {}

/// References and patterns.
#[turnmill_macros::tool]
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
#[turnmill_macros::tool]
async fn contexts(ctx: ToolContext, again: &mut ToolContext) -> Result<(), ToolError> {
    Ok(())
}

/// Generics.
#[turnmill_macros::tool]
async unsafe extern "C" fn generic<T: Send>(any: T, some: impl Send) -> Result<(), ToolError> {
    Ok(())
}

/// A method.
#[turnmill_macros::tool]
async fn method(self) -> Result<(), ToolError> {
    Ok(())
}

/// The struct needs a name of its own.
#[allow(non_snake_case)]
#[turnmill_macros::tool]
async fn Lookup() -> Result<(), ToolError> {
    Ok(())
}

/// Names are ASCII.
#[turnmill_macros::tool]
async fn größe() -> Result<(), ToolError> {
    Ok(())
}

#[turnmill_macros::tool]
struct NoFunction;

fn main() {}
