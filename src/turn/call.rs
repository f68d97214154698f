//! One call of a tool, judged before anything runs: of a model's reply, or made directly by code.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::canonical::hash_of_canonical;
use super::{Arguments, Definition, Failure, Hash, Position, ReplyCall, StopReason, code};

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Where the call stands.
    pub position: Position,
    /// The name, as its caller wrote it.
    pub name: String,
    /// The arguments, as the raw text that its caller wrote.
    pub raw_arguments: String,
    /// The hash of its arguments and of its tool's definition.
    pub input: Hash,
    /// Whether there is a tool of its name for its caller.
    pub offered: bool,
    /// Whether it may run.
    pub plan: CallPlan,
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallPlan {
    /// Run the tool of this name, once the arguments hold against its schema.
    Run(Arguments),
    /// Run nothing; the caller gets this failure as the result.
    Answer(Failure),
}

impl Call {
    /// A call of a model's reply, which stopped for this reason; the model was offered these tools.
    pub fn of_reply(
        position: Position,
        call: ReplyCall,
        stop: StopReason,
        tools: &[Arc<Definition>],
    ) -> Self {
        let tool = tools.iter().find(|tool| tool.name == call.name);
        let truncated = (stop == StopReason::MaxTokens).then(|| {
            Failure::new(
                code::REPLY_TRUNCATED,
                "the reply was cut off at its token limit, so none of its calls ran; \
                 reply again with fewer or shorter calls",
            )
        });
        let names = tools.iter().map(|tool| tool.name.as_str());
        Self::judge(position, call.name, call.arguments, tool.map(|tool| &**tool), truncated, names)
    }

    /// A call that code makes itself, of this tool if there is one; `names` are those that there are. The arguments are
    /// JSON, or why they have none.
    pub fn direct<'a>(
        position: Position,
        name: &str,
        arguments: Result<String, Failure>,
        tool: Option<&Definition>,
        names: impl Iterator<Item = &'a str>,
    ) -> Self {
        let (arguments, refused) = match arguments {
            Ok(arguments) => (arguments, None),
            Err(failure) => (String::new(), Some(failure)),
        };
        Self::judge(position, name.to_owned(), arguments, tool, refused, names)
    }

    fn judge<'a>(
        position: Position,
        name: String,
        raw_arguments: String,
        tool: Option<&Definition>,
        refused: Option<Failure>,
        names: impl Iterator<Item = &'a str>,
    ) -> Self {
        let plan = match (refused, tool) {
            (Some(failure), _) => CallPlan::Answer(failure),
            (None, None) => CallPlan::Answer(unknown(&name, names)),
            (None, Some(_)) => match Arguments::parse(&raw_arguments) {
                Ok(arguments) => CallPlan::Run(arguments),
                Err(failure) => CallPlan::Answer(failure),
            },
        };
        let input = input(&name, &raw_arguments, tool, &plan);
        Self { position, name, raw_arguments, input, offered: tool.is_some(), plan }
    }

    /// The hash of the canonical arguments, where they are an object.
    pub fn arguments_hash(&self) -> Option<Hash> {
        match &self.plan {
            CallPlan::Run(arguments) => Some(Hash::of_bytes(arguments.canonical.as_bytes())),
            CallPlan::Answer(_) => None,
        }
    }

    /// The arguments, canonical where they are an object.
    pub fn arguments(&self) -> &str {
        match &self.plan {
            CallPlan::Run(arguments) => &arguments.canonical,
            CallPlan::Answer(_) => &self.raw_arguments,
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
        if hash_of_canonical(&unknown) == *recorded {
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

/// The exact text of specification P, "Unknown tool names".
fn unknown<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Failure {
    let name: String = name.chars().take(64).collect();
    let available: Vec<_> = names.take(20).collect();
    Failure::new(code::UNKNOWN_TOOL, format!("unknown tool '{name}'; available: {}", available.join(", ")))
}

/// What is hashed as a call's input: its arguments and the definition of its own tool, so that a changed tool which
/// the turn never called does not matter. Its fields are in the order of their names.
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

fn input(name: &str, raw: &str, tool: Option<&Definition>, plan: &CallPlan) -> Hash {
    let arguments = match plan {
        CallPlan::Run(arguments) => serde_json::from_str(&arguments.canonical).ok(),
        CallPlan::Answer(_) => None,
    };
    hash_of_canonical(&Input {
        arguments,
        arguments_raw: arguments.is_none().then_some(raw),
        name,
        tool: tool.map(Definition::hash),
    })
}
