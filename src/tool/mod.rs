//! Tools: what they are, what they are given, how they run.
//!
//! | file | holds |
//! | --- | --- |
//! | `spec` | `Spec`: what a tool declares about itself |
//! | `approval` | `Approval`: which calls a person has to approve |
//! | `function` | tools that are made at run time: a `Spec` and a closure |
//! | `context` | `ToolContext`: what a tool is given beside its arguments |
//! | `direct` | calls that code makes itself |
//! | `environment` | what all calls of a process share: deps, cache, status |
//! | `cache` | results and values that calls leave for others |
//! | `retry` | `Retry`: how often a call is tried again, and when |
//! | `error` | `ToolError`: retryable, fatal or poison |
//! | `output` | `Output`: a result that is known to be JSON |
//! | `http` | the HTTP client that tools share |
//! | `registry` | the tools of a process, in order, and name patterns |
//! | `endpoint` | tools that are HTTP endpoints of the configuration |
//! | `execute` | one call: timeout, retries, panics |
//! | `macro_support` | what the code that the attribute writes needs |
//! | `samples` | `echo`, `add`, `sleep`, `flaky` |

mod approval;
mod cache;
mod context;
mod direct;
pub(crate) mod endpoint;
mod environment;
mod error;
mod execute;
mod finite;
mod function;
pub(crate) mod http;
#[doc(hidden)]
pub mod macro_support;
mod output;
mod registry;
mod retry;
mod samples;
mod spec;

pub use approval::{Approval, Asks, Predicate};
pub use cache::{Cache, ToolCache};
pub(crate) use cache::{Redis, RedisSettings, Store};
pub use context::{ToolContext, ToolContextBuilder};
pub use direct::{Callee, DirectCall};
pub(crate) use direct::{Caller, DirectArguments};
pub use environment::{Deps, Environment, StatusSink, Told};
pub use error::{ErrorKind, ToolError};
pub use execute::{Execution, execute};
pub use function::FunctionTool;
pub use output::Output;
pub(crate) use registry::is_name as is_tool_name;
pub use registry::{Pattern, Registered, Registry, RegistryError, Source};
pub use retry::{Retry, RetryWait};
pub use rust_decimal::Decimal;
pub use samples::samples;
pub use spec::{Effect, Spec, UnknownOutcome};

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

    /// Its name, as [`Self::spec`] has it.
    fn name(&self) -> String {
        self.spec().name
    }

    /// Runs the tool. `arguments` is an object that holds against the schema of [`Spec::parameters`].
    ///
    /// Cancel safety: the future is dropped when the call's timeout is over or the worker gives up a
    /// partition; [`ToolContext::cancelled`] says so to work that runs outside it.
    ///
    /// # Errors
    /// Retryable unless it says otherwise; see [`ToolError`].
    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError>;
}
