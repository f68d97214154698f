//! The shipped driver over a log in memory, with a model and tools that show when they are asked again.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | `World`: what outlives a worker, and the delivery of its one record |
//! | `outside` | the model, the tools and the sink, which remember everything |
//! | `shapes` | the kinds of turns |
//! | `coded` | agents in code, for some of them |
//! | `log` | what a log says; a log that loses appends |
//! | `prefix` | a crash after every record of the log |
//! | `crash` | every append lost, or the last thing a worker does |
//! | `changed` | a rerun with another definition, another prompt, another agent |
//! | `sizes` | what is larger than a record may be |
//! | `stop` | drain |
//! | `switches` | agents and tools that are turned off |
//! | `records` | records that are no turn, and the order of the end |

mod changed;
mod coded;
mod crash;
mod log;
mod outside;
mod prefix;
mod records;
mod shapes;
mod sizes;
mod stop;
mod switches;

use std::num::NonZeroU32;

use super::*;
use crate::config::{AgentSpec, Config, Topics};
use crate::journal::memory::MemoryLog;
use crate::journal::{Entries, Log, Pass, Receipt};
use crate::model::{Model, Request};
use crate::record::read_turn;
use crate::turn::{Hash, Message, Reply, ReplyCall};
use crate::worker::bind::{Providers, bind};
use crate::worker::offline::{Delivered, deliver};
use log::{Facts, Lossy};
use outside::{Nonces, Outside, Probe};
use shapes::Shape;

const TURN: &str = r#"{"turn_id":"t-1","session_id":"s/1","agent":"a","input":"go"}"#;
const KEY: &str = "s%2F1/t-1";

/// What outlives a worker: the log, what was published, and what the outside has seen. The settings are those
/// of the next worker.
struct World {
    log: Arc<MemoryLog>,
    outside: Arc<Outside>,
    shape: Shape,
    system: String,
    /// The name of the agent that the worker has.
    agent: &'static str,
    /// The tools that it has, and what each is described as.
    tools: Vec<(&'static str, &'static str)>,
    /// The value of the record, and its offset.
    turn: Vec<u8>,
    offset: i64,
    own_header: Option<Vec<u8>>,
    off: crate::config::Switches,
    stop: Stop,
    /// Whether a reply is confirmed before its tools start.
    durable: bool,
}

impl Delivered {
    fn is_finished(&self) -> bool {
        matches!(self, Self::Finished(_))
    }
}

impl World {
    fn new(shape: &Shape) -> Self {
        Self {
            log: Arc::default(),
            outside: Arc::default(),
            shape: shape.clone(),
            system: "You help.".into(),
            agent: "a",
            tools: shape.tools().into_iter().map(|name| (name, "A tool.")).collect(),
            turn: TURN.into(),
            offset: 7,
            own_header: None,
            off: crate::config::Switches::default(),
            stop: Stop { boundary: CancellationToken::new(), now: CancellationToken::new() },
            durable: true,
        }
    }

    /// A world whose record was delivered to its end.
    async fn finished(shape: &Shape) -> Self {
        let world = Self::new(shape);
        world.finish().await;
        world
    }

    /// As [`Self::finished`], and then the log lost everything after its first `count` records.
    async fn cut(shape: &Shape, count: usize) -> Self {
        let world = Self::finished(shape).await;
        world.log.truncate(count);
        world.outside.forget();
        world
    }

    /// As [`Self::cut`] before the first event of this type and, where there is one, position.
    async fn cut_before(shape: &Shape, kind: EventType, position: Option<&str>) -> Self {
        let events = Self::finished(shape).await.log.events();
        let is = |event: &StepEvent| {
            event.kind == kind
                && position.is_none_or(|p| event.position.as_ref().is_some_and(|e| e.as_str() == p))
        };
        Self::cut(shape, events.iter().position(is).unwrap()).await
    }

    /// A worker comes up, restores the partition and is given the record; as the supervisor does it.
    async fn deliver(&self, log: Arc<dyn Log>) -> Delivered {
        deliver(&self.shared(), log, 7, self.job(), &self.stop).await
    }

    /// Delivers the record where nothing goes wrong any more.
    async fn finish(&self) -> Delivered {
        let delivered = self.deliver(self.log.clone()).await;
        assert!(!matches!(delivered, Delivered::Halted(_)), "{}: {delivered:?}", self.shape.name);
        delivered
    }

    fn job(&self) -> Job {
        let read = read_turn("agent.turns", 0, self.offset, None, Some(&self.turn));
        let (identity, turn) = match read {
            Ok((identity, turn)) => (identity, Ok(Box::new(turn))),
            Err(unreadable) => (unreadable.identity.clone(), Err(unreadable)),
        };
        let record = Record {
            partition: 0,
            epoch: 1,
            offset: self.offset,
            // Far from any deadline.
            timestamp: Some(4_000_000_000_000),
            key: Some(b"key".to_vec()),
            value: Some(self.turn.clone()),
            headers: vec![("own".into(), self.own_header.clone())],
        };
        Job { record, identity, turn, expired: false }
    }

