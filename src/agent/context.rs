//! `AgentContext`: everything that an agent in code can do.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AgentError, Ask, Asked, Finished, Host, StepContext, StepEffect, StepKind, StepRun};
use crate::tool::{Callee, DirectCall, Output, ToolError};
use crate::turn::{Failure, Message, code};

/// What an agent is given: its input, and everything that it can do. Cheap to clone.
///
/// Everything that does something is a durable step. It is recorded under its position in the turn, and what is recorded is
/// returned the next time that the code runs. Before a tool or a step of the agent's own begins, everything that the code
/// has been told so far is confirmed on the log, so that after a crash the same key cannot come with other arguments.
///
/// Steps may run side by side (`tokio::join!`). A step that ends the turn (its record was made from another input, a budget
/// is used up, its tool needs a person) never returns: the code cannot go on past it.
///
/// Cancel safety, of every step: where its future is dropped, what it runs is dropped; that it has begun may be on the log,
/// and its result is not. In a rerun it may be in time, so code that goes by that does not do the same again.
#[derive(Clone)]
pub struct AgentContext {
    host: Arc<dyn Host>,
}

impl std::fmt::Debug for AgentContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (session, turn, agent) = (self.session_id(), self.turn_id(), self.agent());
        f.debug_struct("AgentContext")
            .field("session", &session)
            .field("turn", &turn)
            .field("agent", &agent)
            .finish_non_exhaustive()
    }
}

