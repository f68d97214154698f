//! The HTTP client that all tools of a process share, with one pool of connections.

use std::sync::LazyLock;

use super::ToolError;
use crate::http;
use crate::turn::ExternalIoMode;

static SHARED: LazyLock<Result<reqwest::Client, String>> =
    LazyLock::new(|| http::builder().build().map_err(|error| ToolError::from(error).message().to_owned()));

/// The client, where the external I/O mode allows one.
///
/// # Errors
/// Fatal: it does not, or the client cannot be made here. There is no certificate to trust, for one.
pub(crate) fn client(mode: ExternalIoMode) -> Result<&'static reqwest::Client, ToolError> {
    check(mode)?;
    SHARED.as_ref().map_err(|why| ToolError::fatal(format!("no HTTP client can be made: {why}")))
}

/// Whether a call may reach out.
///
/// # Errors
/// Fatal: it may not.
pub(super) fn check(mode: ExternalIoMode) -> Result<(), ToolError> {
    if mode.allows_io() {
        return Ok(());
    }
    let mode = mode.as_str();
    Err(ToolError::fatal(format!("the call may not reach out: its external I/O mode is `{mode}`")))
}
