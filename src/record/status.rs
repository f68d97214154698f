//! `StatusUpdate`: how a step is getting on. Ephemeral: nothing depends on it, and any of it may be missing.

use serde::{Deserialize, Serialize};

use crate::turn::{IdempotencyKey, Position, SessionId, TurnId};

/// What a status is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatusType {
    /// A tool tells how its call is getting on.
    #[serde(rename = "tool:status")]
    ToolStatus,
    /// A piece of a reply's text while it is made.
    #[serde(rename = "model:text")]
    ModelText,
}

/// How a call is getting on: the value of a record on the status topic, whose key is the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: StatusType,
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The agent.
    pub agent: String,
    /// Where the call stands.
    pub position: Position,
    /// The call's idempotency key.
    pub idempotency_key: IdempotencyKey,
    /// The tool; absent on a model's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Which run of the call this is, from 1; of a reply which attempt: what was told of an earlier one is void.
    pub attempt: u32,
    /// What the tool says, or the next piece of the text; cut at [`StatusUpdate::MAX_TEXT`] bytes.
    pub text: String,
    /// When it was said, in milliseconds since 1970 UTC by the worker's clock.
    pub at_ms: i64,
}

impl StatusUpdate {
    /// The longest text, in bytes.
    pub const MAX_TEXT: usize = 16 << 10;

    /// As much of a text as a status may have.
    pub fn cut(text: &str) -> &str {
        text.get(..text.floor_char_boundary(Self::MAX_TEXT)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(StatusUpdate::cut("short"), "short");
        let long = format!("a{}", "ü".repeat(StatusUpdate::MAX_TEXT));
        assert_eq!(StatusUpdate::cut(&long).len(), StatusUpdate::MAX_TEXT - 1);
    }
}
