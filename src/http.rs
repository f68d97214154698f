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

/// How long a body is waited for that is only quoted.
const MAX_READING: Duration = Duration::from_secs(1);

/// The start of an error's body. Where the rest is cut off or does not come, the status has said what matters.
pub(crate) async fn start_of(response: &mut reqwest::Response, most: usize) -> Vec<u8> {
    let mut start = Vec::new();
    let reading = async {
        while start.len() < most {
            let Ok(Some(chunk)) = response.chunk().await else { break };
            start.extend(chunk.iter().take(most - start.len()));
        }
    };
    // What is only quoted must not become a timeout, which would be tried again.
    let _ = tokio::time::timeout(MAX_READING, reading).await;
    start
}
