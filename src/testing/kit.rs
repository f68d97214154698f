//! `Kit`: workers that run turns, and die.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio_util::sync::CancellationToken;

use super::Run;
use super::dying::{Death, Dying};
use super::spy::{Runs, Spy};
use crate::app::App;
use crate::config::Config;
use crate::journal::Log;
use crate::journal::memory::MemoryLog;
use crate::record::{EventType, StepEvent, Turn, TurnResult};
use crate::tool::{Environment, Registry, Tool, samples};
use crate::turn::ExternalIoMode;
use crate::worker::bind::{BoundAgent, bind};
use crate::worker::offline::{Offline, Sent};

/// A program's tools, models and agents, and the log of the workers that run their turns, one after the other.
///
/// What stays when a worker dies is the log, what was published, and whatever the program gave to `App::deps`.
pub struct Kit {
    agents: HashMap<String, Arc<BoundAgent>>,
    registry: Registry,
    environment: Environment,
    log: Arc<MemoryLog>,
    sent: Arc<Sent>,
    runs: Runs,
    /// The turns so far; the offset of each is its place.
    turns: Vec<Vec<u8>>,
}

impl Kit {
    /// The program on an empty log. The sample tools are there too.
    ///
    /// # Panics
    /// `turnmill check` would find something wrong with its tools or agents, or a worker would refuse one.
    #[track_caller]
    #[allow(clippy::panic, reason = "a test that cannot begin has failed")]
    pub fn new(app: App) -> Self {
        let runs = Runs::default();
        let mut registry = Registry::new();
        let mut problems = Vec::new();
        for tool in app.tools.into_iter().chain(samples()) {
            let spy = Arc::new(Spy { tool, runs: runs.clone() }) as Arc<dyn Tool>;
            problems.extend(registry.register(spy).err().map(|error| error.to_string()));
        }
        let config = Config { agents: app.agents, ..Config::default() };
        let bound = bind(&config, &registry, &app.models);
        problems.extend(bound.problems.iter().map(ToString::to_string));
        problems.extend(bound.refusals.iter().map(ToString::to_string));
        if !problems.is_empty() {
            panic!("the program cannot run:\n{}", problems.join("\n"));
        }
        let environment = Environment {
            deps: app.deps,
            external_io_mode: ExternalIoMode::RuntimeRecorded,
            ..Environment::new()
        };
        Self {
            agents: bound.agents,
            registry,
            environment,
            log: Arc::default(),
            sent: Arc::default(),
            runs,
            turns: Vec::new(),
        }
    }

    /// A worker runs the turn to its end, from where the last one died if one did; its result.
    ///
    /// # Panics
    /// There is no result: the record went to the dead letters.
    #[allow(clippy::panic, reason = "what a test asked for is not there")]
    pub async fn run(&mut self, turn: &Turn) -> TurnResult {
        let before = (self.results().len(), self.dead_letters().len());
        self.deliver(turn, Arc::clone(&self.log) as Arc<dyn Log>).await;
        let (results, dead_letters) = (self.results(), self.dead_letters());
        if results.len() == before.0 && dead_letters.len() > before.1 {
            panic!("the turn has no result; the dead letters are {dead_letters:?}");
        }
        let of = |result: &TurnResult| {
            turn.turn_id.as_ref().is_none_or(|id| *id == result.turn_id)
                && turn.session_id.as_ref().is_none_or(|id| *id == result.session_id)
        };
        results.into_iter().rfind(of).unwrap_or_else(|| panic!("the turn has no result"))
    }

    /// A worker runs the turn, and dies right before it records the first event of this type, at this position where
    /// one is given. False: it came to the turn's end without one.
    pub async fn crash_before(&mut self, turn: &Turn, kind: EventType, position: Option<&str>) -> bool {
        self.crash(turn, Death::Before(kind.as_str().into(), position.map(Into::into))).await
    }

    /// A worker runs the turn, and dies once it has recorded so many events, its claim the first of them. False: it came
    /// to the turn's end before.
    pub async fn crash_after(&mut self, turn: &Turn, events: usize) -> bool {
        self.crash(turn, Death::After(events)).await
    }

