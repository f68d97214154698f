//! Tools: what they are, what they are given, how they run.
//!
//! | file | holds |
//! | --- | --- |
//! | `context` | `ToolContext`: what a tool is given beside its arguments |
//! | `retry` | `Retry`: how often a call is tried again, and when |
//! | `error` | `ToolError`: retryable, fatal or poison |
//! | `output` | `Output`: a result that is known to be JSON |
//! | `http` | the HTTP client that tools share |
//! | `registry` | the tools of a process, in order, and name patterns |
//! | `execute` | one call: timeout, retries, panics |
//! | `macro_support` | what the code that the attribute writes needs |
//! | `samples` | `echo`, `add`, `sleep`, `flaky` |

mod context;
mod error;
mod execute;
mod finite;
mod http;
#[doc(hidden)]
pub mod macro_support;
mod output;
mod registry;
mod retry;
mod samples;

pub use context::{Deps, ToolContext, ToolContextBuilder};
pub use error::{ErrorKind, ToolError};
pub use execute::{Execution, execute};
pub use output::Output;
pub use registry::{Pattern, Registered, Registry, RegistryError};
pub use retry::{Retry, RetryWait};
pub use samples::samples;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

/// Something that a model can call.
///
/// Most tools are functions under [`macro@crate::tool`], which writes this implementation. A tool runs
/// at least once for each call, always under the same idempotency key.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What the tool is called, takes and needs. Asked once, when the tool is registered.
    fn spec(&self) -> Spec;

    /// Runs the tool. `arguments` is an object that holds against the schema of [`Spec::parameters`].
    ///
    /// Cancel safety: the future is dropped when the call's timeout is over or the worker gives up a
    /// partition; [`ToolContext::cancelled`] says so to work that runs outside it.
    ///
    /// # Errors
    /// Retryable unless it says otherwise; see [`ToolError`].
    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError>;
}

/// What a tool declares about itself.
#[derive(Debug, Clone)]
pub struct Spec {
    /// `[a-zA-Z0-9_-]+`, unique in a registry (specification P, "Options").
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object's.
    pub parameters: Value,
    /// How often a call is tried again after a retryable error. Default never.
    pub retry: Retry,
    /// The limit for one attempt. Default 30 s.
    pub timeout: Duration,
    /// What it does to the world.
    pub effect: Effect,
    /// Whether a person has to approve a call.
    pub requires_approval: bool,
    /// What becomes of a call that had started when its worker died. Default: it runs again.
    pub on_unknown_outcome: UnknownOutcome,
    /// Whether it runs on a blocking thread, which no timeout can stop: its late result is discarded and a
    /// timeout is not retried.
    pub blocking: bool,
}

impl Spec {
    /// The timeout of a tool that declares none.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// A tool with defaults for everything else.
    pub fn new(name: &str, description: &str, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            retry: Retry::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            effect: Effect::Unmarked,
            requires_approval: false,
            on_unknown_outcome: UnknownOutcome::Rerun,
            blocking: false,
        }
    }
}

/// What becomes of a call that has a start and no result on the log: whether it took effect is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownOutcome {
    /// It runs again under the same idempotency key: right for whatever honours the key.
    #[default]
    Rerun,
    /// It never runs a second time: the model reads that the outcome is unknown. Costs a confirmed write before
    /// each call.
    Report,
}

/// What a tool does to the world, as it declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Effect {
    /// It does not say, and is treated like one that writes.
    #[default]
    Unmarked,
    /// Nothing.
    ReadOnly,
    /// It has side effects.
    Writes,
}
