//! `ToolContext`: what a tool is given beside its arguments.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::direct::{Alone, Caller};
use super::{Deps, Environment, Told, ToolCache, ToolError, http};
use crate::turn::{ExternalIoMode, IdempotencyKey, Position, SessionId, TurnId};

/// What a tool is given beside its arguments. Cheap to clone.
#[derive(Clone)]
pub struct ToolContext {
    inner: Arc<Inner>,
    attempt: u32,
    /// What runs the calls of this attempt.
    caller: Arc<dyn Caller>,
    cancelled: CancellationToken,
}

struct Inner {
    session: SessionId,
    turn: TurnId,
    agent: String,
    tool: String,
    key: IdempotencyKey,
    position: Position,
    cause: Option<Position>,
    timeout: Duration,
    environment: Environment,
}

impl ToolContext {
    /// Begins a context by hand, for a test of a tool outside any turn. Nothing may reach out of it until
    /// [`ToolContextBuilder::external_io_mode`] says so.
    pub fn builder(session: SessionId, turn: TurnId, position: &Position) -> ToolContextBuilder {
        ToolContextBuilder {
            session,
            turn,
            position: position.clone(),
            agent: String::new(),
            tool: String::new(),
            timeout: super::Spec::DEFAULT_TIMEOUT,
            environment: None,
            attempt: 1,
            caller: None,
            cancelled: CancellationToken::new(),
        }
    }

    /// The session of the turn.
    pub fn session_id(&self) -> &str {
        self.inner.session.as_str()
    }

    /// The turn.
    pub fn turn_id(&self) -> &str {
        self.inner.turn.as_str()
    }

    /// The agent whose model made the call.
    pub fn agent(&self) -> &str {
        &self.inner.agent
    }

    /// The tool's own name.
    pub fn tool(&self) -> &str {
        &self.inner.tool
    }

    /// The same for every run of this call, on whichever worker: pass it on to the outside world, so that
    /// a second run can be told from a second call. Printable ASCII, at most 255 bytes.
    pub fn idempotency_key(&self) -> &str {
        self.inner.key.as_str()
    }

    /// Which run of the call this is, from 1; retries and reruns after a crash count.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Where the call stands in its turn.
    pub fn position(&self) -> &str {
        self.inner.position.as_str()
    }

    /// The position of the model's reply that made the call.
    pub fn cause(&self) -> Option<&str> {
        self.inner.cause.as_ref().map(Position::as_str)
    }

    /// How long this attempt may take.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Whether the call's result is no longer wanted: its time is over, or the worker gives the turn up.
    /// Poll it in long loops.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Waits until the call's result is no longer wanted. Cancel safe.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// What the program gave to `App::deps`.
    ///
    /// # Errors
    /// Fatal: the program gave a value of another type, or none.
    pub fn deps<T: Any + Send + Sync>(&self) -> Result<&T, ToolError> {
        self.inner.environment.deps.get().ok_or_else(|| {
            ToolError::fatal(format!(
                "the tool needs deps of the type {}; give them to App::deps",
                std::any::type_name::<T>()
            ))
        })
    }

    /// An HTTP client, shared by all tools of the process. Send [`Self::idempotency_key`] along as the
    /// `Idempotency-Key` header.
    ///
    /// # Errors
    /// Fatal: the call may not reach out ([`Self::external_io_mode`]), or no client can be made here.
    pub fn http(&self) -> Result<&reqwest::Client, ToolError> {
        http::client(self.external_io_mode())
    }

    /// Whether the call may reach out of the process, and whether its result is recorded: a worker's calls always may,
    /// and are.
    pub fn external_io_mode(&self) -> ExternalIoMode {
        self.inner.environment.external_io_mode
    }

    /// Tells whoever watches the turn how the call is getting on: a record on the status topic, which nobody waits for.
    /// It waits for no broker and never fails; under load, or without brokers, it is lost. Longer texts are cut at 16 KiB.
    pub fn emit_status(&self, text: impl AsRef<str>) {
        if let Some(status) = &self.inner.environment.status {
            let Inner { session, turn, agent, position, key, tool, .. } = &*self.inner;
            let (tool, attempt, text) = (Some(tool.as_str()), self.attempt, text.as_ref());
            status.emit(Told { session, turn, agent, position, key, tool, attempt, text });
        }
    }

    /// What the tool keeps for its next calls.
    pub fn cache(&self) -> ToolCache {
        ToolCache::new(self.inner.environment.cache.clone(), &self.inner.tool)
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.inner.session
    }

    pub(crate) fn turn(&self) -> &TurnId {
        &self.inner.turn
    }

    pub(crate) fn at(&self) -> &Position {
        &self.inner.position
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    pub(super) fn caller(&self) -> Arc<dyn Caller> {
        Arc::clone(&self.caller)
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.inner.environment
    }

    /// The same call's next attempt, with a cancellation of its own below the call's; dropping the guard
    /// cancels it, so that work which outlives the attempt learns that nobody waits.
    pub(super) fn for_attempt(&self, attempt: u32) -> (Self, DropGuard) {
        let cancelled = self.cancelled.child_token();
        let caller = self.caller.again();
        let context = Self { inner: Arc::clone(&self.inner), attempt, caller, cancelled: cancelled.clone() };
        (context, cancelled.drop_guard())
    }
}

/// Builds a [`ToolContext`].
pub struct ToolContextBuilder {
    session: SessionId,
    turn: TurnId,
    position: Position,
    agent: String,
    tool: String,
    timeout: Duration,
    environment: Option<Environment>,
    attempt: u32,
    caller: Option<Arc<dyn Caller>>,
    cancelled: CancellationToken,
}

impl ToolContextBuilder {
    /// The agent and the tool's name.
    #[must_use]
    pub fn names(mut self, agent: &str, tool: &str) -> Self {
        self.agent = agent.into();
        self.tool = tool.into();
        self
    }

    /// The number of the attempt, from 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The limit for one attempt.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What tells the tool that its result is no longer wanted.
    #[must_use]
    pub fn cancelled(mut self, token: CancellationToken) -> Self {
        self.cancelled = token;
        self
    }

    /// What all calls of a process share: deps, cache, status and I/O mode.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// What runs the calls that the tool makes itself.
    #[must_use]
    pub(crate) fn caller(mut self, caller: Arc<dyn Caller>) -> Self {
        self.caller = Some(caller);
        self
    }

    /// What the program gave to `App::deps`.
    #[must_use]
    pub fn deps(mut self, deps: Deps) -> Self {
        self.environment.get_or_insert_default().deps = deps;
        self
    }

    /// Whether the call may reach out.
    #[must_use]
    pub fn external_io_mode(mut self, mode: ExternalIoMode) -> Self {
        self.environment.get_or_insert_default().external_io_mode = mode;
        self
    }

    /// The context.
    pub fn build(self) -> ToolContext {
        let inner = Inner {
            key: IdempotencyKey::new(&self.session, &self.turn, &self.position),
            session: self.session,
            turn: self.turn,
            agent: self.agent,
            tool: self.tool,
            cause: self.position.cause(),
            position: self.position,
            timeout: self.timeout,
            environment: self.environment.unwrap_or_default(),
        };
        ToolContext {
            inner: Arc::new(inner),
            attempt: self.attempt,
            // Without a turn around it.
            caller: self.caller.unwrap_or_else(|| Arc::new(Alone::default())),
            cancelled: self.cancelled,
        }
    }
}
