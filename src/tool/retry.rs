//! `Retry`: how often a call is tried again, and how long is waited before.

use std::time::Duration;

/// How often a call is tried again after a retryable error (specification P, "Options"). A number alone means: at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retry {
    /// How often, at most.
    pub max: u32,
    /// How long is waited before each. None: not at all.
    pub wait: Option<RetryWait>,
}

/// Waits between tries, which double and are spread at random. They are no part of the tool's timeout, which is that of one
/// attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryWait {
    /// The first, give or take a half.
    pub initial: Duration,
    /// None is longer.
    pub max_delay: Duration,
}

impl Retry {
    /// The longest wait that a tool may ask for by [`super::ToolError::retry_after`]: the policy's, or a minute.
    pub fn longest_wait(&self) -> Duration {
        self.wait.map_or(Duration::from_secs(60), |wait| wait.max_delay)
    }
}

impl From<u32> for Retry {
    fn from(max: u32) -> Self {
        Self { max, wait: None }
    }
}
