//! The request of Anthropic's Messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::Request;
use crate::model::provider::Asking;
use crate::model::provider::history::{self, object};
use crate::turn::Message;

/// How many tokens a reply may have where nothing else is said: the API wants a number.
const MAX_TOKENS: u32 = 8192;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    messages: Vec<Said<'a>>,
    #[serde(flatten)]
    options: BTreeMap<&'a String, &'a Value>,
}

#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
}

/// What comes before this, this with it, is to be kept for the next request.
#[derive(Clone, Copy, Serialize)]
struct Cache {
    #[serde(rename = "type")]
    kind: &'static str,
}

const CACHE: Cache = Cache { kind: "ephemeral" };

/// The body.
pub(in crate::model::provider) fn body(
    asking: &Asking<'_>,
    request: &Request<'_>,
) -> serde_json::Result<Vec<u8>> {
    let cache = asking.options.prompt_cache.then_some(CACHE);
    let mut tools: Vec<_> = request.tools.iter().map(|tool| tool.to_anthropic()).collect();
    let (mut system, mut messages) = (Vec::new(), Vec::<Said<'_>>::new());
    for message in request.messages {
        let (role, content) = match message {
            Message::System { content } => {
                system.extend(text(content));
                continue;
            }
            Message::User { content } => ("user", text(content).into_iter().collect()),
            Message::Assistant { content, thinking, tool_calls } => {
                let thoughts = thinking.iter().filter(|thought| thought.provider == asking.provider);
                let thoughts = thoughts.filter_map(|thought| match (&thought.redacted, &thought.signature) {
                    (Some(data), _) => Some(Content::RedactedThinking { data }),
                    // Without its signature it is refused.
                    (None, signature) => {
                        Some(Content::Thinking { thinking: &thought.text, signature: signature.as_deref()? })
                    }
                });
                let calls = tool_calls.iter().map(|call| Content::ToolUse {
                    id: history::id(&call.id),
                    name: history::name(&call.name),
                    input: object(&call.arguments),
                });
                (
                    "assistant",
                    thoughts.chain(content.as_deref().and_then(text)).chain(calls).collect::<Vec<_>>(),
                )
            }
            Message::Tool { tool_call_id, content, is_error, .. } => {
                let tool_use_id = history::id(tool_call_id);
                let is_error = *is_error;
                ("user", vec![Content::ToolResult { tool_use_id, content, is_error, cache_control: None }])
            }
        };
        match messages.last_mut() {
            // The results of a reply are one message, and so is what one side says in several.
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => messages.push(Said { role, content }),
        }
    }
    let keeps = keeps_thinking(request.messages, asking.provider);
    let options = asking.options.more.iter().filter(|(name, _)| keeps || *name != "thinking").collect();
    // What is the same in each request, then what is the same up to the last message.
    match (system.last_mut(), tools.last_mut()) {
        (Some(Content::Text { cache_control, .. }), _) => *cache_control = cache,
        (_, Some(Value::Object(tool))) if cache.is_some() => {
            tool.insert("cache_control".into(), serde_json::to_value(CACHE)?);
        }
        _ => {}
    }
    let last = messages.last_mut().and_then(|last| last.content.last_mut());
    if let Some(Content::Text { cache_control, .. } | Content::ToolResult { cache_control, .. }) = last {
        *cache_control = cache;
    }
    serde_json::to_vec(&Body {
        model: asking.model,
        max_tokens: asking.options.max_reply_tokens.unwrap_or(MAX_TOKENS),
        stream: true,
        temperature: asking.options.temperature,
        system,
        tools,
        messages,
        options,
    })
}

/// Whether the model may go on thinking: in the middle of a loop of calls it may not, where another provider has begun that.
fn keeps_thinking(messages: &[Message], provider: &str) -> bool {
    let of_loop = messages.iter().rev().take_while(|message| !matches!(message, Message::User { .. }));
    of_loop.into_iter().all(|message| match message {
        Message::Assistant { thinking, tool_calls, .. } => {
            tool_calls.is_empty() || thinking.iter().any(|thought| thought.provider == provider)
        }
        _ => true,
    })
}

/// A text of nothing but white space is refused.
fn text(text: &str) -> Option<Content<'_>> {
    (!text.trim().is_empty()).then_some(Content::Text { text, cache_control: None })
}
