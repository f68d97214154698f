//! Durable steps of an agent's own.

use std::sync::Arc;

use crate::tool::{ToolError, http};
use crate::turn::{ExternalIoMode, IdempotencyKey};

/// What a step is given. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StepContext {
    pub(crate) key: Arc<IdempotencyKey>,
    pub(crate) attempt: u32,
    pub(crate) external_io_mode: ExternalIoMode,
}

impl StepContext {
    /// The same for every run of this step, on whichever worker: pass it on to the outside world. Printable ASCII, at
    /// most 255 bytes.
    pub fn idempotency_key(&self) -> &str {
        self.key.as_str()
    }

    /// Which run of the step this is, from 1; reruns after a crash count.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// An HTTP client, shared by the whole process. Send [`Self::idempotency_key`] along as the `Idempotency-Key`
    /// header.
    ///
    /// # Errors
    /// Fatal: the step may not reach out, or no client can be made here.
    pub fn http(&self) -> Result<&'static reqwest::Client, ToolError> {
        http::client(self.external_io_mode)
    }
}