impl AgentContext {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        Self { host }
    }

    /// The session of the turn.
    pub fn session_id(&self) -> &str {
        self.host.session().as_str()
    }

    /// The turn.
    pub fn turn_id(&self) -> &str {
        self.host.turn().as_str()
    }

    /// The agent's own name.
    pub fn agent(&self) -> &str {
        self.host.agent()
    }

    /// The agent's instructions.
    pub fn system(&self) -> Option<&str> {
        self.host.system()
    }

    /// What is asked of the agent: the turn's messages, or the caller's text where it was called by another agent.
    pub fn input(&self) -> &[Message] {
        self.host.input()
    }

    /// The texts of the user's messages, by lines.
    pub fn text(&self) -> String {
        let texts = self.input().iter().filter_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The turn's metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        self.host.metadata()
    }

    /// What the program gave to `App::deps`.
    ///
    /// # Errors
    /// The program gave a value of another type, or none.
    pub fn deps<T: Any + Send + Sync>(&self) -> Result<&T, AgentError> {
        self.host.environment().deps.get().ok_or_else(|| {
            AgentError::new(format!(
                "the agent needs deps of the type {}; give them to App::deps",
                std::any::type_name::<T>()
            ))
        })
    }

    /// Whether the agent's answer is no longer wanted: the turn is cancelled, or the worker gives it up.
    pub fn is_cancelled(&self) -> bool {
        self.host.is_cancelled()
    }

    /// Calls a tool that the program or the configuration has, whether or not the agent's model is offered it: by its
    /// name, or the tool itself. Arguments are anything that is an object as JSON.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use turnmill::{AgentContext, AgentError, ToolError};
    /// # /// The state of an order.
    /// # #[turnmill::tool(read_only)]
    /// # async fn lookup_order(order_id: String) -> Result<String, ToolError> { Ok(order_id) }
    /// async fn state(ctx: AgentContext) -> Result<String, AgentError> {
    ///     let state = ctx.call(LookupOrder, json!({"order_id": ctx.text()})).await?;
    ///     Ok(state.read()?)
    /// }
    /// ```
    ///
    /// A call stands at the number of calls of its tool before it (`lookup_order#0`), or at its [`DirectCall::id`], and
    /// keeps that place whatever comes of it. Two calls under one id at the same time end the turn with
    /// `concurrent_call_id`. A tool that requires approval ends it with `tool_registration_error`: a worker cannot wait for
    /// a person.
    ///
    /// # Errors
    /// The call's, recorded like a result: `unknown_tool`, `invalid_arguments`, what the tool failed with.
    pub fn call(&self, tool: impl Callee, arguments: impl Serialize) -> DirectCall {
        DirectCall::new(Arc::clone(&self.host) as Arc<_>, None, tool, arguments)
    }

    /// Calls another agent of the worker with this text. Its steps stand under the call (`billing#0/m0`), what it uses
    /// counts for both, and its own limits hold beside the caller's.
    ///
    /// # Errors
    /// What that agent failed with, recorded like a result; `unknown_agent`; `call_depth_limit`.
    pub fn call_agent(&self, name: &str, input: impl Into<String>) -> SubAgentCall {
        let asked = Asked { name: name.into(), id: None, input: input.into() };
        SubAgentCall { host: Arc::clone(&self.host), asked }
    }

    /// Asks the agent's model for a reply to this transcript, which begins with instructions only if it says so. It is told
    /// of no tools but by [`Ask::with_tools`].
    ///
    /// # Errors
    /// What the model failed with, recorded like a reply.
    pub fn ask(&self, messages: impl Into<Vec<Message>>) -> Ask {
        Ask { host: Arc::clone(&self.host), messages: messages.into(), tools: false }
    }

    /// Runs the loop of model and tools, as an agent without code does, on these messages (a `Vec` or a slice of them) after the agent's instructions:
    /// asks the model, makes the calls that it asks for, until it has its last word.
    ///
    /// # Errors
    /// What ended the loop: the model failed, or a tool in a way that ends a turn.
    pub async fn run_loop(&self, messages: impl Into<Vec<Message>>) -> Result<Finished, Failure> {
        self.host.run_loop(messages.into()).await
    }

    /// Runs code whose result is recorded, and returned without running it the next time. The id is the step's place in
    /// the agent's code, used once: a second step of it ends the turn with `duplicate_step_id`. After a crash before its
    /// result was recorded it runs again under the same key.
    ///
    /// ```
    /// # use turnmill::{AgentContext, AgentError, ToolError, agent::StepEffect};
    /// # async fn greet(ctx: AgentContext) -> Result<String, AgentError> {
    /// let page: String = ctx
    ///     .step("fetch", StepEffect::Read, |step| async move {
    ///         let response = step.http()?.get("https://example.org").send().await?;
    ///         Ok(response.text().await?)
    ///     })
    ///     .await?;
    /// # Ok(page)
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the code returned, recorded like a result; it is not tried again.
    pub fn step<'a, T, F>(
        &self,
        id: &str,
        effect: StepEffect,
        run: impl FnOnce(StepContext) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Failure>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, ToolError>> + Send + 'a,
    {
        self.run_step(StepKind::Step(id.into(), effect), run)
    }

    /// Like [`Self::step`] with the effect `write`, and runs at most once: its start is confirmed on the log before it
    /// runs, and found started after a crash it is not run again but fails with `unknown_outcome`. The same id again returns
    /// what was recorded; two at the same time end the turn with `concurrent_call_id`.
    ///
    /// # Errors
    /// As [`Self::step`], and `unknown_outcome`.
    pub fn once<'a, T, F>(
        &self,
        id: &str,
        run: impl FnOnce(StepContext) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Failure>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, ToolError>> + Send + 'a,
    {
        self.run_step(StepKind::Once(id.into()), run)
    }

    /// The step has its place before the future is polled.
    fn run_step<'a, T, F>(
        &self,
        kind: StepKind,
        run: impl FnOnce(StepContext) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Failure>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, ToolError>> + Send + 'a,
    {
        let run: StepRun<'a> = Box::new(|step| Box::pin(async move { Output::take(run(step).await?) }));
        let output = self.host.step(kind, run);
        Box::pin(async move {
            // Also right after it ran: what is returned is what will be returned the next time.
            output.await?.read().map_err(|error| {
                let wanted = std::any::type_name::<T>();
                let message = format!("what the step returned cannot be read back as {wanted}: {error}");
                Failure::new(code::INVALID_RESULT, message)
            })
        })
    }

    /// The time, recorded: the same each time that the code runs.
    ///
    /// # Errors
    /// Only after the turn is over.
    pub fn now(&self) -> BoxFuture<'static, Result<SystemTime, Failure>> {
        let host = Arc::clone(&self.host);
        let ms = self.value("now", move || host.now_ms());
        Box::pin(async move { ms.await.map(since_1970) })
    }

    /// A random number, recorded: the same each time that the code runs.
    ///
    /// # Errors
    /// Only after the turn is over.
    pub fn random(&self) -> BoxFuture<'static, Result<u64, Failure>> {
        self.value("random", random)
    }

    /// A random UUID (version 4), recorded: the same each time that the code runs.
    ///
    /// # Errors
    /// Only after the turn is over.
    pub fn uuid(&self) -> BoxFuture<'static, Result<String, Failure>> {
        self.value("uuid", || uuid::Uuid::new_v4().to_string())
    }

    fn value<T: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        kind: &'static str,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure>> {
        self.run_step(StepKind::Value(kind), |_| std::future::ready(Ok(make())))
    }

    /// Asks a person, and waits for the answer. A worker cannot wait for one: there it ends the turn with
    /// `tool_registration_error`, like the call of a tool that requires approval.
    ///
    /// # Errors
    /// None in a worker: it does not return.
    pub async fn interrupt(&self, question: impl Into<String>) -> Result<String, Failure> {
        self.host.interrupt(question.into()).await
    }
}

fn since_1970(ms: i64) -> SystemTime {
    let since = Duration::from_millis(ms.unsigned_abs());
    let at = match ms < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(since),
        false => SystemTime::UNIX_EPOCH.checked_add(since),
    };
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// 64 random bits, out of the 122 of a UUID: each of them has one of its own.
fn random() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    low ^ high.rotate_left(32)
}

/// A call of another agent, begun by [`AgentContext::call_agent`]; it takes its position, and begins, when it is awaited or
/// turned into a future.
#[must_use = "the agent is called when this is awaited"]
pub struct SubAgentCall {
    host: Arc<dyn Host>,
    asked: Asked,
}

impl SubAgentCall {
    /// The call stands at this id, as [`DirectCall::id`] says.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.asked.id = Some(id.into());
        self
    }
}

impl IntoFuture for SubAgentCall {
    type Output = Result<String, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.host.sub_agent(self.asked)
    }
}
