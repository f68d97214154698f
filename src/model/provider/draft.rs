//! A reply as it grows out of a stream: bounded, whatever the stream says.

use serde::de::DeserializeOwned;

use super::fault::Fault;
use crate::turn::{Extra, Reply, ReplyCall, StopReason, Thinking, Usage};

/// How large a reply may become, in bytes of text, thoughts, names, ids and arguments.
pub(super) const MAX_REPLY: usize = 8 << 20;

/// How many parts a reply may have: calls, and blocks of text and thoughts.
pub(super) const MAX_PARTS: usize = 1024;

/// Reads the events of one stream, and makes the reply of them.
pub(super) trait Reader: Send {
    /// Takes in the data of an event. True: it was the last one.
    ///
    /// # Errors
    /// The event cannot be part of a reply, or says that there will be none. Nothing of the stream counts then.
    fn event(&mut self, data: &str) -> Result<bool, Fault>;

    /// The text so far.
    fn text(&self) -> &str;

    /// The reply, once the stream is over.
    ///
    /// # Errors
    /// The stream has no end, or there is no reply in it.
    fn end(self: Box<Self>) -> Result<Reply, Fault>;
}

/// What is there of a reply so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    text: String,
    thinking: Vec<Thinking>,
    calls: Vec<ReplyCall>,
    /// What is used; each number as it was last said.
    pub(super) usage: Usage,
    size: usize,
    parts: usize,
}

