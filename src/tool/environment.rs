//! `Environment`: what all calls of a process share.

use std::any::Any;
use std::sync::Arc;

use super::Cache;
use crate::turn::{ExternalIoMode, IdempotencyKey, Position, SessionId, TurnId};

/// What a team's tools share: a database pool, a client. One value of the team's own type.
#[derive(Clone)]
pub struct Deps(Arc<dyn Any + Send + Sync>);

impl Deps {
    /// Wraps the value.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// The value, if it has this type.
    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// Nothing.
    pub fn none() -> Self {
        Self::new(())
    }
}

/// What is told of a step while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The turn.
    pub turn: &'a TurnId,
    /// The agent.
    pub agent: &'a str,
    /// Where the step stands.
    pub position: &'a Position,
    /// The step's idempotency key.
    pub key: &'a IdempotencyKey,
    /// The tool that tells it; none: it is a model's text.
    pub tool: Option<&'a str>,
    /// Which run of the step it is, from 1.
    pub attempt: u32,
    /// What is told.
    pub text: &'a str,
}

/// Where status goes. It must neither block nor fail: a status is lost rather than waited for.
pub trait StatusSink: Send + Sync + 'static {
    /// Takes what is told of a step.
    fn emit(&self, told: Told<'_>);
}

/// What all calls of a process share. Cheap to clone.
#[derive(Clone)]
pub struct Environment {
    /// What the program gave to `App::deps`.
    pub deps: Deps,
    /// Where results and the tools' own values are kept.
    pub cache: Cache,
    /// Where status goes. None: nowhere.
    pub status: Option<Arc<dyn StatusSink>>,
    /// Whether calls may reach out.
    pub external_io_mode: ExternalIoMode,
}

impl Environment {
    /// No deps, a cache in memory, status that goes nowhere, and no I/O.
    pub fn new() -> Self {
        Self {
            deps: Deps::none(),
            cache: Cache::default(),
            status: None,
            external_io_mode: ExternalIoMode::Forbid,
        }
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}
