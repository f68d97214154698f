//! `App`: a team's own worker.

use std::process::ExitCode;
use std::sync::Arc;

use crate::agent::CodedAgent;
use crate::cli;
use crate::model::Model;
use crate::tool::{Deps, Tool};
use crate::worker::bind::Models;

/// A program with every command of Turnmill and a team's own tools, models and agents in it.
///
/// ```no_run
/// use turnmill::tool::ToolError;
///
/// /// Say hello to somebody.
/// #[turnmill::tool(read_only)]
/// async fn hello(name: String) -> Result<String, ToolError> {
///     Ok(format!("hello, {name}"))
/// }
///
/// fn main() -> std::process::ExitCode {
///     turnmill::App::new().tool(Hello).main()
/// }
/// ```
pub struct App {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) deps: Deps,
    pub(crate) agents: Vec<CodedAgent>,
    pub(crate) models: Models,
}

impl Default for App {
    fn default() -> Self {
        Self::new()
    }
}

impl App {
    /// The stock program: no tools, models or agents of its own.
    pub fn new() -> Self {
        Self { tools: Vec::new(), deps: Deps::none(), agents: Vec::new(), models: Models::new() }
    }

    /// What the tools share, as `ToolContext::deps` gives it to them.
    #[must_use]
    pub fn deps<T: std::any::Any + Send + Sync>(mut self, deps: T) -> Self {
        self.deps = Deps::new(deps);
        self
    }

    /// Registers a tool, after those before it. A bad or taken name is reported when a command runs.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds an agent, before those of the configuration: a model with tools, or code
    /// ([`AgentSpec::code`](crate::AgentSpec::code)).
    #[must_use]
    pub fn agent(mut self, agent: impl Into<CodedAgent>) -> Self {
        self.agents.push(agent.into());
        self
    }

    /// Registers a model under the name that agents call it by.
    #[must_use]
    pub fn model(mut self, name: &str, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// Runs the command of the process's arguments to its end. The exit code is 0 done, 1 failed, 2 usage or
    /// configuration, 3 not found, 4 refused.
    pub fn main(self) -> ExitCode {
        cli::main(self)
    }
}
