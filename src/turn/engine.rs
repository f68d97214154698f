//! The agent loop: call the model, call the tools it asks for, finish.
//!
//! [`Engine::next`] says what to do; the driver does it, as steps, and hands back what came of it. The
//! engine cannot tell a step that ran from one that was read back from the log, which is why a rerun
//! goes the way the first run went.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;

use super::canonical::hash_of;
use super::{
    Arguments, CallResult, Definition, Failure, Hash, Limits, Message, Position, Reply, ReplyCall,
    StopReason, ToolCall, Used, code,
};

/// What a turn starts from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The agent's instructions.
    pub system: Option<String>,
    /// The turn's input.
    pub input: Vec<Message>,
    /// The tools on offer, in the order of their registration.
    pub tools: Vec<Arc<Definition>>,
    /// How much the turn may use.
    pub limits: Limits,
    /// What a call of each tool costs, where it costs anything.
    pub costs: HashMap<String, Decimal>,
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
pub enum Next {
    /// Get the model's reply to the transcript.
    Model {
        /// Where the reply stands.
        position: Position,
        /// The hash of the transcript.
        input: Hash,
    },
    /// Get the result of each call; they may run side by side.
    Calls(Vec<Call>),
    /// The turn is over.
    End(Outcome),
}

/// One call of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Where the call stands.
    pub position: Position,
    /// The name, as the model wrote it.
    pub name: String,
    /// The arguments, as the raw text that the model wrote.
    pub raw_arguments: String,
    /// The hash of its arguments and of its tool's definition.
    pub input: Hash,
    /// Whether a tool of its name is offered.
    pub offered: bool,
    /// Whether it may run.
    pub plan: CallPlan,
}

impl Call {
    /// The hash of the canonical arguments, where they are an object.
    pub fn arguments_hash(&self) -> Option<Hash> {
        match &self.plan {
            CallPlan::Run(arguments) => Some(Hash::of_bytes(arguments.canonical.as_bytes())),
            CallPlan::Answer(_) => None,
        }
    }

    /// What makes the call's input another one than that which was recorded, whose hash and, if it is known, whose
    /// arguments' hash are these.
    pub fn what_changed(&self, recorded: &Hash, arguments: Option<&Hash>) -> &'static str {
        if !self.offered {
            return "the tool is no longer offered";
        }
        let unknown =
            Input { arguments: None, arguments_raw: Some(&self.raw_arguments), name: &self.name, tool: None };
        if hash_of(&unknown) == *recorded {
            return "the tool was not offered then, and is now";
        }
        match (arguments, self.arguments_hash()) {
            (Some(then), Some(now)) if *then == now => {
                "the description or the schema of the tool has changed"
            }
            (Some(_), _) => "the arguments have changed",
            (None, _) => "the arguments, or the description or the schema of the tool, have changed",
        }
    }
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallPlan {
    /// Run the tool of this name, once the arguments hold against its schema.
    Run(Arguments),
    /// Run nothing; the model gets this failure as the result.
    Answer(Failure),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The model had its last word.
    Completed {
        /// That word.
        output: String,
    },
    /// The turn failed for its own reasons.
    Failed(Failure),
}

/// The loop's state: the transcript, its rolling hash, and what was used.
#[derive(Debug)]
pub struct Engine {
    tools: Vec<Arc<Definition>>,
    limits: Limits,
    on_tool_error: OnToolError,
    messages: Vec<Message>,
    hash: Hash,
    costs: HashMap<String, Decimal>,
    call_ids: HashSet<String>,
    used: Used,
    state: State,
}

#[derive(Debug)]
enum State {
    Model,
    Calls(Vec<Call>, Vec<String>),
    End(Outcome),
}