impl Draft {
    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.size = self.size.saturating_add(bytes);
        match self.size > MAX_REPLY {
            true => Err(Fault::stream(format!("the reply is larger than {MAX_REPLY} bytes"))),
            false => Ok(()),
        }
    }

    /// One part more.
    pub(super) fn part(&mut self) -> Result<(), Fault> {
        self.parts += 1;
        match self.parts > MAX_PARTS {
            true => Err(Fault::stream(format!("the reply has more than {MAX_PARTS} parts"))),
            false => Ok(()),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), Fault> {
        self.grow(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Begins a thought of this provider's.
    pub(super) fn thought(&mut self, provider: &str) -> Result<usize, Fault> {
        self.part()?;
        self.thinking.push(Thinking { provider: provider.into(), ..Thinking::default() });
        Ok(self.thinking.len() - 1)
    }

    /// Goes on with a thought.
    pub(super) fn think(
        &mut self,
        thought: usize,
        add: impl FnOnce(&mut Thinking) -> usize,
    ) -> Result<(), Fault> {
        let Some(thought) = self.thinking.get_mut(thought) else { return Ok(()) };
        let bytes = add(thought);
        self.grow(bytes)
    }

    /// Begins a call.
    pub(super) fn call(&mut self) -> Result<usize, Fault> {
        self.part()?;
        self.calls.push(ReplyCall::default());
        Ok(self.calls.len() - 1)
    }

    /// A call that was begun.
    pub(super) fn at(&self, call: usize) -> Option<&ReplyCall> {
        self.calls.get(call)
    }

    /// Names a call, where that is said and was not before: an empty name or id says nothing.
    pub(super) fn name(&mut self, call: usize, id: Option<&str>, name: Option<&str>) -> Result<(), Fault> {
        let said = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let Some(call) = self.calls.get_mut(call) else { return Ok(()) };
        let mut bytes = 0;
        if let (None, Some(id)) = (&call.id, said(id)) {
            bytes += id.len();
            call.id = Some(id);
        }
        if let (true, Some(name)) = (call.name.is_empty(), said(name)) {
            bytes += name.len();
            call.name = name;
        }
        self.grow(bytes)
    }

    /// What this provider wants back with a call.
    pub(super) fn extra(&mut self, call: usize, provider: &str, json: &str) -> Result<(), Fault> {
        self.grow(json.len())?;
        if let Some(call) = self.calls.get_mut(call) {
            call.extra = Some(Extra { json: json.into(), provider: provider.into() });
        }
        Ok(())
    }

    /// Forgets a call's arguments.
    pub(super) fn unargue(&mut self, call: usize) {
        if let Some(call) = self.calls.get_mut(call) {
            call.arguments.clear();
        }
    }

    /// Goes on with a call's arguments.
    pub(super) fn argue(&mut self, call: usize, arguments: &str) -> Result<(), Fault> {
        self.grow(arguments.len())?;
        if let Some(call) = self.calls.get_mut(call) {
            call.arguments.push_str(arguments);
        }
        Ok(())
    }

    /// The reply. A model that has made calls waits for them, whatever its server says.
    pub(super) fn reply(self, stop: StopReason) -> Reply {
        let stop_reason = match stop {
            StopReason::MaxTokens => stop,
            _ if self.calls.is_empty() => StopReason::EndTurn,
            _ => StopReason::ToolUse,
        };
        Reply {
            text: Some(self.text).filter(|text| !text.is_empty()),
            thinking: self.thinking,
            calls: self.calls,
            stop_reason,
            usage: self.usage,
            served: None,
        }
    }
}

/// Reads the data of an event. Half of a surrogate pair is no text, and is kept as the escape that it came as: in arguments
/// that is what the model wrote, and their reader tells the model what is wrong with it.
///
/// # Errors
/// It is not what a stream of this provider has.
pub(super) fn parse<T: DeserializeOwned>(data: &str) -> Result<T, Fault> {
    let parsed = serde_json::from_str(data).or_else(|error| match escape_halves(data) {
        Some(escaped) => serde_json::from_str(&escaped),
        None => Err(error),
    });
    parsed.map_err(|error| Fault::stream(format!("an event cannot be read: {error}")))
}

/// The JSON text with a second backslash before each half of a surrogate pair that stands alone, if there is one.
fn escape_halves(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len() + 8);
    let (mut rest, mut found) = (json, false);
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let taken = match half(from) {
            Some(0xd800..0xdc00) if from.get(6..).and_then(half).is_some_and(|low| low >= 0xdc00) => 12,
            Some(_) => {
                found = true;
                out.push('\\');
                6
            }
            // With what it escapes, which may be another backslash.
            None => from.char_indices().nth(2).map_or(from.len(), |(end, _)| end),
        };
        let (taken, after) = from.split_at(taken);
        out.push_str(taken);
        rest = after;
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Which half of a surrogate pair a text begins with, escaped.
fn half(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    (0xd800..0xe000).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_that_stand_alone_are_kept_as_they_were_written() {
        let read = |json: &str| parse::<String>(json).unwrap();
        assert_eq!(read(r#""a\ud83d\ude00b""#), "a😀b");
        assert_eq!(read(r#""a\ud83db""#), "a\\ud83db");
        assert_eq!(read(r#""\ude00\ud83d""#), "\\ude00\\ud83d");
        assert_eq!(read(r#""\ud83d\ud83d\ude00\\ud83d\n""#), "\\ud83d😀\\ud83d\n");
        assert_eq!(read(r#""\ud83d""#) + &read(r#""\ude00""#), "\\ud83d\\ude00");
        assert!(parse::<String>(r#""\ud83"#).is_err());
        assert!(parse::<String>(r#""\ud83d\"#).is_err());
    }

    #[test]
    fn a_reply_is_bounded() {
        let mut draft = Draft::default();
        let call = draft.call().unwrap();
        draft.argue(call, &"x".repeat(MAX_REPLY)).unwrap();
        assert!(draft.say("x").is_err());
        let mut draft = Draft::default();
        let parts = (0..).take_while(|_| draft.call().is_ok()).count();
        assert_eq!(parts, MAX_PARTS);
    }

    #[test]
    fn empty_names_and_ids_say_nothing_and_the_first_of_each_counts() {
        let mut draft = Draft::default();
        let call = draft.call().unwrap();
        for (id, name) in
            [(None, Some("")), (Some(""), Some("add")), (Some("a"), Some("")), (Some("b"), Some("sub"))]
        {
            draft.name(call, id, name).unwrap();
        }
        let call = draft.at(call).unwrap();
        assert_eq!((call.id.as_deref(), call.name.as_str()), (Some("a"), "add"));
    }
}
