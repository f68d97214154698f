//! OpenAI's Chat Completions, and what the many servers that follow them make of it.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the chunks of a stream |
//! | `request` | the request |

mod request;

pub(super) use request::body;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::draft::{self, Draft, Reader};
use super::fault::{Fault, Kind};
use crate::turn::{Arguments, Reply, StopReason};

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    usage: Option<Tokens>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: Option<u64>,
    delta: Option<Delta>,
    /// In place of a delta, from a server that does not stream.
    message: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct Delta {
    content: Option<Said>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

/// A text, or its parts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Text(String),
    Parts(Vec<SaidPart>),
}

#[derive(Deserialize)]
struct SaidPart {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize, Default)]
struct Function {
    name: Option<String>,
    /// A text; from a server that has parsed them, JSON.
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<TokensDetails>,
}

#[derive(Deserialize)]
struct TokensDetails {
    cached_tokens: Option<u64>,
}

/// The chunks of a stream.
pub(super) struct Chunks {
    provider: String,
    draft: Draft,
    thought: Option<usize>,
    /// Where the calls of these indices are, in the order in which they began.
    calls: Vec<(Option<u64>, usize)>,
    finish: Option<String>,
    refused: bool,
}

impl Chunks {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            draft: Draft::default(),
            thought: None,
            calls: Vec::new(),
            finish: None,
            refused: false,
        }
    }

    fn delta(&mut self, delta: Delta) -> Result<(), Fault> {
        if let Some(refusal) = delta.refusal.filter(|refusal| !refusal.is_empty()) {
            self.refused = true;
            self.draft.say(&refusal)?;
        }
        match delta.content {
            Some(Said::Text(text)) => self.draft.say(&text)?,
            Some(Said::Parts(parts)) => {
                for part in parts.into_iter().filter(|part| part.kind.as_deref() == Some("text")) {
                    self.draft.say(&part.text.unwrap_or_default())?;
                }
            }
            None => {}
        }
        if let Some(more) = delta.reasoning_content.filter(|more| !more.is_empty()) {
            let thought = match self.thought {
                Some(thought) => thought,
                None => *self.thought.insert(self.draft.thought(&self.provider)?),
            };
            self.draft.think(thought, |thought| {
                thought.text.push_str(&more);
                more.len()
            })?;
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.call(call)?;
        }
        Ok(())
    }

    fn call(&mut self, delta: CallDelta) -> Result<(), Fault> {
        let Function { name, arguments } = delta.function.unwrap_or_default();
        let (id, name) = (delta.id.as_deref(), name.as_deref());
        let call = match self.known(delta.index, id, name) {
            Some(call) => call,
            None => {
                let call = self.draft.call()?;
                self.calls.push((delta.index, call));
                call
            }
        };
        self.draft.name(call, id, name)?;
        match arguments.as_deref().map(RawValue::get) {
            None | Some("null") => Ok(()),
            Some(text) if text.starts_with('"') => {
                let text: String = draft::parse(text)?;
                self.draft.argue(call, &text)
            }
            Some(json) => self.draft.argue(call, json),
        }
    }

    /// The call that a delta goes on with. An index decides; but there are servers that give every call the same one, and
    /// others that give none, where the id does, and where that is missing too, whether the last call is complete.
    fn known(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let same_index = self.calls.iter().rev().find(|(known, _)| *known == index);
        let (_, call) = same_index.copied()?;
        let known = self.draft.at(call)?;
        let (id, name) = (id.filter(|id| !id.is_empty()), name.filter(|name| !name.is_empty()));
        let is_new = match (id, known.id.as_deref()) {
            (Some(id), Some(known)) if id != known => true,
            _ if index.is_some() => false,
            // Of two without an index the second one begins with a name, and not before the first is complete.
            _ => name.is_some() && Arguments::parse(&known.arguments).is_ok() && !known.name.is_empty(),
        };
        (!is_new).then_some(call)
    }
}

impl Reader for Chunks {
    fn event(&mut self, data: &str) -> Result<bool, Fault> {
        if data.trim() == "[DONE]" {
            return Ok(true);
        }
        let chunk: Chunk = draft::parse(data)?;
        if chunk.error.is_some_and(|error| error.get() != "null") {
            return Err(Fault::said(200, data));
        }
        if let Some(tokens) = chunk.usage {
            let usage = &mut self.draft.usage;
            usage.input_tokens = tokens.prompt_tokens.unwrap_or(usage.input_tokens);
            usage.output_tokens = tokens.completion_tokens.unwrap_or(usage.output_tokens);
            let cached = tokens.prompt_tokens_details.and_then(|details| details.cached_tokens);
            usage.cache_read_tokens = cached.unwrap_or(usage.cache_read_tokens);
        }
        // Of several answers, the first is the one that was asked for.
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            let delta = choice.delta.or(choice.message).unwrap_or_default();
            let says = delta
                .content
                .as_ref()
                .is_some_and(|said| !matches!(said, Said::Text(text) if text.is_empty()))
                || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
            if self.finish.is_some() && says {
                return Err(Fault::stream("there is more of the reply after its end"));
            }
            self.delta(delta)?;
            if let Some(finish) = choice.finish_reason.filter(|finish| !finish.is_empty()) {
                self.finish.get_or_insert(finish);
            }
        }
        Ok(false)
    }

    fn end(self: Box<Self>) -> Result<Reply, Fault> {
        // That the reply is whole is what this says; some servers say nothing after it.
        let Some(finish) = self.finish else {
            return Err(Fault::stream("the stream has ended before the reply"));
        };
        match finish.as_str() {
            "content_filter" => Err(Fault::new(
                Kind::ContentFilter,
                "the provider cut the reply off (finish_reason content_filter)",
            )),
            _ if self.refused => Err(Fault::new(Kind::ContentFilter, "the model refused to answer")),
            "length" => Ok(self.draft.reply(StopReason::MaxTokens)),
            "error" => {
                Err(Fault::new(Kind::Overload, "the provider failed in the middle (finish_reason error)"))
            }
            _ => Ok(self.draft.reply(StopReason::EndTurn)),
        }
    }
}
