//! `Mill`: a test's own topics, group, configuration and ledger, and what is done with them.

pub mod checks;
pub mod http;
pub mod process;
pub mod proxy;
pub mod topic;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

use process::{Finished, Process, Program};
use topic::{Cluster, Reader, Record, Sent};

/// How long anything is waited for: only a test that fails waits so long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Looks again until there is something to see.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        sleep(Duration::from_millis(20));
    }
}

/// The address of the broker.
pub fn brokers() -> &'static str {
    static BROKERS: OnceLock<String> = OnceLock::new();
    BROKERS.get_or_init(|| {
        if let Ok(given) = std::env::var("KAFKA_BOOTSTRAP_SERVERS") {
            return given;
        }
        let up = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/kafka")).arg("up").output();
        let up = up.expect("scripts/kafka runs");
        assert!(up.status.success(), "scripts/kafka up: {}", String::from_utf8_lossy(&up.stderr));
        String::from_utf8(up.stdout).unwrap().trim().to_owned()
    })
}

/// What a test wants of its configuration.
pub struct Setup {
    id: String,
    program: Program,
    /// What the test itself reaches the brokers with; none: those of [`brokers`], which ask nobody who he is.
    client: Option<ClientConfig>,
    brokers: Option<String>,
    partitions: u32,
    properties: Vec<(&'static str, String)>,
    worker: String,
    agent: String,
    more: String,
}

/// The sample tools.
const SAMPLES: &[&str] = &["echo", "add", "sleep", "flaky"];
/// The tools of the fixture that an agent may be offered.
const LEDGER: &[&str] = &[
    "note",
    "slow_note",
    "stuck",
    "block",
    "gate",
    "block_gate",
    "report_gate",
    "patient",
    "abort",
    "meet",
    "ping",
    "big",
    "grid",
    "quote",
    "tell",
    "locked",
    "odd",
    "toll",
    "relay",
    "poison",
    "fatal",
];

impl Setup {
    fn new(name: &str, program: Program, tools: &[&str]) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            id: format!("it-{name}-{}", since.as_nanos()),
            program,
            client: None,
            brokers: None,
            partitions: 1,
            // A worker that was killed is missed soon; one that waits for the processor is not.
            properties: vec![("session.timeout.ms", "6000".into()), ("heartbeat.interval.ms", "500".into())],
            worker: r#"drain_timeout = "20s""#.into(),
            agent: format!("tools = {}", json!(tools)),
            more: String::new(),
        }
    }

    /// The stock program and an agent `support` with the sample tools.
    pub fn stock(name: &str) -> Self {
        Self::new(name, Program::Stock, SAMPLES)
    }

    /// The fixture and an agent `support` with its tools and the samples.
    pub fn ledger(name: &str) -> Self {
        Self::new(name, Program::Ledger, &[LEDGER, SAMPLES].concat())
    }

    /// With results exactly once, or at least once.
    pub fn exactly_once(mut self, yes: bool) -> Self {
        let mode = if yes { "exactly-once" } else { "at-least-once" };
        self.worker = format!("{}\ndelivery = \"{mode}\"", self.worker);
        self
    }

    pub fn partitions(mut self, count: u32) -> Self {
        self.partitions = count;
        self
    }

    pub fn property(mut self, name: &'static str, value: impl ToString) -> Self {
        self.properties.retain(|(other, _)| *other != name);
        self.properties.push((name, value.to_string()));
        self
    }

    /// The address that the program is given, if it is another than the test's.
    pub fn brokers(mut self, brokers: &str) -> Self {
        self.brokers = Some(brokers.into());
        self
    }

    /// On the brokers that the test reaches with this client.
    #[allow(dead_code, reason = "for tests/secure")]
    pub fn client(mut self, client: &ClientConfig) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// The fields of `[worker]`.
    pub fn worker(mut self, toml: &str) -> Self {
        self.worker = toml.into();
        self
    }

    /// The fields of the agent beside name and model, in place of its list of tools.
    pub fn agent(mut self, toml: &str) -> Self {
        self.agent = toml.into();
        self
    }

    /// More tables.
    pub fn more(mut self, toml: &str) -> Self {
        self.more = toml.into();
        self
    }

    /// With its topics.
    pub fn ready(self) -> Mill {
        let partitions = self.partitions.to_string();
        let mill = self.without_topics();
        mill.run(&["topics", "apply", "--partitions", &partitions]).expect(0);
        mill
    }

    /// Nothing but the configuration.
    pub fn without_topics(self) -> Mill {
        let mut client = self.client.clone().unwrap_or_default();
        if client.get("bootstrap.servers").is_none() {
            client.set("bootstrap.servers", brokers());
        }
        let address = self.brokers.as_deref().or(client.get("bootstrap.servers")).unwrap_or_default();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("turnmill.toml"), self.toml(address)).unwrap();
        let cluster = Cluster::new(client);
        Mill { dir, id: self.id, program: self.program, cluster }
    }

    fn toml(&self, brokers: &str) -> String {
        let Self { id, worker, agent, more, .. } = self;
        let properties: String =
            self.properties.iter().map(|(name, value)| format!("{name:?} = {value:?}\n")).collect();
        let topics: String = topic::NAMES.iter().map(|name| format!("{name} = \"{id}.{name}\"\n")).collect();
        format!(
            "[kafka]\nbrokers = {brokers:?}\ngroup_id = {id:?}\n\n[kafka.properties]\n{properties}\n\
             [topics]\n{topics}\n[worker]\n{worker}\n\n[admin]\nlisten = \"127.0.0.1:0\"\n\n[tools]\nsamples = true\n\n\
             [[agents]]\nname = \"support\"\nmodel = \"scripted\"\n{agent}\n\n{more}\n"
        )
    }
}

