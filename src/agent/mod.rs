//! Agents in code: an async function that calls models, tools and other agents, and keeps what came of each.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | `Agent`, and `ModelLoop`, the agent that a model with tools is |
//! | `coded` | `CodedAgent`: what an agent is made of, and what it does |
//! | `context` | `AgentContext`: everything that an agent can do |
//! | `ask` | a question to the agent's model, and the loop |
//! | `step` | durable steps of an agent's own: `step`, `once` |
//! | `error` | `AgentError`: why an agent failed |
//! | `host` | what an agent runs in |

mod ask;
mod coded;
mod context;
mod error;
mod host;
mod step;

pub use crate::turn::StepEffect;
pub use ask::{Ask, Finished};
pub use coded::CodedAgent;
pub use context::{AgentContext, SubAgentCall};
pub use error::AgentError;
pub(crate) use host::{Asked, Host, StepKind, StepRun};
pub use step::StepContext;

use async_trait::async_trait;

/// Something that answers a turn.
///
/// Most agents are a model with instructions and tools, which needs no code ([`ModelLoop`]). An agent in code is any
/// `async fn(AgentContext) -> Result<String, AgentError>`, or a type that implements this trait; either is given to
/// [`AgentSpec::code`](crate::AgentSpec::code).
///
/// After a crash its code runs again from its beginning, and each step that is recorded returns what was recorded. So the
/// code between the steps must do the same each time: what comes from elsewhere (a clock, a random number, a database, an
/// environment variable) belongs into a step. Steps that differ from the record fail the turn with
/// `replay_input_changed`.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Answers the turn; the text is the result's `output`.
    ///
    /// Cancel safety: the future is dropped when the turn is stopped, cancelled or out of time, or when a step ends it: a
    /// step that ends the turn does not return, so that no code can go on past it.
    ///
    /// # Errors
    /// The turn fails with the error's code and text.
    async fn run(&self, ctx: &AgentContext) -> Result<String, AgentError>;
}

#[async_trait]
impl<F, R, E> Agent for F
where
    F: Fn(AgentContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, E>> + Send + 'static,
    E: Into<AgentError> + 'static,
{
    async fn run(&self, ctx: &AgentContext) -> Result<String, AgentError> {
        self(ctx.clone()).await.map_err(Into::into)
    }
}

/// The agent that asks its model, calls the tools that the model asks for, and ends with the model's last word.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelLoop;

#[async_trait]
impl Agent for ModelLoop {
    async fn run(&self, ctx: &AgentContext) -> Result<String, AgentError> {
        Ok(ctx.run_loop(ctx.input().to_vec()).await?.output)
    }
}
