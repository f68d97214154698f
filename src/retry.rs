//! Waiting longer and longer between tries.
//!
//! The only user of the `backoff` crate, which is no longer maintained (see `deny.toml`): what replaces
//! it, replaces it here.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;

/// Waits that double from 200 ms to 10 s, each spread at random so that many workers do not come at once.
pub(crate) struct Backoff(ExponentialBackoff);

impl Backoff {
    /// Waits without an end.
    pub(crate) fn forever() -> Self {
        Self(ExponentialBackoff {
            initial_interval: Duration::from_millis(200),
            current_interval: Duration::from_millis(200),
            max_interval: Duration::from_secs(10),
            multiplier: 2.0,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        })
    }

    /// Waits for the next try. Cancel safe: a wait that is cut short counts as one.
    pub(crate) async fn wait(&mut self) {
        let pause = self.0.next_backoff().unwrap_or(Duration::from_secs(10));
        tokio::time::sleep(pause).await;
    }
}
