//! Anthropic's Messages.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the events of a stream |
//! | `request` | the request |

mod request;

pub(super) use request::body;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::draft::{self, Draft, Reader};
use super::fault::{Fault, Kind};
use crate::turn::{Reply, StopReason};

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    index: Option<u64>,
    content_block: Option<Block>,
    delta: Option<Delta>,
    message: Option<Message>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<Tokens>,
}

#[derive(Deserialize, Default)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

/// Where a block's deltas go.
#[derive(Debug, Clone, Copy)]
enum Part {
    Text,
    Thought(usize),
    /// A call, and whether its arguments are those that were said when it began: they count where none follow.
    Call(usize, bool),
    /// Nothing that a reply has.
    Other,
}

/// A block of the message.
struct Open {
    index: Option<u64>,
    part: Part,
    over: bool,
}

/// The events of a stream.
pub(super) struct Events {
    /// Whose thoughts they are.
    provider: String,
    draft: Draft,
    blocks: Vec<Open>,
    tokens: Tokens,
    begun: bool,
    stop: Option<StopReason>,
    refused: bool,
    /// Whether it stopped for its calls.
    wants_calls: bool,
    over: bool,
}

impl Events {
    pub(super) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            draft: Draft::default(),
            blocks: Vec::new(),
            tokens: Tokens::default(),
            begun: false,
            stop: None,
            refused: false,
            wants_calls: false,
            over: false,
        }
    }

    fn count(&mut self, said: Option<Tokens>) {
        let Some(said) = said else { return };
        let tokens = &mut self.tokens;
        for (ours, said) in [
            (&mut tokens.input_tokens, said.input_tokens),
            (&mut tokens.output_tokens, said.output_tokens),
            (&mut tokens.cache_creation_input_tokens, said.cache_creation_input_tokens),
            (&mut tokens.cache_read_input_tokens, said.cache_read_input_tokens),
        ] {
            *ours = said.or(*ours);
        }
    }

    fn begin(&mut self, index: Option<u64>, block: Block) -> Result<(), Fault> {
        if !self.begun || self.stop.is_some() {
            return Err(out_of_order("content_block_start"));
        }
        if index.is_some() && self.blocks.iter().any(|open| open.index == index) {
            return Err(Fault::stream("a block begins twice"));
        }
        let draft = &mut self.draft;
        let part = match block.kind.as_str() {
            "text" => {
                draft.part()?;
                draft.say(&block.text.unwrap_or_default())?;
                Part::Text
            }
            "thinking" => {
                let thought = draft.thought(&self.provider)?;
                draft.think(thought, |thought| {
                    thought.text = block.thinking.unwrap_or_default();
                    thought.signature = block.signature.filter(|signature| !signature.is_empty());
                    thought.text.len() + thought.signature.as_ref().map_or(0, String::len)
                })?;
                Part::Thought(thought)
            }
            "redacted_thinking" => {
                let thought = draft.thought(&self.provider)?;
                draft.think(thought, |thought| {
                    thought.redacted = block.data;
                    thought.redacted.as_ref().map_or(0, String::len)
                })?;
                Part::Other
            }
            "tool_use" => {
                let call = draft.call()?;
                draft.name(call, block.id.as_deref(), block.name.as_deref())?;
                let input = block.input.filter(|input| !matches!(input.get(), "{}" | "null"));
                if let Some(input) = &input {
                    draft.argue(call, input.get())?;
                }
                Part::Call(call, input.is_some())
            }
            _ => {
                draft.part()?;
                Part::Other
            }
        };
        self.blocks.push(Open { index, part, over: false });
        Ok(())
    }

    /// The block that an event is about; without an index it is the last one that is open.
    fn open(&mut self, index: Option<u64>) -> Result<&mut Open, Fault> {
        let is_it = |open: &&mut Open| !open.over && (index.is_none() || open.index == index);
        self.blocks
            .iter_mut()
            .rev()
            .find(is_it)
            .ok_or_else(|| Fault::stream("an event is of no block that is open"))
    }

    fn go_on(&mut self, index: Option<u64>, delta: Delta) -> Result<(), Fault> {
        let open = self.open(index)?;
        let part = open.part;
        let more = delta.partial_json.as_deref().is_some_and(|json| !json.is_empty());
        if let (Part::Call(_, at_start @ true), true) = (&mut open.part, more) {
            *at_start = false;
        }
        let kind = delta.kind.as_deref().unwrap_or_default();
        let draft = &mut self.draft;
        match (part, kind) {
            (Part::Text, "text_delta") => draft.say(&delta.text.unwrap_or_default()),
            (Part::Call(call, at_start), "input_json_delta") => {
                if at_start && more {
                    draft.unargue(call);
                }
                draft.argue(call, &delta.partial_json.unwrap_or_default())
            }
            (Part::Thought(thought), "thinking_delta") => {
                let more = delta.thinking.unwrap_or_default();
                draft.think(thought, |thought| {
                    thought.text.push_str(&more);
                    more.len()
                })
            }
            (Part::Thought(thought), "signature_delta") => {
                let more = delta.signature.unwrap_or_default();
                draft.think(thought, |thought| {
                    thought.signature.get_or_insert_default().push_str(&more);
                    more.len()
                })
            }
            (Part::Other, _) => Ok(()),
            (_, "text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta") => {
                Err(Fault::stream(format!("a {kind} is of a block of another type")))
            }
            // Of a type that is newer than this.
            _ => Ok(()),
        }
    }
}

