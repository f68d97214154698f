//! The request of OpenAI's Chat Completions.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::model::Request;
use crate::model::provider::Asking;
use crate::model::provider::history;
use crate::turn::{Message, ToolCall};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    messages: Vec<Said<'a>>,
    #[serde(flatten)]
    options: &'a serde_json::Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Said<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning_content: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Called<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct Called<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

impl<'a> From<&'a ToolCall> for Called<'a> {
    fn from(ToolCall { id, name, arguments }: &'a ToolCall) -> Self {
        // A text, in which there has to be an object: servers read it.
        let arguments = history::object(arguments).get().to_owned();
        let function = Function { name: history::name(name), arguments };
        Self { id: history::id(id), kind: "function", function }
    }
}

/// The body.
pub(in crate::model::provider) fn body(
    asking: &Asking<'_>,
    request: &Request<'_>,
) -> serde_json::Result<Vec<u8>> {
    let messages = request.messages.iter().map(|message| match message {
        Message::System { content } => Said::System { content },
        Message::User { content } => Said::User { content },
        Message::Assistant { content, thinking, tool_calls } => Said::Assistant {
            // It has to be there where there are no calls.
            content: content.as_deref().or(tool_calls.is_empty().then_some("")),
            reasoning_content: (thinking.iter().filter(|thought| thought.provider == asking.provider))
                .map(|thought| thought.text.as_str())
                .collect(),
            tool_calls: tool_calls.iter().map(Called::from).collect(),
        },
        Message::Tool { tool_call_id, content, .. } => {
            Said::Tool { tool_call_id: history::id(tool_call_id), content }
        }
    });
    let (max, new) = (asking.options.max_reply_tokens, has_new_limit(asking.model));
    serde_json::to_vec(&Body {
        model: asking.model,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        temperature: asking.options.temperature,
        max_tokens: max.filter(|_| !new),
        max_completion_tokens: max.filter(|_| new),
        tools: request.tools.iter().map(|tool| tool.to_openai()).collect(),
        messages: messages.collect(),
        options: &asking.options.more,
    })
}

/// OpenAI's reasoning models refuse the name of the limit that all other servers know.
fn has_new_limit(model: &str) -> bool {
    ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|family| model.starts_with(family))
}
