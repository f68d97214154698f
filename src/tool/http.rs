//! The HTTP client that all tools of a process share, with one pool of connections.

use std::sync::LazyLock;
use std::time::Duration;

static SHARED: LazyLock<reqwest::Client> = LazyLock::new(|| builder().build().unwrap_or_default());

/// The client.
pub(super) fn shared() -> &'static reqwest::Client {
    &SHARED
}

/// What all clients of tools have in common.
pub(super) fn builder() -> reqwest::ClientBuilder {
    // Whoever installed a provider before has made the choice; ours is only for those who made none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("turnmill/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
}