/// A test's own part of the cluster.
pub struct Mill {
    dir: TempDir,
    pub id: String,
    program: Program,
    pub cluster: Cluster,
}

impl Drop for Mill {
    fn drop(&mut self) {
        self.cluster.delete_topics(topic::NAMES.iter().map(|name| self.topic(name)));
    }
}

impl Mill {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.id)
    }

    /// Changes the configuration of what is started from now on.
    pub fn reconfigure(&self, from: &str, to: &str) {
        let file = self.path().join("turnmill.toml");
        let before = fs::read_to_string(&file).unwrap();
        let after = before.replace(from, to);
        assert_ne!(before, after, "the configuration has no {from:?}");
        fs::write(file, after).unwrap();
    }

    /// Starts a command of the program.
    pub fn spawn(&self, args: &[&str]) -> Process {
        self.spawn_with(&[], args)
    }

    /// Starts a command with these variables.
    pub fn spawn_with(&self, variables: &[(String, String)], args: &[&str]) -> Process {
        Process::spawn(self.program, self.path(), variables, args)
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Finished {
        self.spawn(args).wait()
    }

    pub fn worker(&self) -> Process {
        self.spawn(&["worker"])
    }

    /// A worker that has a partition, or more.
    pub fn ready_worker(&self) -> Process {
        let mut worker = self.worker();
        worker.wait_for_log("partition ready");
        worker
    }

    /// Sends turns, by their sessions.
    pub fn send<'a>(&self, turns: impl IntoIterator<Item = &'a Value>) {
        for turn in turns {
            let (key, value) = (turn["session_id"].as_str(), turn.to_string());
            self.queue(Sent {
                key: key.map(str::as_bytes),
                value: Some(value.as_bytes()),
                ..Sent::default()
            });
        }
        self.cluster.flush();
    }

    /// Sends one record as it is.
    pub fn send_record(&self, record: Sent<'_>) {
        self.queue(record);
        self.cluster.flush();
    }

    fn queue(&self, record: Sent<'_>) {
        self.cluster.produce(&self.topic("turns"), record);
    }

    pub fn reader(&self, topic: &str) -> Reader {
        Reader::open(&self.cluster, &self.topic(topic))
    }

    /// The results of the first `count` turns to have one, duplicates among them.
    pub fn results(&self, count: usize) -> Vec<Value> {
        let mut reader = self.reader("results");
        reader.until(&format!("results of {count} turns"), |records| {
            let turns: HashSet<_> = records.iter().map(Record::turn).collect();
            turns.len() >= count
        });
        reader.records.iter().map(Record::json).collect()
    }

    /// The first result of a turn, awaited.
    pub fn result(&self, turn: &str) -> Value {
        let mut reader = self.reader("results");
        reader.until(&format!("a result of {turn}"), |records| records.iter().any(|r| r.turn().1 == turn));
        reader.records.iter().find(|r| r.turn().1 == turn).unwrap().json()
    }

    /// What a topic has now.
    pub fn records(&self, topic: &str) -> Vec<Record> {
        let mut reader = self.reader(topic);
        reader.read_to_end();
        reader.records
    }

    /// The events so far.
    pub fn events(&self) -> Events {
        Events(self.records("events").iter().map(Record::json).collect())
    }

    /// Waits for an event of this type, at a position where one is given.
    pub fn wait_for_event(&self, kind: &str, position: Option<&str>) {
        let fits = |event: &Value| event["type"] == kind && position.is_none_or(|p| event["position"] == p);
        let what = format!("{kind} {}", position.unwrap_or_default());
        self.reader("events").until(&what, |records| records.iter().any(|r| fits(&r.json())));
    }

    /// The runs of tools so far, in their order.
    pub fn ledger(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path().join(process::LEDGER_FILE)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the ledger has so many runs of a tool.
    pub fn wait_for_runs(&self, tool: &str, count: usize) {
        until(&format!("{count} runs of {tool}"), || {
            (self.ledger().iter().filter(|run| run["tool"] == tool).count() >= count).then_some(())
        });
    }

    /// Waits until the group has committed the end of every partition of the turns.
    pub fn wait_until_committed(&self) {
        let ends = self.cluster.ends(&self.topic("turns"));
        until(&format!("commits of {ends:?}"), || {
            (self.cluster.committed(&self.id, &self.topic("turns")) == ends).then_some(())
        });
    }
}