    async fn crash(&mut self, turn: &Turn, death: Death) -> bool {
        let dead = CancellationToken::new();
        let log =
            Dying { log: Arc::clone(&self.log), death, appended: AtomicUsize::new(0), dead: dead.clone() };
        tokio::select! {
            biased;
            () = dead.cancelled() => true,
            () = self.deliver(turn, Arc::new(log)) => false,
        }
    }

    #[allow(clippy::panic, reason = "nothing outside a turn can fail here")]
    async fn deliver(&mut self, turn: &Turn, log: Arc<dyn Log>) {
        let value = serde_json::to_vec(turn).unwrap_or_default();
        let offset = self.turns.iter().position(|other| *other == value).unwrap_or_else(|| {
            self.turns.push(value.clone());
            self.turns.len() - 1
        });
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let worker = Offline::new(
            self.agents.clone(),
            self.registry.clone(),
            self.environment.clone(),
            Arc::clone(&self.sent),
        );
        if let Err(why) = worker.handle(log, offset, value).await {
            panic!("the worker stopped: {why}");
        }
    }

    /// The events on the log, of all turns and workers.
    pub fn events(&self) -> Vec<StepEvent> {
        self.log.events()
    }

    /// Every run of a tool, in the order in which they began.
    pub fn runs(&self) -> Vec<Run> {
        self.runs.all()
    }

    /// The results that were published. After a crash one may be there twice.
    pub fn results(&self) -> Vec<TurnResult> {
        self.sent.results()
    }

    /// The codes of the dead letters.
    pub fn dead_letters(&self) -> Vec<String> {
        self.sent.dead_letters()
    }

    /// The log as lines that are the same in every run, to compare with a file: without times, claims and hashes.
    pub fn golden(&self) -> String {
        let mut lines = String::new();
        for event in self.events() {
            let Some(turn) = &event.turn_id else { continue };
            let at = event.position.as_ref().map_or("", |position| position.as_str());
            let _ = write!(lines, "{turn}/{at} {}", event.kind.as_str());
            if let Some(tool) = &event.tool {
                let _ = write!(lines, " {tool}");
            }
            if let Some(attempt) = event.attempt.or(event.attempts) {
                let _ = write!(lines, " attempt {attempt}");
            }
            if let Some(raw) = &event.arguments_raw {
                let _ = write!(lines, " {raw:?}");
            }
            let texts = [event.arguments.as_ref(), event.output.as_ref()];
            for text in texts.into_iter().flatten() {
                let _ = write!(lines, " {}", text.get());
            }
            if let Some(error) = &event.error {
                let _ = write!(lines, " {error}");
            }
            lines.push('\n');
        }
        lines
    }
}

/// Runs the turn once for each record of its log with a worker that dies right before it, and another that goes on; each
/// time on a new program. After each, no key has had two inputs, no position two contents, and `check` has its say.
///
/// # Panics
/// One of that does not hold.
#[allow(clippy::panic, reason = "a promise is broken")]
pub async fn every_crash(app: impl Fn() -> App, turn: &Turn, check: impl Fn(&Kit, &TurnResult)) {
    for count in 1.. {
        let mut kit = Kit::new(app());
        let died = kit.crash_after(turn, count).await;
        let result = kit.run(turn).await;
        let mut contents = HashSet::new();
        for event in kit.events() {
            let content = matches!(event.kind, EventType::ModelReply | EventType::ToolResult);
            if let Some(position) =
                event.position.filter(|position| content && !contents.insert(position.clone()))
            {
                panic!("after {count} events: position {position} has two contents");
            }
        }
        let mut inputs = HashMap::new();
        for run in kit.runs() {
            let first = inputs.entry(run.key.clone()).or_insert_with(|| run.arguments.clone());
            if *first != run.arguments {
                panic!("after {count} events: {} ran with {first} and with {}", run.key, run.arguments);
            }
        }
        check(&kit, &result);
        if !died {
            return;
        }
    }
}
