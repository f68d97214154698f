//! `TurnResult`: what comes out, one per turn.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::TurnStatus;
use crate::turn::{Failure, SessionId, TurnId, Usage, Used};

/// What came of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnResult {
    /// The turn.
    pub turn_id: TurnId,
    /// Its session; also the record's key.
    pub session_id: SessionId,
    /// The agent, where the turn named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// `completed`, `failed` or `cancelled`.
    pub status: TurnStatus,
    /// The model's last word; on a completed turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Why it failed; on a failed turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What the turn used.
    pub usage: ResultUsage,
    /// Where its events are. Absent where it has none, as a dead letter's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventSpan>,
}

/// What a turn used, steps read back from the log counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultUsage {
    /// Replies of the model.
    pub model_calls: u32,
    /// Calls of tools, the refused ones too.
    pub tool_calls: u32,
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// What the calls cost, an exact decimal in a text; absent where they cost nothing.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub cost: Decimal,
}

impl From<Used> for ResultUsage {
    fn from(used: Used) -> Self {
        Self {
            model_calls: used.model_calls,
            tool_calls: used.tool_calls,
            input_tokens: used.tokens.input_tokens,
            output_tokens: used.tokens.output_tokens,
            cost: used.cost,
        }
    }
}

impl From<ResultUsage> for Used {
    fn from(usage: ResultUsage) -> Self {
        let ResultUsage { model_calls, tool_calls, input_tokens, output_tokens, cost } = usage;
        Self {
            model_calls,
            tool_calls,
            tokens: Usage { input_tokens, output_tokens, ..Usage::default() },
            cost,
            ..Self::default()
        }
    }
}

/// Where a turn's events are: between two offsets of one partition, among events of other turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSpan {
    /// The partition of the events topic.
    pub partition: i32,
    /// The offset of the first event.
    pub first_offset: i64,
    /// The offset of the last event before the result was published.
    pub last_offset: i64,
}
