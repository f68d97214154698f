//! `ToolContext`: what a tool is given beside its arguments.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::{ToolError, http};
use crate::turn::{IdempotencyKey, Position, SessionId, TurnId};

/// What a team's tools share: a database pool, a client. One value of the team's own type.
#[derive(Clone)]
pub struct Deps(Arc<dyn Any + Send + Sync>);

impl Deps {
    /// Wraps the value.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Nothing.
    pub fn none() -> Self {
        Self::new(())
    }
}

/// What a tool is given beside its arguments. Cheap to clone.
#[derive(Clone)]
pub struct ToolContext {
    inner: Arc<Inner>,
    attempt: u32,
    cancelled: CancellationToken,
}

struct Inner {
    session: SessionId,
    turn: TurnId,
    agent: String,
    tool: String,
    key: IdempotencyKey,
    cause: Option<Position>,
    timeout: Duration,
    deps: Deps,
}

impl ToolContext {
    /// Begins a context by hand, for a test of a tool outside any turn.
    pub fn builder(session: SessionId, turn: TurnId, position: &Position) -> ToolContextBuilder {
        let key = IdempotencyKey::new(&session, &turn, position);
        ToolContextBuilder {
            inner: Inner {
                session,
                turn,
                agent: String::new(),
                tool: String::new(),
                key,
                cause: position.cause(),
                timeout: super::Spec::DEFAULT_TIMEOUT,
                deps: Deps::none(),
            },
            attempt: 1,
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
        self.inner.deps.0.downcast_ref().ok_or_else(|| {
            ToolError::fatal(format!(
                "the tool needs deps of the type {}; give them to App::deps",
                std::any::type_name::<T>()
            ))
        })
    }

    /// An HTTP client, shared by all tools of the process. Send [`Self::idempotency_key`] along as the
    /// `Idempotency-Key` header.
    pub fn http(&self) -> &reqwest::Client {
        http::shared()
    }

    /// The same call's next attempt, with a cancellation of its own below the call's; dropping the guard
    /// cancels it, so that work which outlives the attempt learns that nobody waits.
    pub(super) fn for_attempt(&self, attempt: u32) -> (Self, DropGuard) {
        let cancelled = self.cancelled.child_token();
        let context = Self { inner: Arc::clone(&self.inner), attempt, cancelled: cancelled.clone() };
        (context, cancelled.drop_guard())
    }
}

/// Builds a [`ToolContext`].
pub struct ToolContextBuilder {
    inner: Inner,
    attempt: u32,
    cancelled: CancellationToken,
}

impl ToolContextBuilder {
    /// The agent and the tool's name.
    #[must_use]
    pub fn names(mut self, agent: &str, tool: &str) -> Self {
        self.inner.agent = agent.into();
        self.inner.tool = tool.into();
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
        self.inner.timeout = timeout;
        self
    }

    /// What tells the tool that its result is no longer wanted.
    #[must_use]
    pub fn cancelled(mut self, token: CancellationToken) -> Self {
        self.cancelled = token;
        self
    }

    /// What the program gave to `App::deps`.
    #[must_use]
    pub fn deps(mut self, deps: Deps) -> Self {
        self.inner.deps = deps;
        self
    }

    /// The context.
    pub fn build(self) -> ToolContext {
        ToolContext { inner: Arc::new(self.inner), attempt: self.attempt, cancelled: self.cancelled }
    }
}
