//! Everything beyond the worker: a model and tools that never answer twice the same, a sink, and the memory
//! of what was asked of them.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use crate::agent::StepContext;
use crate::kafka::producer::{Error, Outgoing};
use crate::tool::{Output, Retry, RetryWait, Spec, Tool, ToolContext, ToolError};
use crate::worker::outbox::Sink;
use shapes::{Say, Shape};

pub(super) const TOOLS: &[&str] = &[
    "echo",
    "nests",
    "nests_flaky",
    "slow",
    "flaky",
    "waits",
    "strict",
    "broken",
    "fatal",
    "poison",
    "panics",
    "huge",
    "loud",
    "loud_poison",
];

/// More than a record of the log in memory may have.
pub(super) const HUGE: usize = 200_000;

/// What the outside has seen since it last forgot; nonces go on for ever.
#[derive(Default)]
pub(super) struct Outside(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    nonce: u32,
    asked: Vec<String>,
    transcript: Vec<Message>,
    /// The names of the tools that the model was told of when it was asked last.
    offered: Vec<String>,
    runs: Vec<Run>,
    sent: Vec<Sent>,
    /// The sink refuses larger records.
    max_sent: Option<usize>,
    /// The sink refuses everything.
    sink_down: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Run {
    pub key: String,
    /// What else it was told: session, turn, agent, the causing reply, its timeout.
    pub told: (String, String, String, Option<String>, Duration),
    pub attempt: u32,
    pub arguments: Value,
}

#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub topic: String,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<crate::kafka::Header>,
}

impl Outside {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }

    pub(super) fn forget(&self) {
        let mut seen = self.seen();
        *seen = Seen { nonce: seen.nonce, ..Seen::default() };
    }

    /// The replies that the model was asked for: of which agent, and which number.
    pub(super) fn asked(&self) -> Vec<String> {
        self.seen().asked.clone()
    }

    /// What the model was told when it was asked last.
    pub(super) fn last_transcript(&self) -> Vec<Message> {
        self.seen().transcript.clone()
    }

    /// The tools that the model was told of when it was asked last.
    pub(super) fn offered(&self) -> Vec<String> {
        self.seen().offered.clone()
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.seen().runs.clone()
    }

    /// The keys that tools ran under, sorted, each once.
    pub(super) fn keys_run(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.runs().into_iter().map(|run| run.key).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// What a step of an agent's own does, which is made of this.
    pub(super) fn step(&self, step: &StepContext, of: Value) -> Value {
        let nonce = self.nonce();
        self.seen().runs.push(Run {
            key: step.idempotency_key().into(),
            told: (String::new(), String::new(), String::new(), None, Duration::ZERO),
            attempt: step.attempt(),
            arguments: of.clone(),
        });
        json!({"got": of, "run": nonce})
    }

    /// One idempotency key never carries two inputs.
    pub(super) fn check_keys(&self, context: &str) {
        let mut inputs = HashMap::new();
        for run in self.runs() {
            let first = inputs.entry(run.key.clone()).or_insert_with(|| run.arguments.clone());
            assert_eq!(*first, run.arguments, "{context}: {} ran with two inputs", run.key);
        }
    }

    pub(super) fn sent(&self) -> Vec<Sent> {
        self.seen().sent.clone()
    }

    pub(super) fn results(&self) -> Vec<TurnResult> {
        (self.sent().iter())
            .filter(|sent| sent.topic == "agent.results")
            .map(|sent| serde_json::from_slice(sent.value.as_deref().unwrap()).unwrap())
            .collect()
    }

    pub(super) fn dead_letters(&self) -> Vec<Sent> {
        self.sent().into_iter().filter(|sent| sent.topic == "agent.turns.dlq").collect()
    }

    pub(super) fn limit_sink(&self, max: usize) {
        self.seen().max_sent = Some(max);
    }

    pub(super) fn break_sink(&self, down: bool) {
        self.seen().sink_down = down;
    }

    fn nonce(&self) -> u32 {
        let mut seen = self.seen();
        seen.nonce += 1;
        seen.nonce
    }
}

#[async_trait]
impl Sink for Outside {
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut seen = self.seen();
        if seen.sink_down {
            return Err(Error::Closed { of: "a test" });
        }
        let headers =
            record.headers.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len)).sum::<usize>();
        let size =
            headers + [record.key, record.value].iter().flatten().map(|part| part.len()).sum::<usize>();
        if seen.max_sent.is_some_and(|max| size > max) {
            return Err(Error::TooLarge { topic: record.topic.into(), size });
        }
        seen.sent.push(Sent {
            topic: record.topic.into(),
            key: record.key.map(Into::into),
            value: record.value.map(Into::into),
            headers: record.headers.to_vec(),
        });
        Ok(())
    }
}

