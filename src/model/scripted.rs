//! The model that plays a script.
//!
//! It keeps no state: which reply is due follows from the number of the reply, so a turn that goes on
//! after a crash goes on in the script too.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Model, Request};
use crate::turn::{Failure, Reply, ReplyCall, StopReason, Usage, code};

/// The metadata field of a turn that carries its script, a JSON text.
pub(crate) const SCRIPT: &str = "script";

/// The replies of a turn, in order.
///
/// `{"replies": [{"calls": [{"name": "echo", "arguments": {"text": "hi"}}]}, {"text": "done"}]}`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    replies: Vec<ScriptedReply>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScriptedReply {
    text: Option<String>,
    calls: Vec<ScriptedCall>,
    /// Default: `tool_use` where there are calls, else `end_turn`.
    stop_reason: Option<StopReason>,
    delay_ms: u64,
    usage: Usage,
    error: Option<ScriptedError>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: String,
    /// A string is the raw text from the model, as malformed as one likes; any other JSON is its own text.
    #[serde(default)]
    arguments: Option<Box<RawValue>>,
}

impl ScriptedCall {
    fn raw_arguments(&self) -> String {
        let raw = self.arguments.as_deref().map_or("", RawValue::get);
        serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())
    }
}

/// The model fails at this reply: a text, or a code with one.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ScriptedError {
    Text(String),
    Coded { code: String, message: String },
}

impl Script {
    /// Reads a script's JSON.
    ///
    /// # Errors
    /// `invalid_script`: where and why it is none.
    pub fn parse(json: &str) -> Result<Self, Failure> {
        serde_json::from_str(json).map_err(|e| invalid(format!("the script is not a script: {e}")))
    }

    /// Reads a script's file.
    ///
    /// # Errors
    /// `invalid_script`: the file cannot be read, or where and why it is none.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let json = std::fs::read_to_string(path).map_err(|e| invalid(format!("{}: {e}", path.display())))?;
        Self::parse(&json).map_err(|e| invalid(format!("{}: {}", path.display(), e.message)))
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(code::INVALID_SCRIPT, message)
}

/// Plays the script in the turn's `metadata.script.AGENT`, or in `metadata.script`, which is for the turn's own agent; else
/// the agent's file.
#[derive(Debug, Clone, Default)]
pub struct Scripted {
    fallback: Option<Script>,
}

impl Scripted {
    /// With the agent's script, where it has one.
    pub fn new(fallback: Option<Script>) -> Self {
        Self { fallback }
    }

    fn reply(&self, request: &Request<'_>) -> Result<ScriptedReply, Failure> {
        let own = request.metadata.get(&format!("{SCRIPT}.{}", request.agent));
        let own = own.or_else(|| request.metadata.get(SCRIPT));
        let own = own.map(|json| Script::parse(json)).transpose()?;
        let script = own.as_ref().or(self.fallback.as_ref()).ok_or_else(|| {
            invalid(format!(
                "the turn has no metadata.{SCRIPT} and the agent {:?} has no script file",
                request.agent
            ))
        })?;
        let index = usize::try_from(request.reply).unwrap_or(usize::MAX);
        script.replies.get(index).cloned().ok_or_else(|| {
            Failure::new(
                code::SCRIPT_EXHAUSTED,
                format!("reply m{} was asked for; the script has {}", request.reply, script.replies.len()),
            )
        })
    }
}

#[async_trait]
impl Model for Scripted {
    async fn complete(&self, request: Request<'_>) -> Result<Reply, Failure> {
        let reply = self.reply(&request)?;
        if reply.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
        }
        match reply.error {
            Some(ScriptedError::Text(message)) => {
                return Err(Failure::new(code::MODEL_ERROR, message));
            }
            Some(ScriptedError::Coded { code, message }) => {
                return Err(Failure { code: code.into(), message, detail: None });
            }
            None => {}
        }
        let calls: Vec<_> = (reply.calls.into_iter())
            .map(|call| ReplyCall {
                arguments: call.raw_arguments(),
                id: call.id,
                name: call.name,
                extra: None,
            })
            .collect();
        let stop_reason = reply.stop_reason.unwrap_or(match calls.is_empty() {
            true => StopReason::EndTurn,
            false => StopReason::ToolUse,
        });
        Ok(Reply { text: reply.text, calls, stop_reason, usage: reply.usage, ..Reply::default() })
    }
}
