//! `CodedAgent`: what an agent is made of, and what it does.

use std::sync::Arc;

use super::Agent;
use crate::config::AgentSpec;

/// What an agent is made of, and what it does; [`App::agent`](crate::App::agent) takes it.
#[derive(Clone)]
pub struct CodedAgent {
    pub(crate) spec: AgentSpec,
    /// None: the loop of model and tools.
    pub(crate) code: Option<Arc<dyn Agent>>,
}

impl std::fmt::Debug for CodedAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodedAgent").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl AgentSpec {
    /// The agent that runs this code: an `async fn(AgentContext) -> Result<String, AgentError>`, or a type of your own.
    ///
    /// ```
    /// use turnmill::{AgentContext, AgentError, AgentSpec, App};
    ///
    /// async fn greet(ctx: AgentContext) -> Result<String, AgentError> {
    ///     Ok(format!("You have said: {}", ctx.text()))
    /// }
    ///
    /// App::new().agent(AgentSpec::new("greeter", "scripted").code(greet));
    /// ```
    pub fn code(self, code: impl Agent) -> CodedAgent {
        CodedAgent { spec: self, code: Some(Arc::new(code)) }
    }
}

impl From<AgentSpec> for CodedAgent {
    fn from(spec: AgentSpec) -> Self {
        Self { spec, code: None }
    }
}
