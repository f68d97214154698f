//! `Kit`: workers that run turns, and die.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio_util::sync::CancellationToken;

use super::Run;
use super::dying::{Death, Dying};
use super::spy::{Runs, Spy};
use crate::agent::CodedAgent;
use crate::app::App;
use crate::config::{Config, Kafka};
use crate::journal::Log;
use crate::journal::memory::MemoryLog;
use crate::kafka::client::max_record_bytes;
use crate::record::{EventType, Identity, StepEvent, Turn, TurnResult};
use crate::tool::{Cache, Environment, Registry, Tool, samples};
use crate::turn::ExternalIoMode;
use crate::worker::bind::{BoundAgent, Providers, bind};
use crate::worker::offline::{Offline, Sent, now_ms};

/// A program's tools, models and agents, and the log of the workers that run their turns, one after the other.
///
/// When a worker dies, what stays is the log, what was published, and what the program gave to `App::deps`. The sample
/// tools are there too, where their names are free.
pub struct Kit {
    program: Program,
    log: Arc<MemoryLog>,
    sent: Arc<Sent>,
    runs: Runs,
    /// The records so far, and when each was sent; its offset is its place.
    records: Vec<(Vec<u8>, i64)>,
}

/// What a worker is made of.
struct Program {
    agents: HashMap<String, Arc<BoundAgent>>,
    registry: Registry,
    environment: Environment,
}

impl Program {
    #[track_caller]
    #[allow(clippy::panic, reason = "a test that cannot begin has failed")]
    fn new(app: App, runs: &Runs) -> Self {
        let mut registry = Registry::new();
        let mut problems = Vec::new();
        let free = |registry: &Registry, tool: &Arc<dyn Tool>| registry.get(&tool.spec().name).is_none();
        let mut register = |registry: &mut Registry, tool| {
            let spy = Arc::new(Spy { tool, runs: runs.clone() }) as Arc<dyn Tool>;
            problems.extend(registry.register(spy).err().map(|error| error.to_string()));
        };
        app.tools.into_iter().for_each(|tool| register(&mut registry, tool));
        for sample in samples() {
            if free(&registry, &sample) {
                register(&mut registry, sample);
            }
        }
        let code = |agent: &CodedAgent| Some((agent.spec.name.clone(), Arc::clone(agent.code.as_ref()?)));
        let codes = app.agents.iter().filter_map(code).collect();
        let agents = app.agents.into_iter().map(|agent| agent.spec).collect();
        let config = Config { agents, ..Config::default() };
        let bound = bind(&config, &registry, &app.models, &Providers::new(), &codes);
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
        Self { agents: bound.agents, registry, environment }
    }
}

impl Kit {
    /// The program on an empty log.
    ///
    /// # Panics
    /// `turnmill check` would find something wrong with its tools or agents, or a worker would refuse one.
    #[track_caller]
    pub fn new(app: App) -> Self {
        let runs = Runs::default();
        Self {
            program: Program::new(app, &runs),
            log: Arc::new(MemoryLog::new(max_record_bytes(&Kafka::default()))),
            sent: Arc::default(),
            runs,
            records: Vec::new(),
        }
    }

    /// From here on workers have another program: other tools, prices, limits, instructions.
    ///
    /// # Panics
    /// As [`Kit::new`].
    #[track_caller]
    pub fn deploy(&mut self, app: App) {
        self.program = Program::new(app, &self.runs);
    }

    /// A worker runs the turn to its end, from where the last one died if one did; its result. The same turn again is the
    /// same record again.
    ///
    /// # Panics
    /// There is no result: the record went to the dead letters without one.
    #[allow(clippy::panic, reason = "what a test asked for is not there")]
    pub async fn run(&mut self, turn: &Turn) -> TurnResult {
        let dead = self.dead_letters().len();
        let before = self.results().len();
        let Identity { session, turn, .. } = self.deliver(turn, Arc::clone(&self.log) as Arc<dyn Log>).await;
        let (results, dead_letters) = (self.results(), self.dead_letters());
        let of = |result: &TurnResult| result.session_id == session && result.turn_id == turn;
        match results.iter().rfind(|result| of(result)) {
            Some(result) if results.len() > before || dead_letters.len() == dead => result.clone(),
            _ => panic!(
                "turn {turn} of session {session} has no result; the dead letters are {dead_letters:?} (another turn \
                 wants another turn_id)"
            ),
        }
    }

    /// A worker runs the turn, and dies right before it records the first event of this type, at this position where
    /// one is given. False: it came to the turn's end without one.
    #[must_use = "whether there was such an event"]
    pub async fn crash_before(&mut self, turn: &Turn, kind: EventType, position: Option<&str>) -> bool {
        self.crash(turn, Death::Before(kind.as_str().into(), position.map(Into::into))).await
    }

    /// A worker runs the turn, and dies once it has recorded so many events, its claim the first of them. False: it came
    /// to the turn's end before.
    #[must_use = "whether there were so many events"]
    pub async fn crash_after(&mut self, turn: &Turn, events: usize) -> bool {
        self.crash(turn, Death::After(events)).await
    }