    fn shared(&self) -> Arc<Shared> {
        let mut registry = Registry::new();
        for (name, description) in &self.tools {
            registry.register(Arc::new(Probe::new(name, description, &self.outside))).unwrap();
        }
        let agent = AgentSpec::new(self.agent, "nonces")
            .system(&self.system)
            .tools(["*"])
            .max_tool_calls(NonZeroU32::new(self.shape.max_tool_calls).unwrap());
        let others = &self.shape.others;
        let agent = agent.sub_agents(others.iter().map(|other| other.name));
        let mut agents = vec![agent];
        agents.extend(others.iter().map(|other| AgentSpec::new(other.name, "nonces").tools(["*"])));
        let own = self.shape.code.iter().map(|code| (self.agent.to_owned(), Arc::clone(code)));
        let other = |other: &shapes::Other| Some((other.name.to_owned(), Arc::clone(other.code.as_ref()?)));
        let codes = own.chain(others.iter().filter_map(other)).collect();
        let config = Config { agents, ..Config::default() };
        let model: Arc<dyn Model> = Arc::new(Nonces::new(&self.shape, &self.outside));
        let bound = bind(
            &config,
            &registry,
            &HashMap::from([("nonces".to_owned(), model)]),
            &Providers::new(),
            &codes,
        );
        assert!(bound.problems.is_empty(), "{:?}", bound.problems);
        Arc::new(Shared {
            agents: bound.agents,
            registry,
            environment: Environment {
                deps: crate::tool::Deps::new(Arc::clone(&self.outside)),
                ..Environment::new()
            },
            outbox: Outbox::new(self.outside.clone(), &Topics::default()),
            cancels: Cancels::default(),
            turns_topic: "agent.turns".into(),
            health: Health::default(),
            switches: Switches::new(&self.off),
            max_redeliveries: 5,
            step_boundary_durability: self.durable,
            clock: now_ms,
            load: crate::kafka::paced::Load::default(),
        })
    }

    fn facts(&self) -> Facts {
        Facts::of(&self.log.events())
    }

    /// The one result that was published since the outside forgot.
    fn result(&self) -> TurnResult {
        let mut results = self.outside.results();
        assert_eq!(results.len(), 1, "{}: {results:?}", self.shape.name);
        results.remove(0)
    }

    /// Whether a result is what a turn of this shape comes to.
    fn check(&self, result: &TurnResult, context: &str) {
        let name = self.shape.name;
        let end = match &result.error {
            None => Ok(result.output.as_deref().unwrap().split('<').next().unwrap().trim_end()),
            Some(failure) => Err(failure.code.as_ref()),
        };
        assert_eq!(end, self.shape.end, "{name}, {context}: {result:?}");
        let status = if end.is_ok() { TurnStatus::Completed } else { TurnStatus::Failed };
        assert_eq!((result.status, result.output.is_some()), (status, end.is_ok()), "{name}, {context}");
        let (model_calls, tool_calls) = self.shape.used;
        let usage = ResultUsage {
            model_calls,
            tool_calls,
            input_tokens: 3 * u64::from(model_calls),
            output_tokens: 2 * u64::from(model_calls),
            cost: crate::tool::Decimal::ZERO,
        };
        assert_eq!(result.usage, usage, "{name}, {context}");
    }

    /// What holds of every log and every outside at the end, however often the turn was interrupted.
    async fn check_whole(&self, context: &str) {
        let name = self.shape.name;
        let facts = self.facts();
        assert_eq!((facts.outputs, facts.ends), (1, 1), "{name}, {context}: one answer, one end");
        assert_eq!(facts.twice, [""; 0], "{name}, {context}: a position never has two contents");
        self.outside.check_keys(&format!("{name}, {context}"));
        for result in self.outside.results() {
            self.check(&result, context);
        }
        let mut answers = self.outside.results();
        answers.iter_mut().for_each(|result| result.events = None);
        answers.dedup();
        assert!(answers.len() <= 1, "{name}, {context}: two results differ: {answers:?}");

        // The log explains itself: a rerun from it alone comes to the same and does nothing.
        let keep = facts.output.unwrap();
        let replay = Self::new(&self.shape);
        replay.log.copy(&self.log, keep);
        replay.finish().await;
        replay.check(&replay.result(), context);
        assert_eq!(replay.outside.asked(), [""; 0], "{name}, {context}: a replay asks nothing");
        assert_eq!(replay.outside.keys_run(), [""; 0], "{name}, {context}: a replay runs nothing");
    }
}
