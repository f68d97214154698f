//! The transcript of a turn, and what a model replies.

use serde::{Deserialize, Serialize};

use super::{Failure, Position};

/// One message of a transcript. Its JSON is part of the formats on the wire: replies are recorded
/// against the hash of the messages before them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// Instructions to the model.
    System {
        /// The text.
        content: String,
    },
    /// What a user said.
    User {
        /// The text.
        content: String,
    },
    /// What the model said.
    Assistant {
        /// The text, where there is any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        /// The tools it called.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// What a tool answered.
    Tool {
        /// The id of the call that it answers.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// The text that the model reads.
        content: String,
        /// Whether the call failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// A call in the transcript. Its id is unique in the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id, or the call's position where the provider's is missing or was used before.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, as the raw text that the model wrote.
    pub arguments: String,
}

/// One reply of a model, as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The text, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ReplyCall>,
    /// Why the model stopped.
    #[serde(default)]
    pub stop_reason: StopReason,
    /// What the reply cost.
    #[serde(default)]
    pub usage: Usage,
}

/// One call in a model's reply, as it came: nothing in it is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyCall {
    /// The provider's id of the call; may be missing, empty or a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name; may be empty or unknown.
    #[serde(default)]
    pub name: String,
    /// The arguments as raw text; may be malformed.
    #[serde(default)]
    pub arguments: String,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said everything.
    #[default]
    EndTurn,
    /// It waits for the results of its calls.
    ToolUse,
    /// It was cut off at its token limit: a call in such a reply may be incomplete, so none runs.
    MaxTokens,
}

/// What was used: by one reply, or by a whole turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
}

impl Usage {
    /// Tokens read and written.
    pub fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }
}

/// How a call ended: the tool's output as canonical JSON, or why it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// Where the call stands.
    pub position: Position,
    /// Canonical JSON, or a failure.
    pub result: Result<String, Failure>,
}

impl CallResult {
    /// What the model reads: a string as it is, any other value as its canonical JSON, a failure as
    /// its text (specification P, "A tool is an async function the model can call").
    pub fn text(&self) -> String {
        match &self.result {
            Ok(json) if json.starts_with('"') => serde_json::from_str(json).unwrap_or_else(|_| json.clone()),
            Ok(json) => json.clone(),
            Err(failure) => failure.message.clone(),
        }
    }
}
