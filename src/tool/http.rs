//! The HTTP client that all tools of a process share, with one pool of connections.

use std::sync::LazyLock;
use std::time::Duration;

use super::ToolError;

static SHARED: LazyLock<Result<reqwest::Client, String>> =
    LazyLock::new(|| builder().build().map_err(|error| ToolError::from(error).message().to_owned()));

/// The client.
///
/// # Errors
/// Fatal: it cannot be made here. There is no certificate to trust, for one.
pub(super) fn shared() -> Result<&'static reqwest::Client, ToolError> {
    SHARED.as_ref().map_err(|why| ToolError::fatal(format!("no HTTP client can be made: {why}")))
}

/// What all clients of tools have in common.
pub(super) fn builder() -> reqwest::ClientBuilder {
    // Whoever installed a provider before has made the choice; ours is only for those who made none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("turnmill/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
}