fn out_of_order(kind: &str) -> Fault {
    Fault::stream(format!("{kind} comes where none can be"))
}

impl Reader for Events {
    fn event(&mut self, data: &str) -> Result<bool, Fault> {
        let event: Event = draft::parse(data)?;
        match event.kind.as_str() {
            "message_start" => {
                if std::mem::replace(&mut self.begun, true) {
                    return Err(out_of_order("message_start"));
                }
                self.count(event.message.and_then(|message| message.usage));
            }
            "content_block_start" => {
                let block =
                    event.content_block.ok_or_else(|| Fault::stream("a block begins without a type"))?;
                self.begin(event.index, block)?;
            }
            "content_block_delta" => {
                let delta = event.delta.ok_or_else(|| Fault::stream("a delta has nothing in it"))?;
                self.go_on(event.index, delta)?;
            }
            "content_block_stop" => self.open(event.index)?.over = true,
            "message_delta" => {
                if !self.begun {
                    return Err(out_of_order("message_delta"));
                }
                self.count(event.usage);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.refused = reason == "refusal";
                    self.wants_calls = reason == "tool_use";
                    self.stop = Some(match reason.as_str() {
                        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
                        _ => StopReason::EndTurn,
                    });
                }
            }
            "message_stop" => {
                self.over = true;
                return Ok(true);
            }
            "error" => return Err(Fault::said(200, data)),
            "message" => {
                return Err(Fault::new(
                    Kind::Request,
                    "the server answers without a stream, which is not read",
                ));
            }
            // `ping`, and what is newer than this.
            _ => {}
        }
        Ok(false)
    }

    fn text(&self) -> &str {
        self.draft.text()
    }

    fn end(self: Box<Self>) -> Result<Reply, Fault> {
        let (Some(stop), true) = (self.stop, self.over) else {
            return Err(Fault::stream("the stream has ended before the reply"));
        };
        if self.refused {
            return Err(Fault::new(
                Kind::ContentFilter,
                "the provider refused to answer (stop_reason refusal)",
            ));
        }
        let mut draft = self.draft;
        if self.wants_calls && !self.blocks.iter().any(|open| matches!(open.part, Part::Call(..))) {
            return Err(Fault::stream("the reply ended for its calls (tool_use), and has none"));
        }
        // Its input tokens are those that no cache had.
        let Tokens { input_tokens, output_tokens, cache_creation_input_tokens, cache_read_input_tokens } =
            self.tokens;
        let usage = &mut draft.usage;
        usage.cache_write_tokens = cache_creation_input_tokens.unwrap_or(0);
        usage.cache_read_tokens = cache_read_input_tokens.unwrap_or(0);
        let cached = usage.cache_write_tokens.saturating_add(usage.cache_read_tokens);
        usage.input_tokens = input_tokens.unwrap_or(0).saturating_add(cached);
        usage.output_tokens = output_tokens.unwrap_or(0);
        Ok(draft.reply(stop))
    }
}
