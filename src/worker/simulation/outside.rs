//! Everything beyond a worker: a model and tools that never answer twice the same, and where results go. Broken
//! promises show here as they happen.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::log::Of;
use super::world::{Fate, Gate, Published, Rule, Sim};
use crate::journal;
use crate::kafka::consumer::Record;
use crate::kafka::producer::{Error, Outgoing};
use crate::kafka::transactions::{Owned, Request as Batched, Transactions};
use crate::model::{Model, Request};
use crate::record::TurnResult;
use crate::tool::{Output, Registry, Spec, Tool, ToolContext, ToolError, UnknownOutcome};
use crate::turn::{Failure, Reply, ReplyCall};
use crate::worker::outbox::Sink;
use crate::worker::supervisor::OpenTransactions;

/// A process, as its model, its tools and its producers see the world.
#[derive(Clone)]
pub(super) struct Outside {
    pub sim: Sim,
    pub process: usize,
}

/// While it lives, a turn is busy in a process: no other turn of its session may be.
pub(super) struct Busy {
    outside: Outside,
    session: String,
}

impl Outside {
    pub(super) fn busy(&self, session: &str, turn: &str) -> Busy {
        let mut world = self.sim.lock();
        let process = self.process;
        let (running, count) =
            world.busy.entry((process, session.to_owned())).or_insert_with(|| (turn.to_owned(), 0));
        *count += 1;
        if running != turn {
            let what = format!("process {process} runs {running} and {turn} of session {session} at once");
            world.broken(|| what);
        }
        Busy { outside: self.clone(), session: session.to_owned() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut world = self.outside.sim.lock();
        let key = (self.outside.process, std::mem::take(&mut self.session));
        if let Some((_, count)) = world.busy.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                world.busy.remove(&key);
            }
        }
    }
}

#[async_trait]
impl Model for Outside {
    /// Answers as the turn's metadata say: how many calls each reply makes, and then a last word.
    async fn complete(&self, request: Request<'_>) -> Result<Reply, Failure> {
        let text = |name: &str| request.metadata.get(name).cloned().unwrap_or_default();
        let _busy = self.busy(&text("session"), &text("turn"));
        if self.sim.gate(Gate::Model, self.process).await != Fate::Goes {
            return Err(Failure::new("model_error", "the model is down"));
        }
        let mut reply = Reply::default();
        // What the agent that is called does is the same in every turn.
        let shape = if request.agent == "b" { "xx,n".into() } else { text("shape") };
        let calls = shape.split(',').nth(request.reply as usize).unwrap_or_default();
        // Code that asks has no tools to offer.
        let calls = if request.tools.is_empty() { "" } else { calls };
        let mut world = self.sim.lock();
        for name in calls.chars() {
            let nonce = world.nonce();
            reply.calls.push(ReplyCall {
                id: Some(format!("c{nonce}")),
                name: match name {
                    'r' => "report",
                    'n' => "nests",
                    'b' => "b",
                    _ => "rerun",
                }
                .into(),
                arguments: match name {
                    'b' => format!(r#"{{"input":"{nonce}"}}"#),
                    _ => format!(r#"{{"n":{nonce}}}"#),
                },
                extra: None,
            });
        }
        if reply.calls.is_empty() {
            reply.text = Some(format!("answer {}", world.nonce()));
        }
        Ok(reply)
    }
}

/// A tool, by what becomes of a call whose outcome is unknown.
struct Probe(UnknownOutcome);

#[async_trait]
impl Tool for Probe {
    fn spec(&self) -> Spec {
        let name = if self.0 == UnknownOutcome::Report { "report" } else { "rerun" };
        let mut spec = Spec::new(name, "A tool.", json!({"type": "object"}));
        spec.on_unknown_outcome = self.0;
        spec
    }

    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError> {
        let outside = context.deps::<Outside>()?;
        let _busy = outside.busy(context.session_id(), context.turn_id());
        outside.ran(context.idempotency_key(), &arguments, self.0 == UnknownOutcome::Report);
        Output::of(&outside.work().await?)
    }
}

/// The tools that every process has.
pub(super) static TOOLS: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::new();
    for outcome in [UnknownOutcome::Rerun, UnknownOutcome::Report] {
        registry.register(Arc::new(Probe(outcome))).unwrap();
    }
    registry.register(super::coded::nests()).unwrap();
    registry
});