/// A model that plays each agent's script, in which `$N` is another number each time.
pub(super) struct Nonces {
    shape: Shape,
    outside: Arc<Outside>,
}

impl Nonces {
    pub(super) fn new(shape: &Shape, outside: &Arc<Outside>) -> Self {
        Self { shape: shape.clone(), outside: Arc::clone(outside) }
    }
}

#[async_trait]
impl Model for Nonces {
    async fn complete(&self, request: Request<'_>) -> Result<Reply, Failure> {
        let nonce = self.outside.nonce().to_string();
        {
            let mut seen = self.outside.seen();
            seen.asked.push(format!("{} {}", request.agent, request.reply));
            seen.transcript = request.messages.to_vec();
            seen.offered = request.tools.iter().map(|tool| tool.name.clone()).collect();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let number = usize::try_from(request.reply).unwrap();
        let other = self.shape.others.iter().find(|other| other.name == request.agent);
        match &other.map_or(&self.shape.script, |other| &other.script)[number] {
            Say::Reply(reply) => {
                let mut reply = reply.clone();
                reply.text = reply.text.map(|text| text.replace("$N", &nonce));
                for call in &mut reply.calls {
                    call.arguments = call.arguments.replace("$N", &nonce);
                    call.id = call.id.as_ref().map(|id| id.replace("$N", &nonce));
                }
                Ok(reply)
            }
            Say::Error(text) => Err(Failure::new(code::MODEL_ERROR, text.replace("$N", &nonce))),
            Say::Panic => panic!("the model panics, as it should"),
        }
    }
}

/// A tool that does what its name says.
pub(super) struct Probe {
    name: &'static str,
    spec: Spec,
    outside: Arc<Outside>,
}

impl Probe {
    pub(super) fn new(name: &'static str, description: &str, outside: &Arc<Outside>) -> Self {
        let schema = match name {
            // Both rules quote what breaks them.
            "strict" => json!({"type": "object", "properties": {"n": {"type": "integer", "enum": [1]}}}),
            _ => json!({"type": "object"}),
        };
        let mut spec = Spec::new(name, description, schema);
        let hour = Duration::from_secs(3600);
        spec.retry = match name {
            "flaky" => 2.into(),
            "nests_flaky" => 1.into(),
            "waits" => Retry { max: 1, wait: Some(RetryWait { initial: hour, max_delay: hour }) },
            _ => 0.into(),
        };
        Self { name, spec, outside: Arc::clone(outside) }
    }
}

#[async_trait]
impl Tool for Probe {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }

    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError> {
        let key = context.idempotency_key().to_owned();
        let nonce = self.outside.nonce();
        let runs = {
            let mut seen = self.outside.seen();
            seen.runs.push(Run {
                key: key.clone(),
                told: (
                    context.session_id().into(),
                    context.turn_id().into(),
                    context.agent().into(),
                    context.cause().map(Into::into),
                    context.timeout(),
                ),
                attempt: context.attempt(),
                arguments: arguments.clone(),
            });
            seen.runs.iter().filter(|run| run.key == key).count()
        };
        tokio::time::sleep(Duration::from_millis(if self.name == "slow" { 50 } else { 2 })).await;
        let length = arguments["length"].as_u64().map(|length| usize::try_from(length).unwrap());
        let text = length.map_or_else(|| "because".to_owned(), |length| "x".repeat(length));
        match self.name {
            "nests" | "nests_flaky" => {
                let first: Value = context.call("echo", json!({"of": arguments})).await?.read()?;
                if self.name == "nests_flaky" && runs == 1 {
                    return Err(ToolError::retryable("not yet"));
                }
                let second: Value = context.call("echo", json!({"of": first})).await?.read()?;
                if self.name == "nests" {
                    let both = (
                        context.call("echo", json!({"of": second})),
                        context.call("nope", json!({"of": second})),
                    );
                    let (third, unknown) = tokio::join!(both.0, both.1);
                    return Output::of(&json!([third?, unknown.unwrap_err().message]));
                }
                Output::of(&json!({"got": second, "run": nonce}))
            }
            "flaky" if runs <= 2 => Err(ToolError::retryable("not yet")),
            "waits" if runs == 1 => Err(ToolError::retryable("not yet")),
            "broken" => Err(ToolError::retryable(text)),
            "fatal" => Err(ToolError::fatal(format!("{text} <{nonce}>"))),
            "poison" => Err(ToolError::poison(format!("{text} <{nonce}>"))),
            "panics" => panic!("the tool panics, as it should"),
            "huge" => Output::of(&"x".repeat(HUGE)),
            _ => Output::of(&json!({"got": arguments, "run": nonce})),
        }
    }
}