    /// A worker runs the turn, and nothing of what it records after so many events is written: it goes on until it has to
    /// wait for that, and dies. A tool may have run then whose start nobody finds, so that its next run is attempt 1
    /// again. False: it came to the turn's end before.
    #[must_use = "whether there were so many events"]
    pub async fn crash_unwritten_after(&mut self, turn: &Turn, events: usize) -> bool {
        self.crash(turn, Death::Unwritten(events)).await
    }

    async fn crash(&mut self, turn: &Turn, death: Death) -> bool {
        let dead = CancellationToken::new();
        let log =
            Dying { log: Arc::clone(&self.log), death, appended: AtomicUsize::new(0), dead: dead.clone() };
        let died = tokio::select! {
            biased;
            () = dead.cancelled() => true,
            _ = self.deliver(turn, Arc::new(log)) => false,
        };
        if died {
            // It was in the worker's memory.
            self.program.environment.cache = Cache::default();
        }
        died
    }

    #[allow(clippy::panic, reason = "nothing outside a turn can fail here")]
    async fn deliver(&mut self, turn: &Turn, log: Arc<dyn Log>) -> Identity {
        let value = serde_json::to_vec(turn).unwrap_or_default();
        let place = self.records.iter().position(|(other, _)| *other == value).unwrap_or(self.records.len());
        if place == self.records.len() {
            self.records.push((value.clone(), now_ms()));
        }
        let timestamp = self.records.get(place).map_or(0, |(_, at)| *at);
        let Program { agents, registry, environment } = &self.program;
        let worker =
            Offline::new(agents.clone(), registry.clone(), environment.clone(), Arc::clone(&self.sent));
        let offset = i64::try_from(place).unwrap_or(i64::MAX);
        match worker.handle(log, offset, timestamp, value).await {
            Ok(identity) => identity,
            Err(why) => panic!("the worker stopped: {why}"),
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

    /// The log as lines without times, claims, hashes and recorded values of clock and chance, to compare with a file. Calls that run side by side are in the
    /// order in which they happened to end.
    pub fn golden(&self) -> String {
        let mut lines = String::new();
        for event in self.events() {
            let Some(turn) = &event.turn_id else { continue };
            let at = event.position.as_ref().map_or("", |position| position.as_str());
            let _ = write!(lines, "{turn}/{at} {}", event.kind.as_str());
            if let Some(tool) = &event.tool {
                let _ = write!(lines, " {tool}");
            }
            if let Some(attempt) = event.attempt {
                let _ = write!(lines, " attempt {attempt}");
            }
            if let Some(attempts) = event.attempts {
                let _ = write!(lines, " attempts {attempts}");
            }
            if let Some(raw) = &event.arguments_raw {
                let _ = write!(lines, " {raw:?}");
            }
            // What the clock or chance has said.
            let is_value = event.position.as_ref().is_some_and(|position| position.is_value());
            let texts = [event.arguments.as_ref(), event.output.as_ref().filter(|_| !is_value)];
            for text in texts.into_iter().flatten() {
                let _ = write!(lines, " {}", text.get());
            }
            if let Some(error) = &event.error {
                let _ = write!(lines, " {}", error.to_string().replace('\n', "\\n"));
            }
            lines.push('\n');
        }
        lines
    }
}

/// Runs the turn with a worker that dies, and another that goes on, once for each record of the turn's log and each way to
/// die: right before the record is written, and some time after it was handed over and lost. Each time it is a new program.
/// No key has two inputs then and no position two contents, and `check` has its say.
///
/// # Panics
/// One of that does not hold; which death it was is printed, and the log.
pub async fn every_crash(
    mut app: impl FnMut() -> App,
    turn: &Turn,
    mut check: impl FnMut(&Kit, &TurnResult),
) {
    for count in 1.. {
        let mut died = false;
        for written in [true, false] {
            let mut kit = Kit::new(app());
            let what = if written { "and died" } else { "and died when it waited for what came to nothing" };
            died |= match written {
                true => kit.crash_after(turn, count).await,
                false => kit.crash_unwritten_after(turn, count).await,
            };
            let result = kit.run(turn).await;
            let aloud =
                Aloud(&kit, format!("a worker had recorded {count} events, its claim among them, {what}"));
            promises(&kit);
            check(&kit, &result);
            drop(aloud);
        }
        if !died {
            return;
        }
    }
}

/// Says what had happened if a check fails.
struct Aloud<'a>(&'a Kit, String);

impl Drop for Aloud<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}; then another went on. The log:\n{}", self.1, self.0.golden());
        }
    }
}

#[allow(clippy::panic, reason = "a promise is broken")]
fn promises(kit: &Kit) {
    let mut contents = HashSet::new();
    for event in kit.events() {
        let content = match event.kind {
            EventType::ModelReply | EventType::ToolResult => true,
            EventType::Step => event.status.is_some(),
            _ => false,
        };
        let key = (event.session_id, event.turn_id, event.position);
        if content && !contents.insert(key.clone()) {
            panic!("a position has two contents: {key:?}");
        }
    }
    let mut inputs = HashMap::new();
    for run in kit.runs() {
        let first = inputs.entry(run.key.clone()).or_insert_with(|| run.arguments.clone());
        if *first != run.arguments {
            panic!("{} ran with {first} and with {}", run.key, run.arguments);
        }
    }
}
