//! Types that are not JSON.

use turnmill::tool::ToolError;

struct Opaque;

/// Not a result.
#[turnmill::tool]
async fn no_result() -> String {
    String::new()
}

/// An error of no use.
#[turnmill::tool]
async fn text_error() -> Result<(), String> {
    Ok(())
}

/// A value that does not serialize.
#[turnmill::tool]
fn opaque_result() -> Result<Opaque, ToolError> {
    Ok(Opaque)
}

/// An argument that does not deserialize.
#[turnmill::tool]
async fn opaque_argument(what: Opaque) -> Result<(), ToolError> {
    let _ = what;
    Ok(())
}

fn main() {}
