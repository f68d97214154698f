//! The request of OpenAI's Chat Completions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::Request;
use crate::model::provider::Asking;
use crate::model::provider::history;
use crate::turn::{Message, Thinking, ToolCall};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
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
    options: BTreeMap<&'a String, &'a Value>,
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
        content: &'a str,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning_content: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning: String,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

fn thoughts(thinking: &[Thinking], asking: &Asking<'_>, field: Option<&str>) -> String {
    let own = |thought: &&Thinking| thought.provider == asking.provider && thought.field.as_deref() == field;
    thinking.iter().filter(own).map(|thought| thought.text.as_str()).collect()
}

impl<'a> Called<'a> {
    fn new(ToolCall { id, name, arguments, extra }: &'a ToolCall, asking: &Asking<'_>) -> Self {
        // A text, in which there has to be an object: servers read it.
        let arguments = history::object(arguments).get().to_owned();
        let function = Function { name: history::name(name), arguments };
        let own = extra.as_ref().filter(|extra| extra.provider == asking.provider);
        let extra_content = own.and_then(|extra| RawValue::from_string(extra.json.clone()).ok());
        Self { id: history::id_of_any_form(id), kind: "function", function, extra_content }
    }
}

const STREAM_OPTIONS: &str = "stream_options";
const NEW_LIMIT: &str = "max_completion_tokens";

/// The body.
pub(in crate::model::provider) fn body(
    asking: &Asking<'_>,
    request: &Request<'_>,
) -> serde_json::Result<Vec<u8>> {
    let messages = request.messages.iter().map(|message| match message {
        Message::System { content } => Said::System { content },
        Message::User { content } => Said::User { content },
        Message::Assistant { content, thinking, tool_calls } => Said::Assistant {
            // An empty one where there is none: some servers take no null.
            content: content.as_deref().unwrap_or_default(),
            reasoning_content: thoughts(thinking, asking, None),
            reasoning: thoughts(thinking, asking, Some("reasoning")),
            tool_calls: tool_calls.iter().map(|call| Called::new(call, asking)).collect(),
        },
        Message::Tool { tool_call_id, content, .. } => {
            Said::Tool { tool_call_id: history::id_of_any_form(tool_call_id), content }
        }
    });
    let options = &asking.options.more;
    // Some servers do not know it, or know the limit by another name: an agent's own fields go before, and an empty one is left
    // out.
    let stream_options = match options.get(STREAM_OPTIONS) {
        None => Some(serde_json::json!({"include_usage": true})),
        Some(own) => Some(own.clone()).filter(|own| own.as_object().is_none_or(|own| !own.is_empty())),
    };
    let new = has_new_limit(asking.model);
    let max = asking.options.max_reply_tokens.filter(|_| !options.contains_key(NEW_LIMIT));
    let options = options.iter().filter(|(name, _)| *name != STREAM_OPTIONS).collect();
    serde_json::to_vec(&Body {
        model: asking.model,
        stream: true,
        stream_options,
        temperature: asking.options.temperature,
        max_tokens: max.filter(|_| !new),
        max_completion_tokens: max.filter(|_| new),
        tools: request.tools.iter().map(|tool| tool.to_openai()).collect(),
        messages: messages.collect(),
        options,
    })
}

/// OpenAI's reasoning models refuse the name of the limit that all other servers know.
fn has_new_limit(model: &str) -> bool {
    ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|family| model.starts_with(family))
}
