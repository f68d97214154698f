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
    /// The same, as other servers call it.
    reasoning: Option<String>,
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
    /// What the provider wants back with the call, such as a signature.
    extra_content: Option<Box<RawValue>>,
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
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<TokensDetails>,
}

#[derive(Deserialize)]
struct TokensDetails {
    cached_tokens: Option<u64>,
}

/// How servers say that they will not go on, in lower case.
const FILTERED: &[&str] =
    &["sensitive", "safety", "prohibited_content", "blocklist", "recitation", "spii", "refusal"];

/// The chunks of a stream.
pub(super) struct Chunks {
    provider: String,
    draft: Draft,
    thought: Option<usize>,
    /// Where the calls of these indices are, in the order in which they began.
    calls: Vec<(Option<u64>, usize)>,
    finish: Option<String>,
    /// Whether there was more after that: from a server that says it in each chunk, and then it is no end.
    goes_on: bool,
    done: bool,
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
            goes_on: false,
            done: false,
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
        // Where both are there they are the same.
        let (more, field) = match (delta.reasoning_content, delta.reasoning) {
            (Some(more), _) if !more.is_empty() => (more, None),
            (_, Some(more)) => (more, Some("reasoning")),
            _ => (String::new(), None),
        };
        if !more.is_empty() {
            let thought = match self.thought {
                Some(thought) => thought,
                None => *self.thought.insert(self.draft.thought(&self.provider)?),
            };
            self.draft.think(thought, |thought| {
                thought.text.push_str(&more);
                thought.field = field.map(Into::into);
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
        let says = arguments.as_deref().is_some_and(|json| !matches!(json.get(), "null" | "\"\""));
        let call = match self.known(delta.index, id, name, says) {
            Some(call) => call,
            None => {
                let call = self.draft.call()?;
                self.calls.push((delta.index, call));
                call
            }
        };
        self.draft.name(call, id, name)?;
        if let Some(extra) = delta.extra_content.filter(|extra| extra.get() != "null") {
            self.draft.extra(call, &self.provider, extra.get())?;
        }
        match arguments.as_deref().map(RawValue::get) {
            None | Some("null") => Ok(()),
            Some(text) if text.starts_with('"') => {
                let text: String = draft::parse(text)?;
                self.draft.argue(call, &text)
            }
            Some(json) => self.draft.argue(call, json),
        }
    }

    /// The call that a delta goes on with. An index decides; but there are servers that give every call the same one, or a
    /// new id to each piece, and others that give none, where the id does, and where that is missing too, whether the
    /// last call is whole.
    fn known(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>, says: bool) -> Option<usize> {
        let (id, name) = (id.filter(|id| !id.is_empty()), name.filter(|name| !name.is_empty()));
        let last = |fits: &dyn Fn(Option<u64>, usize) -> bool| {
            let found = self.calls.iter().rev().find(|(index, call)| fits(*index, *call));
            found.map(|(_, call)| *call)
        };
        let has_id = |call: usize| self.draft.at(call).is_some_and(|call| call.id.as_deref() == id);
        let call = match (index, id) {
            (Some(_), _) => last(&|known, _| known == index)?,
            (None, Some(_)) => {
                last(&|_, call| has_id(call)).or_else(|| last(&|_, call| self.is_open(call)))?
            }
            (None, None) => last(&|_, _| true)?,
        };
        let known = self.draft.at(call)?;
        let another = id.is_some() && known.id.is_some() && known.id.as_deref() != id;
        let is_new = match (index, name) {
            // One with an id of its own is another call, but a piece of one may have a new id too.
            (_, Some(_)) if another => true,
            (_, None) if another => self.is_whole(call),
            // The same index and no id to tell them apart.
            (Some(_), Some(_)) => id.is_none() && known.id.is_none() && says && self.is_whole(call),
            (None, Some(_)) => !known.name.is_empty() && self.is_whole(call),
            (_, None) => false,
        };
        (!is_new).then_some(call)
    }

    /// Whether a call has all its arguments, as far as can be seen.
    fn is_whole(&self, call: usize) -> bool {
        self.draft
            .at(call)
            .is_some_and(|call| !call.arguments.is_empty() && Arguments::parse(&call.arguments).is_ok())
    }

    /// Whether a call has no id yet.
    fn is_open(&self, call: usize) -> bool {
        self.draft.at(call).is_some_and(|call| call.id.is_none())
    }
}

impl Reader for Chunks {
    fn event(&mut self, data: &str) -> Result<bool, Fault> {
        if data.trim() == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        let chunk: Chunk = draft::parse(data)?;
        if chunk.error.is_some_and(|error| error.get() != "null") {
            return Err(Fault::said(200, data));
        }
        if let Some(tokens) = chunk.usage {
            let usage = &mut self.draft.usage;
            usage.input_tokens = tokens.prompt_tokens.unwrap_or(usage.input_tokens);
            // Some do not count what the model thought among what it wrote.
            let beyond = tokens.total_tokens.unwrap_or(0).saturating_sub(usage.input_tokens);
            usage.output_tokens = tokens.completion_tokens.unwrap_or(usage.output_tokens).max(beyond);
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
            self.goes_on |= self.finish.is_some() && says;
            self.delta(delta)?;
            if let Some(finish) = choice.finish_reason.filter(|finish| !finish.is_empty()) {
                self.finish = Some(finish);
            }
        }
        Ok(false)
    }

    fn text(&self) -> &str {
        self.draft.text()
    }

    fn end(self: Box<Self>) -> Result<Reply, Fault> {
        // That the reply is whole is what this says; some servers say nothing after it.
        let Some(finish) = self.finish.filter(|_| self.done || !self.goes_on) else {
            return Err(Fault::stream("the stream has ended before the reply"));
        };
        if self.refused {
            return Err(Fault::new(Kind::ContentFilter, "the model refused to answer"));
        }
        let no_calls = self.calls.is_empty();
        match finish.to_ascii_lowercase().as_str() {
            "tool_calls" | "function_call" | "tool_use" if no_calls => {
                Err(Fault::stream(format!("the reply ended for its calls ({finish}), and has none")))
            }
            "stop" | "tool_calls" | "function_call" | "tool_use" | "eos" | "eos_token" | "stop_sequence"
            | "end_turn" => Ok(self.draft.reply(StopReason::EndTurn)),
            "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => {
                Ok(self.draft.reply(StopReason::MaxTokens))
            }
            filter if filter.contains("content_filter") || FILTERED.contains(&filter) => Err(Fault::new(
                Kind::ContentFilter,
                format!("the provider cut the reply off (finish_reason {finish})"),
            )),
            // Whatever it is, it is not the end that a reply has.
            _ => Err(Fault::stream(format!("the reply ended with finish_reason {finish}"))),
        }
    }
}