/// Events, in the order of each partition.
pub struct Events(pub Vec<Value>);

impl Events {
    pub fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|event| event["type"] == kind).collect()
    }

    /// The events of a turn at a position.
    pub fn at(&self, turn: &str, position: &str) -> Vec<&Value> {
        self.0.iter().filter(|e| e["turn_id"] == turn && e["position"] == position).collect()
    }

    /// The types of the events of a turn at a position.
    pub fn types_at(&self, turn: &str, position: &str) -> Vec<&str> {
        self.at(turn, position).iter().filter_map(|event| event["type"].as_str()).collect()
    }

    /// The result of a call, which is there.
    pub fn result(&self, turn: &str, position: &str) -> &Value {
        let found = self.at(turn, position).into_iter().find(|event| event["type"] == "tool:result");
        found.unwrap_or_else(|| panic!("no tool:result of {turn} at {position}"))
    }
}

/// A turn of the agent `support` whose model says this.
pub fn turn(session: &str, id: &str, replies: &[Value]) -> Value {
    json!({
        "turn_id": id,
        "session_id": session,
        "agent": "support",
        "input": "go",
        "metadata": {"script": json!({"replies": replies}).to_string()},
    })
}

/// A reply that calls tools.
pub fn calls(calls: &[Value]) -> Value {
    json!({"calls": calls})
}

/// A call of a tool. A text as its arguments is what the model wrote.
pub fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// The last reply.
pub fn text(text: &str) -> Value {
    json!({"text": text})
}

/// A turn that calls one tool.
pub fn one_call(session: &str, id: &str, name: &str, arguments: Value) -> Value {
    turn(session, id, &[calls(&[call(name, arguments)]), text("done")])
}
