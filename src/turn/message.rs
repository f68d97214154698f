//! The transcript of a turn, and what a model replies.

use rust_decimal::Decimal;
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
        /// What it thought before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        thinking: Vec<Thinking>,
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

impl Message {
    /// The message as canonical JSON has it: what transcripts are hashed from.
    pub(super) fn canonical(&self) -> impl Serialize + '_ {
        match self {
            Self::System { content } => Canonical::said(content, "system"),
            Self::User { content } => Canonical::said(content, "user"),
            Self::Assistant { content, thinking, tool_calls } => {
                let tool_calls = tool_calls.iter().map(CanonicalCall::of).collect();
                Canonical { content: content.as_deref(), thinking, tool_calls, ..Canonical::of("assistant") }
            }
            Self::Tool { tool_call_id, name, content, is_error } => Canonical {
                content: Some(content),
                is_error: *is_error,
                name: Some(name),
                tool_call_id: Some(tool_call_id),
                ..Canonical::of("tool")
            },
        }
    }
}

/// A message, with its fields in the order of their names.
#[derive(Serialize)]
struct Canonical<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    role: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    thinking: &'a [Thinking],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CanonicalCall<'a>>,
}

/// The same of a call in it.
#[derive(Serialize)]
struct CanonicalCall<'a> {
    arguments: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a Extra>,
    id: &'a str,
    name: &'a str,
}

impl<'a> CanonicalCall<'a> {
    fn of(ToolCall { id, name, arguments, extra }: &'a ToolCall) -> Self {
        Self { arguments, extra: extra.as_ref(), id, name }
    }
}

impl<'a> Canonical<'a> {
    fn of(role: &'static str) -> Self {
        Self {
            content: None,
            is_error: false,
            name: None,
            role,
            thinking: &[],
            tool_call_id: None,
            tool_calls: Vec::new(),
        }
    }

    fn said(content: &'a str, role: &'static str) -> Self {
        Self { content: Some(content), ..Self::of(role) }
    }
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
    /// What the provider wants back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Extra>,
}

/// What a provider sends with a call, and wants back with it: a signature. The fields are in the order of their names: they
/// are hashed as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// As the JSON text that it came as.
    pub json: String,
    /// The provider; nobody else is sent it.
    pub provider: String,
}

/// What a model thought before it spoke, as its provider wants it back. The fields are in the order of their names: they
/// are hashed as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    /// The field that its provider sent it in, where that is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The provider that it came from; nobody else is sent it.
    pub provider: String,
    /// In place of text and signature: what the provider has encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
    /// The provider's signature over the text, where it makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Who made a reply, and what it took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The model that answered, as the agent names it.
    pub model: String,
    /// How often models were asked, those that were given up counted.
    pub attempts: u32,
    /// What the provider calls the request that it answered, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What the reply cost, an exact decimal in a text; absent where the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Decimal>,
}

/// One reply of a model, as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The text, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What the model thought before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<Thinking>,
    /// The calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ReplyCall>,
    /// Why the model stopped.
    #[serde(default)]
    pub stop_reason: StopReason,
    /// The tokens of the reply.
    #[serde(default)]
    pub usage: Usage,
    /// Who made it; absent where its model does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Box<Served>>,
}

impl Reply {
    /// What it cost, where that is known.
    pub fn cost(&self) -> Decimal {
        self.served.as_ref().and_then(|served| served.cost).unwrap_or_default()
    }
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
    /// What the provider wants back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Extra>,
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
    /// Of those that it read: what its provider had kept from an earlier request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// Of those that it read: what its provider keeps from now on.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
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
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
    }
}

impl std::ops::SubAssign for Usage {
    fn sub_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_sub(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_sub(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_sub(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_sub(other.cache_write_tokens);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::canonical;
    use proptest::prelude::*;

    fn message() -> impl Strategy<Value = Message> {
        let text = || prop_oneof![any::<String>(), Just(String::new()), "[a-z\"\\\\\n{}é😀]*"];
        let extra = prop::option::of((text(), text()).prop_map(|(json, provider)| Extra { json, provider }));
        let call = (text(), text(), text(), extra).prop_map(|(id, name, arguments, extra)| ToolCall {
            id,
            name,
            arguments,
            extra,
        });
        let maybe = || prop::option::of(text());
        let thinking = (maybe(), text(), maybe(), maybe(), text()).prop_map(
            |(field, provider, redacted, signature, text)| Thinking {
                field,
                provider,
                redacted,
                signature,
                text,
            },
        );
        prop_oneof![
            text().prop_map(|content| Message::System { content }),
            text().prop_map(|content| Message::User { content }),
            (
                prop::option::of(text()),
                prop::collection::vec(thinking, 0..3),
                prop::collection::vec(call, 0..4)
            )
                .prop_map(|(content, thinking, tool_calls)| Message::Assistant {
                    content,
                    thinking,
                    tool_calls
                }),
            (text(), text(), text(), any::<bool>()).prop_map(|(tool_call_id, name, content, is_error)| {
                Message::Tool { tool_call_id, name, content, is_error }
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_that_of_the_message(message in message()) {
            let written = serde_json::to_string(&message.canonical()).unwrap();
            prop_assert_eq!(written, canonical::of(&message).unwrap());
        }
    }
}