impl Engine {
    /// A turn at its start.
    pub fn new(setup: Setup) -> Self {
        let mut engine = Self {
            tools: setup.tools,
            limits: setup.limits,
            on_tool_error: setup.on_tool_error,
            messages: Vec::new(),
            hash: Hash::of_bytes(b""),
            costs: setup.costs,
            call_ids: HashSet::new(),
            used: Used::default(),
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
    pub fn next(&self) -> Next {
        match &self.state {
            State::Model => {
                Next::Model { position: Position::reply(self.used.model_calls), input: self.hash.clone() }
            }
            State::Calls(calls, _) => Next::Calls(calls.clone()),
            State::End(outcome) => Next::End(outcome.clone()),
        }
    }

    /// Why the model must not be asked: the turn has used what it may. A reply that is recorded was allowed.
    pub fn forbids_model(&self) -> Option<Failure> {
        self.limits.forbids_reply(&self.used)
    }

    /// Hands in the model's reply.
    pub fn reply(&mut self, reply: Reply) {
        self.take(reply, false);
    }

    /// Hands in a reply whose calls have begun, in this run or an earlier one: they were within the limits then, and
    /// whatever the limits are now, what is recorded counts.
    pub fn reply_begun(&mut self, reply: Reply) {
        self.take(reply, true);
    }

    fn take(&mut self, reply: Reply, begun: bool) {
        let number = self.used.model_calls;
        self.used.model_calls = number.saturating_add(1);
        self.used.tokens += reply.usage;
        let ids = self.ids_for(number, &reply.calls);
        self.push(Message::Assistant {
            content: reply.text.clone(),
            tool_calls: (reply.calls.iter().zip(&ids))
                .map(|(call, id)| ToolCall {
                    id: id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                })
                .collect(),
        });
        if reply.calls.is_empty() {
            let output = reply.text.unwrap_or_default();
            self.state = State::End(Outcome::Completed { output });
            return;
        }
        let asked = u32::try_from(reply.calls.len()).unwrap_or(u32::MAX);
        let calls: Vec<Call> = (reply.calls.into_iter().enumerate())
            .map(|(index, call)| self.plan(Position::call(number, index), call, reply.stop_reason))
            .collect();
        let runs = calls.iter().filter(|call| matches!(call.plan, CallPlan::Run(_)));
        let costs = runs.filter_map(|call| self.costs.get(&call.name));
        let cost = costs.fold(Decimal::ZERO, |sum, cost| sum.saturating_add(*cost));
        if let Some(failure) = self.limits.forbids_calls(&self.used, asked, cost).filter(|_| !begun) {
            self.state = State::End(Outcome::Failed(failure));
            return;
        }
        self.used.tool_calls = self.used.tool_calls.saturating_add(asked);
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
            self.used.cost = self.used.cost.saturating_add(result.cost);
            self.push(Message::Tool {
                tool_call_id: id,
                name: call.name,
                content: result.text(),
                is_error: result.result.is_err(),
            });
        }
    }

    /// Adds what a call cost whose result is not handed in, because the turn ends.
    pub fn pay(&mut self, cost: Decimal) {
        self.used.cost = self.used.cost.saturating_add(cost);
    }

    /// Ends the turn from outside the loop: the model failed, or a record was made from another input.
    pub fn fail(&mut self, failure: Failure) {
        self.state = State::End(Outcome::Failed(failure));
    }

    /// The transcript so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The tools on offer.
    pub fn tools(&self) -> &[Arc<Definition>] {
        &self.tools
    }

    /// What was used so far.
    pub fn used(&self) -> Used {
        self.used
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

    fn plan(&self, position: Position, call: ReplyCall, stop: StopReason) -> Call {
        let tool = self.tools.iter().find(|tool| tool.name == call.name);
        let plan = match (stop, tool) {
            (StopReason::MaxTokens, _) => CallPlan::Answer(Failure::new(
                code::REPLY_TRUNCATED,
                "the reply was cut off at its token limit, so none of its calls ran; \
                 reply again with fewer or shorter calls",
            )),
            (_, None) => CallPlan::Answer(self.unknown(&call.name)),
            (_, Some(_)) => match Arguments::parse(&call.arguments) {
                Ok(arguments) => CallPlan::Run(arguments),
                Err(failure) => CallPlan::Answer(failure),
            },
        };
        let input = call_input(&call, tool.map(|tool| &**tool), &plan);
        let offered = tool.is_some();
        Call { position, name: call.name, raw_arguments: call.arguments, input, offered, plan }
    }

    /// The exact text of specification P, "Unknown tool names".
    fn unknown(&self, name: &str) -> Failure {
        let name: String = name.chars().take(64).collect();
        let available: Vec<_> = self.tools.iter().take(20).map(|tool| tool.name.as_str()).collect();
        Failure::new(
            code::UNKNOWN_TOOL,
            format!("unknown tool '{name}'; available: {}", available.join(", ")),
        )
    }
}

/// The rolling hash of a transcript: the hash of `[HASH SO FAR, MESSAGE]`, starting from the hash of
/// no bytes.
fn chain(so_far: &Hash, message: &Message) -> Hash {
    hash_of(&(so_far, message))
}

/// What is hashed as a call's input: its arguments and the definition of its own tool, so that a changed tool which
/// the turn never called does not matter.
#[derive(Serialize)]
struct Input<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_raw: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a Hash>,
}

fn call_input(call: &ReplyCall, tool: Option<&Definition>, plan: &CallPlan) -> Hash {
    let arguments = match plan {
        CallPlan::Run(arguments) => serde_json::from_str(&arguments.canonical).ok(),
        CallPlan::Answer(_) => None,
    };
    hash_of(&Input {
        arguments,
        arguments_raw: arguments.is_none().then_some(call.arguments.as_str()),
        name: &call.name,
        tool: tool.map(Definition::hash),
    })
}

#[cfg(test)]
mod tests;
