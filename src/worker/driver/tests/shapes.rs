//! The kinds of turns.

use super::outside::TOOLS;
use crate::turn::{Reply, ReplyCall, StopReason, Usage, code};

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(super) enum Say {
    Reply(Reply),
    /// With this text.
    Error(String),
    Panic,
}

/// One kind of turn: what the model says, and what the turn comes to.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub name: &'static str,
    pub script: Vec<Say>,
    pub max_tool_calls: u32,
    /// The output up to its nonce, or the code of the failure.
    pub end: Result<&'static str, &'static str>,
    /// Replies and calls.
    pub used: (u32, u32),
}

impl Shape {
    pub(super) fn new(
        name: &'static str,
        script: impl IntoIterator<Item = Say>,
        end: Result<&'static str, &'static str>,
        used: (u32, u32),
    ) -> Self {
        Self { name, script: script.into_iter().collect(), max_tool_calls: 3, end, used }
    }

    /// Calls of one reply, and the last word.
    pub(super) fn calling(name: &'static str, calls: &[(&str, &str)]) -> Self {
        let used = (2, u32::try_from(calls.len()).unwrap());
        Self::new(name, [calling(calls), done()], Ok("done"), used)
    }

    /// The tools that it calls, and `echo`.
    pub(super) fn tools(&self) -> Vec<&'static str> {
        let called = |name: &str| {
            let replies = self.script.iter().filter_map(|say| match say {
                Say::Reply(reply) => Some(reply),
                Say::Error(_) | Say::Panic => None,
            });
            replies.flat_map(|reply| &reply.calls).any(|call| call.name == name)
        };
        TOOLS.iter().copied().filter(|name| *name == "echo" || called(name)).collect()
    }
}

const USAGE: Usage = Usage { input_tokens: 3, output_tokens: 2 };

pub(super) fn done() -> Say {
    Say::Reply(Reply { text: Some("done <$N>".into()), usage: USAGE, ..Reply::default() })
}

/// A reply that calls these tools, under ids that change and with arguments that may.
pub(super) fn calling(calls: &[(&str, &str)]) -> Say {
    let call = |index, (name, arguments): &(&str, &str)| ReplyCall {
        id: Some(format!("call-$N-{index}")),
        name: (*name).into(),
        arguments: (*arguments).into(),
    };
    Say::Reply(Reply {
        text: Some("thinking <$N>".into()),
        calls: calls.iter().enumerate().map(|(index, it)| call(index, it)).collect(),
        stop_reason: StopReason::ToolUse,
        usage: USAGE,
    })
}

/// Arguments that are others each time that the model is asked.
pub(super) const NEW: &str = r#"{"n": "$N", "b": 1.0}"#;

fn cut_off() -> Say {
    let Say::Reply(reply) = calling(&[("echo", NEW)]) else { unreachable!() };
    Say::Reply(Reply { stop_reason: StopReason::MaxTokens, ..reply })
}

fn without_ids() -> Say {
    let Say::Reply(mut reply) = calling(&[("echo", NEW), ("echo", NEW), ("echo", NEW)]) else {
        unreachable!()
    };
    for (call, id) in reply.calls.iter_mut().zip([None, Some("same"), Some("same")]) {
        call.id = id.map(Into::into);
    }
    Say::Reply(reply)
}

pub(super) fn two_parallel_tools() -> Shape {
    Shape::calling("two parallel tools", &[("echo", NEW), ("slow", NEW)])
}

pub(super) fn all() -> Vec<Shape> {
    vec![
        Shape::new("no tools", [done()], Ok("done"), (1, 0)),
        two_parallel_tools(),
        Shape::calling("a slow tool before a fast one", &[("slow", NEW), ("echo", NEW)]),
        Shape::calling("a tool that is tried again", &[("flaky", NEW), ("echo", NEW)]),
        Shape::calling("a failing tool", &[("broken", NEW)]),
        Shape::calling("a tool that panics", &[("panics", NEW), ("echo", NEW)]),
        Shape::calling("an unknown tool", &[("nope", NEW), ("echo", NEW)]),
        Shape::calling("arguments that are wrong", &[("strict", NEW), ("echo", "{\"{\""), ("echo", "null")]),
        Shape::calling("a result that is too large", &[("huge", NEW), ("echo", NEW)]),
        Shape::new(
            "three replies",
            [calling(&[("echo", NEW)]), calling(&[("slow", NEW), ("echo", NEW)]), done()],
            Ok("done"),
            (3, 3),
        ),
        Shape::new("poison", [calling(&[("slow", NEW), ("poison", NEW)])], Err(code::POISON), (1, 2)),
        Shape::new("fatal", [calling(&[("fatal", NEW), ("slow", NEW)])], Err(code::TOOL_FATAL), (1, 2)),
        Shape::new(
            "more calls than allowed",
            [calling(&[("echo", NEW), ("echo", NEW)]), calling(&[("echo", NEW), ("echo", NEW)])],
            Err(code::TOOL_CALL_LIMIT),
            (2, 2),
        ),
        Shape::new("a reply that is cut off", [cut_off(), done()], Ok("done"), (2, 1)),
        Shape::new("ids that are missing or the same", [without_ids(), done()], Ok("done"), (2, 3)),
        Shape::new(
            "a model that fails",
            [calling(&[("echo", NEW)]), Say::Error("down <$N>".into())],
            Err(code::MODEL_ERROR),
            (1, 1),
        ),
        Shape::new(
            "a model that panics",
            [calling(&[("echo", NEW)]), Say::Panic],
            Err(code::MODEL_ERROR),
            (1, 1),
        ),
    ]
}
