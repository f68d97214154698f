//! What a turn is, and everything about it that is decided rather than done.
//!
//! Pure code: no I/O, no clock, no randomness, no threads. Time and ids come in as arguments, so the
//! same input always gives the same decision, on the first run and on every rerun from the log.
//!
//! | file | holds |
//! | --- | --- |
//! | `id` | turn and session ids |
//! | `position` | where a step stands in its turn |
//! | `counters` | how steps are counted into positions |
//! | `key` | the idempotency key of a step |
//! | `canonical` | canonical JSON, and the hash of it |
//! | `message` | the transcript and what a model replies |
//! | `arguments` | what a model sent as a call's arguments, judged |
//! | `definition` | what a model is told about a tool |
//! | `call` | one call of a tool, judged before anything runs |
//! | `effect` | what a step of an agent's own does to the world |
//! | `step` | run, rerun, return or refuse: the answer for one step |
//! | `engine` | the agent loop: call the model, call tools, finish |
//! | `io_mode` | whether a tool may reach out |
//! | `budget` | how much a turn may use, and has used |
//! | `code` | the stable codes of failures |

mod arguments;
mod budget;
mod call;
pub mod canonical;
pub mod code;
mod counters;
mod definition;
mod effect;
mod engine;
mod id;
mod io_mode;
mod key;
mod message;
mod position;
mod step;

pub use arguments::Arguments;
pub(crate) use budget::exact_cost;
pub use budget::{Budget, Ledger, Limits, Overdrawn, Used};
pub use call::{Call, CallPlan};
pub use canonical::Hash;
pub use counters::Counters;
pub use definition::Definition;
pub use effect::StepEffect;
pub use engine::{Engine, Next, OnToolError, Outcome, Setup, transcript_hash};
pub use id::{InvalidId, SessionId, TurnId};
pub use io_mode::ExternalIoMode;
pub use key::IdempotencyKey;
pub use message::{
    CallResult, Extra, Message, Reply, ReplyCall, Served, StopReason, Thinking, ToolCall, Usage,
};
pub use position::Position;
pub use step::{Decision, Recorded, decide, step_input};

use std::borrow::Cow;

/// Why something failed: a stable code for machines and a text for people.
///
/// On the wire it is the `error` of an event or a result. The codes are listed in [`code`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// A stable `snake_case` code.
    pub code: Cow<'static, str>,
    /// What happened, where and why, for a person; of a call, for the model.
    pub message: String,
    /// What the operator reads beside it, where that is something else. On events, in logs and on dead letters; never
    /// in a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Failure {
    /// A failure with this code and text.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Cow::Borrowed(code), message: message.into(), detail: None }
    }

    /// What the operator reads.
    pub fn for_operator(&self) -> &str {
        self.detail.as_deref().unwrap_or(&self.message)
    }

    /// The failure without what only the operator may read.
    #[must_use]
    pub fn without_detail(self) -> Self {
        Self { detail: None, ..self }
    }
}
