//! The agent loop: call the model, call the tools it asks for, finish.
//!
//! [`Engine::next`] says what to do; the driver does it, as steps, and hands back what came of it. The
//! engine cannot tell a step that ran from one that was read back from the log, which is why a rerun
//! goes the way the first run went.

use std::collections::HashSet;
use std::sync::Arc;

use super::canonical::hash_of_canonical;
use super::{
    Call, CallResult, Definition, Failure, Hash, Message, Position, Reply, ReplyCall, ToolCall, code,
};

/// What a loop starts from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The agent's instructions.
    pub system: Option<String>,
    /// What is asked of it.
    pub input: Vec<Message>,
    /// The tools on offer, in the order of their registration.
    pub tools: Vec<Arc<Definition>>,
    /// What becomes of the turn when a tool fails.
    pub on_tool_error: OnToolError,
}

/// What becomes of a turn when a tool fails. What the model itself gets wrong always goes back to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnToolError {
    /// The model reads the error, and the turn goes on.
    #[default]
    TellModel,
    /// The turn fails with the code of the failure, once the other calls of the reply have ended.
    FailTurn,
}

impl OnToolError {
    fn ends_the_turn(self, code: &str) -> bool {
        let of_the_model = [code::UNKNOWN_TOOL, code::INVALID_ARGUMENTS, code::REPLY_TRUNCATED];
        match self {
            Self::TellModel => matches!(code, code::POISON | code::TOOL_FATAL),
            Self::FailTurn => !of_the_model.contains(&code),
        }
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Get the model's reply to the transcript.
    Model {
        /// The hash of the transcript.
        input: Hash,
    },
    /// Get the result of each call; they may run side by side.
    Calls(&'a [Call]),
    /// The loop is over.
    End(&'a Outcome),
}

/// How a loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The model had its last word.
    Completed {
        /// That word.
        output: String,
    },
    /// It failed for its own reasons.
    Failed(Failure),
}

/// The loop's state: the transcript and its rolling hash.
#[derive(Debug)]
pub struct Engine {
    tools: Vec<Arc<Definition>>,
    on_tool_error: OnToolError,
    messages: Vec<Message>,
    hash: Hash,
    call_ids: HashSet<String>,
    state: State,
}

#[derive(Debug)]
enum State {
    Model,
    Calls(Vec<Call>, Vec<String>),
    End(Outcome),
}

impl Engine {
    /// A loop at its start.
    pub fn new(setup: Setup) -> Self {
        let mut engine = Self {
            tools: setup.tools,
            on_tool_error: setup.on_tool_error,
            messages: Vec::new(),
            hash: Hash::of_bytes(b""),
            call_ids: HashSet::new(),
            state: State::Model,
        };
        let system = setup.system.map(|content| Message::System { content });
        for message in system.into_iter().chain(setup.input) {
            if let Message::Assistant { tool_calls, .. } = &message {
                engine.call_ids.extend(tool_calls.iter().map(|call| call.id.clone()));
            }
            engine.push(message);
        }
        engine
    }

    /// What to do next. Asked again before an answer was handed in, it says the same.
    pub fn next(&self) -> Next<'_> {
        match &self.state {
            State::Model => Next::Model { input: self.hash.clone() },
            State::Calls(calls, _) => Next::Calls(calls),
            State::End(outcome) => Next::End(outcome),
        }
    }

    /// Hands in the model's reply, which is the one with this number in its agent, from 0.
    pub fn reply(&mut self, number: u32, reply: Reply) {
        let ids = self.ids_for(number, &reply.calls);
        self.push(Message::Assistant {
            content: reply.text.clone(),
            thinking: reply.thinking,
            tool_calls: (reply.calls.iter().zip(&ids))
                .map(|(call, id)| ToolCall {
                    id: id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                    extra: call.extra.clone(),
                })
                .collect(),
        });
        if reply.calls.is_empty() {
            let output = reply.text.unwrap_or_default();
            self.state = State::End(Outcome::Completed { output });
            return;
        }
        let calls = (reply.calls.into_iter().enumerate())
            .map(|(index, call)| {
                Call::of_reply(Position::call(number, index), call, reply.stop_reason, &self.tools)
            })
            .collect();
        self.state = State::Calls(calls, ids);
    }

    /// Hands in the results of the calls, in the order of the calls.
    pub fn results(&mut self, results: Vec<CallResult>) {
        let State::Calls(calls, ids) = std::mem::replace(&mut self.state, State::Model) else {
            return;
        };
        let failures = results.iter().filter_map(|result| result.result.as_ref().err());
        let mut ending = failures.filter(|failure| self.on_tool_error.ends_the_turn(&failure.code));
        // The first in call order decides how, but a poisoned record must not be tried again whatever else failed.
        let first = ending.next();
        let poison = first.into_iter().chain(ending).find(|failure| failure.code == code::POISON);
        if let Some(failure) = poison.or(first) {
            self.state = State::End(Outcome::Failed(failure.clone()));
        }
        for ((call, id), result) in calls.into_iter().zip(ids).zip(&results) {
            self.push(Message::Tool {
                tool_call_id: id,
                name: call.name,
                content: result.text(),
                is_error: result.result.is_err(),
            });
        }
    }

    /// Ends the loop from outside: the model failed.
    pub fn fail(&mut self, failure: Failure) {
        self.state = State::End(Outcome::Failed(failure));
    }

    /// The transcript so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The whole transcript.
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }

    /// The tools on offer.
    pub fn tools(&self) -> &[Arc<Definition>] {
        &self.tools
    }

    fn push(&mut self, message: Message) {
        self.hash = chain(&self.hash, &message);
        self.messages.push(message);
    }

    /// An id for each call, unique in the turn: the provider's where there is one and it is new, else
    /// the call's position.
    fn ids_for(&mut self, reply: u32, calls: &[ReplyCall]) -> Vec<String> {
        let mut ids = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let own = || Position::call(reply, index).to_string();
            let mut id = call.id.clone().filter(|id| !id.is_empty()).unwrap_or_else(own);
            if self.call_ids.contains(&id) {
                id = own();
            }
            while !self.call_ids.insert(id.clone()) {
                id.push('\'');
            }
            ids.push(id);
        }
        ids
    }
}

/// The hash of a transcript: what a reply to it is bound to.
pub fn transcript_hash(messages: &[Message]) -> Hash {
    messages.iter().fold(Hash::of_bytes(b""), |so_far, message| chain(&so_far, message))
}

/// The rolling hash of a transcript: the hash of `[HASH SO FAR, MESSAGE]`, starting from the hash of
/// no bytes.
fn chain(so_far: &Hash, message: &Message) -> Hash {
    hash_of_canonical(&(so_far, message.canonical()))
}

#[cfg(test)]
mod tests;
