//! Waiting longer and longer between tries.
//!
//! The only user of the `backoff` crate, which is no longer maintained (see `deny.toml`): what replaces
//! it, replaces it here.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;

/// Waits that double, each spread at random so that many workers do not come at once.
pub(crate) struct Backoff(ExponentialBackoff);

impl Backoff {
    /// Waits from 200 ms to 10 s, without an end.
    pub(crate) fn forever() -> Self {
        Self::between(Duration::from_millis(200), Duration::from_secs(10))
    }

    /// Waits that begin at about `initial`, none longer than `max`, without an end.
    pub(crate) fn between(initial: Duration, max: Duration) -> Self {
        Self(ExponentialBackoff {
            initial_interval: initial.min(max),
            current_interval: initial.min(max),
            max_interval: max,
            multiplier: 2.0,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        })
    }

    /// How long to wait for the next try.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0.next_backoff().unwrap_or(self.0.max_interval);
        // Spreading may go beyond.
        pause.min(self.0.max_interval)
    }

    /// Waits for the next try. Cancel safe: a wait that is cut short counts as one.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }
}
