//! What an agent runs in: a worker's turn. The worker implements it.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;

use super::{Finished, StepContext, StepEffect};
use crate::tool::{Caller, Environment, Output, ToolError};
use crate::turn::{Failure, Message, Reply, SessionId, TurnId};

/// A turn, as an agent of it sees it. Whatever returns a future has given the step its position before; the future of a
/// step that ends the turn is never ready while the agent runs.
pub(crate) trait Host: Caller {
    fn session(&self) -> &SessionId;
    fn turn(&self) -> &TurnId;
    /// The agent's name.
    fn agent(&self) -> &str;
    /// The agent's instructions.
    fn system(&self) -> Option<&str>;
    /// What is asked of it.
    fn input(&self) -> &[Message];
    /// The turn's metadata.
    fn metadata(&self) -> &BTreeMap<String, String>;
    fn environment(&self) -> &Environment;
    fn is_cancelled(&self) -> bool;

    /// Calls another agent.
    fn sub_agent(&self, asked: Asked) -> BoxFuture<'static, Result<String, Failure>>;

    /// Asks the model, which is told of the agent's tools or of none.
    fn ask(&self, messages: Vec<Message>, tools: bool) -> BoxFuture<'static, Result<Reply, Failure>>;

    /// Runs the loop of model and tools.
    fn run_loop(&self, messages: Vec<Message>) -> BoxFuture<'static, Result<Finished, Failure>>;

    /// Runs a step of the agent's own.
    fn step<'a>(&self, kind: StepKind, run: StepRun<'a>) -> BoxFuture<'a, Result<Output, Failure>>;

    /// Asks a person.
    fn interrupt(&self, question: String) -> BoxFuture<'static, Result<String, Failure>>;

    /// Milliseconds since 1970 UTC.
    fn now_ms(&self) -> i64;
}

/// Another agent that is called, with what is asked of it.
pub(crate) struct Asked {
    pub name: String,
    pub id: Option<String>,
    pub input: String,
}

/// Which step it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// One that code names.
    Step(String, StepEffect),
    /// The same, which runs at most once.
    Once(String),
    /// A value that code asks for: the clock, a random number.
    Value(&'static str),
}

/// What a step runs.
pub(crate) type StepRun<'a> =
    Box<dyn FnOnce(StepContext) -> BoxFuture<'a, Result<Output, ToolError>> + Send + 'a>;
