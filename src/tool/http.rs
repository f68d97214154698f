//! The HTTP client that all tools of a process share, with one pool of connections.

use std::sync::LazyLock;
use std::time::Duration;

use super::ToolError;
use crate::turn::ExternalIoMode;

static SHARED: LazyLock<Result<reqwest::Client, String>> =
    LazyLock::new(|| builder().build().map_err(|error| ToolError::from(error).message().to_owned()));

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

/// What all clients of tools have in common.
pub(super) fn builder() -> reqwest::ClientBuilder {
    // Whoever installed a provider before has made the choice; ours is only for those who made none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("turnmill/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
}
