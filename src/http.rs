//! What all HTTP clients of a process have in common.

use std::time::Duration;

/// A client to be.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    // Whoever installed a provider before has made the choice; ours is only for those who made none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("turnmill/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
}