fn published(topic: &str, value: Option<&[u8]>) -> Option<Published> {
    if topic != "agent.results" {
        return None;
    }
    let result: TurnResult = serde_json::from_slice(value?).ok()?;
    let answer = result.output.unwrap_or_else(|| format!("{:?}", result.error));
    let (session, turn) = (result.session_id.as_str().to_owned(), result.turn_id.as_str().to_owned());
    Some(Published { turn, session, answer })
}

#[async_trait]
impl Sink for Outside {
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error> {
        let closed = || Error::Closed { of: "a test" };
        let Some(result) = published(record.topic, record.value) else {
            self.sim.lock().broken(|| format!("something was sent to {}", record.topic));
            return Err(closed());
        };
        let fate = self.sim.gate(Gate::Publish, self.process).await;
        if matches!(fate, Fate::Goes | Fate::Unheard) {
            self.sim.lock().results.push(result);
        }
        if fate == Fate::Goes { Ok(()) } else { Err(closed()) }
    }
}

#[async_trait]
impl OpenTransactions for Outside {
    async fn open(&self, _: i32) -> Result<Transactions, journal::Error> {
        let refused = || journal::Error::Log("the coordinator does not answer".into());
        if self.sim.gate(Gate::Init, self.process).await != Fate::Goes {
            return Err(refused());
        }
        let epoch = {
            let mut world = self.sim.lock();
            if world.without != Some(Rule::InitTransactions) {
                world.end_transaction(false);
                world.transactional.epoch += 1;
            }
            world.transactional.epoch
        };
        let (transactions, requests) = Transactions::detached();
        tokio::spawn(self.clone().transactions(epoch, requests));
        Ok(transactions)
    }
}

impl Outside {
    /// Does what the thread of a transactional producer does: ends with whatever goes wrong.
    async fn transactions(self, epoch: u64, mut requests: tokio::sync::mpsc::UnboundedReceiver<Batched>) {
        while let Some(first) = requests.recv().await {
            let mut batch = vec![first];
            while let Ok(request) = requests.try_recv() {
                batch.push(request);
            }
            let (records, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|r| (r.records, r.reply)).unzip();
            let done = self.transaction(epoch, records.into_iter().flatten().collect()).await;
            replies.into_iter().for_each(|reply| tell(reply, done));
            if !done {
                return;
            }
        }
    }

    async fn transaction(&self, epoch: u64, records: Vec<Owned>) -> bool {
        if self.sim.gate(Gate::Produce, self.process).await != Fate::Goes {
            return false;
        }
        {
            let mut world = self.sim.lock();
            if world.transactional.epoch != epoch {
                return false;
            }
            let mut results = world.transactional.open.take().unwrap_or_default();
            for record in records {
                match published(&record.topic, record.value.as_deref()) {
                    Some(result) => results.push(result),
                    None if record.topic != "agent.tool-events" => {
                        world.broken(|| format!("something was sent to {}", record.topic));
                    }
                    None => {
                        let key = String::from_utf8(record.key.unwrap_or_default()).unwrap_or_default();
                        world.events.push(key, record.value.unwrap_or_default(), Of::Open);
                    }
                }
            }
            world.transactional.open = Some(results);
        }
        let fate = self.sim.gate(Gate::Commit, self.process).await;
        let mut world = self.sim.lock();
        // What a process leaves open stays so until somebody fences it or the coordinator gives it up.
        if world.transactional.epoch != epoch || fate == Fate::Gone {
            return false;
        }
        world.end_transaction(fate != Fate::Fails);
        fate == Fate::Goes
    }
}

fn tell(reply: oneshot::Sender<Result<(), Error>>, done: bool) {
    let closed = || Error::Closed { of: "a test" };
    let _ = reply.send(if done { Ok(()) } else { Err(closed()) });
}

/// A record of the turns partition, as the consumer hands it over.
pub(super) fn record(value: &str, offset: i64, epoch: u64) -> Record {
    Record {
        partition: 0,
        epoch,
        offset,
        timestamp: None,
        key: None,
        value: Some(value.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}
