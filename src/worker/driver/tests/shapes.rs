//! The kinds of turns.

use std::sync::Arc;

use super::coded;
use super::outside::TOOLS;
use crate::agent::Agent;
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
#[derive(Clone)]
pub(super) struct Shape {
    pub name: &'static str,
    pub script: Vec<Say>,
    /// The code of the turn's agent, where it is more than its model and its tools.
    pub code: Option<Arc<dyn Agent>>,
    /// The agents that it is offered.
    pub others: Vec<Other>,
    pub max_tool_calls: u32,
    /// The output up to its nonce, or the code of the failure.
    pub end: Result<&'static str, &'static str>,
    /// Replies and calls.
    pub used: (u32, u32),
}

/// An agent beside the turn's own; the names of all of them begin with `agent_`.
#[derive(Clone)]
pub(super) struct Other {
    pub name: &'static str,
    pub script: Vec<Say>,
    pub code: Option<Arc<dyn Agent>>,
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shape")
            .field("name", &self.name)
            .field("script", &self.script)
            .finish_non_exhaustive()
    }
}

impl Shape {
    /// A turn whose agent is this code.
    fn coded(
        name: &'static str,
        code: impl Agent,
        script: impl IntoIterator<Item = Say>,
        used: (u32, u32),
    ) -> Self {
        Self { code: Some(Arc::new(code)), max_tool_calls: 20, ..Self::new(name, script, Ok("done"), used) }
    }

    fn with(mut self, other: Other) -> Self {
        self.others.push(other);
        self
    }

    pub(super) fn new(
        name: &'static str,
        script: impl IntoIterator<Item = Say>,
        end: Result<&'static str, &'static str>,
        used: (u32, u32),
    ) -> Self {
        let script = script.into_iter().collect();
        Self { name, script, code: None, others: Vec::new(), max_tool_calls: 3, end, used }
    }

    /// Calls of one reply, and the last word.
    pub(super) fn calling(name: &'static str, calls: &[(&str, &str)]) -> Self {
        let used = (2, u32::try_from(calls.len()).unwrap());
        Self::new(name, [calling(calls), done()], Ok("done"), used)
    }

    /// The tools that it calls, and `echo`.
    pub(super) fn tools(&self) -> Vec<&'static str> {
        let called = |name: &str| {
            let scripts = self.others.iter().map(|other| &other.script).chain([&self.script]);
            let replies = scripts.flatten().filter_map(|say| match say {
                Say::Reply(reply) => Some(reply),
                Say::Error(_) | Say::Panic => None,
            });
            replies.flat_map(|reply| &reply.calls).any(|call| call.name == name)
        };
        let always = |name: &str| name == "echo" || (name == "nests" && self.code.is_some());
        TOOLS.iter().copied().filter(|name| always(name) || called(name)).collect()
    }
}

const USAGE: Usage = Usage { input_tokens: 3, output_tokens: 2, cache_read_tokens: 0, cache_write_tokens: 0 };

pub(super) fn done() -> Say {
    Say::Reply(Reply { text: Some("done <$N>".into()), usage: USAGE, ..Reply::default() })
}

/// A reply that calls these tools, under ids that change and with arguments that may.
pub(super) fn calling(calls: &[(&str, &str)]) -> Say {
    let call = |index, (name, arguments): &(&str, &str)| ReplyCall {
        id: Some(format!("call-$N-{index}")),
        name: (*name).into(),
        arguments: (*arguments).into(),
        extra: None,
    };
    Say::Reply(Reply {
        text: Some("thinking <$N>".into()),
        calls: calls.iter().enumerate().map(|(index, it)| call(index, it)).collect(),
        stop_reason: StopReason::ToolUse,
        usage: USAGE,
        ..Reply::default()
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
    let mut all = of_a_model();
    all.extend(in_code());
    all
}

/// Agents in code, tools that call tools, agents that call agents.
pub(super) fn in_code() -> Vec<Shape> {
    let hand = |name| (name, r#"{"input": "Do $N."}"#);
    let worker = |script: Vec<Say>| Other { name: "agent_worker", script, code: None };
    let chain = || Other { name: "agent_chain", script: vec![], code: Some(Arc::new(coded::chain)) };
    let inner = || vec![calling(&[("echo", NEW), ("slow", NEW)]), done()];
    let nesting = Shape::calling("tools that call tools", &[("nests", NEW), ("echo", NEW)]);
    let failing = vec![Say::Error("down <$N>".into())];
    vec![
        Shape::coded("a call made of another one's result", coded::chain, [], (0, 3)),
        Shape::coded("chains side by side", coded::chains, [], (0, 4)),
        Shape::coded("calls that fail, and one after them", coded::failing, [], (0, 3)),
        Shape::coded("steps and values", coded::steps, [], (0, 3)),
        Shape::coded("a loop between calls", coded::around, [calling(&[("echo", NEW)]), done()], (2, 3)),
        Shape::coded("code that waits", coded::waits, [], (0, 2)),
        Shape::coded("questions to the model", coded::asks, [done(), done()], (2, 1)),
        Shape { used: (2, 6), max_tool_calls: 9, ..nesting.clone() },
        Shape {
            used: (2, 3),
            max_tool_calls: 9,
            ..Shape::calling("a tool that calls tools and is tried again", &[("nests_flaky", NEW)])
        },
        Shape {
            used: (4, 3),
            ..Shape::calling("an agent that is called", &[hand("agent_worker")]).with(worker(inner()))
        },
        Shape {
            used: (2, 1),
            ..Shape::calling("an agent that fails", &[hand("agent_worker")]).with(worker(failing))
        },
        Shape {
            used: (2, 8),
            max_tool_calls: 20,
            ..Shape::calling("agents in code side by side", &[hand("agent_chain"), hand("agent_chain")])
                .with(chain())
        },
        Shape::coded("agents that are called by code", coded::hands_on, [], (2, 7))
            .with(worker(inner()))
            .with(chain()),
    ]
}

fn of_a_model() -> Vec<Shape> {
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
