//! Loading as a whole.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | what loads, where fields are found, any text at all |
//! | `problems` | each kind of problem, with its field and line |
//! | `http_tools` | `[[http_tools]]` |
//! | `providers` | `[[providers]]`, `[[prices]]`, and an agent's models |
//! | `variables` | the environment |

mod http_tools;
mod problems;
mod providers;
mod variables;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::load::load_file;
use super::*;
use crate::tool::Pattern;

/// A folder with a configuration file and a script.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("turnmill.toml"), text).unwrap();
        fs::write(folder.path().join("script.json"), "{}").unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("turnmill.toml")
    }

    fn load(&self, env: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let env = env.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string()));
        load(Some(&self.file()), env)
    }
}

fn load_text(text: &str, env: &[(&str, &str)]) -> Loaded {
    Folder::new(text).load(env).unwrap_or_else(|error| panic!("{error}"))
}

/// The problems, one a line, with the folder cut off.
fn problems(text: impl AsRef<[u8]>, env: &[(&str, &str)]) -> Vec<String> {
    let folder = Folder::new(text);
    let error = folder.load(env).expect_err("there is a problem");
    let prefix = format!("{}/", folder.0.path().display());
    error.to_string().lines().map(|line| line.replace(&prefix, "")).collect()
}

#[test]
fn defaults() {
    let loaded = load_text("", &[]);
    assert_eq!(loaded.config.kafka.brokers, "127.0.0.1:9092");
    assert_eq!(loaded.config.topics.turns, "agent.turns");
    assert_eq!(loaded.config.worker.max_in_flight.get(), 256);
    assert_eq!(loaded.config.worker.drain_timeout, Duration::from_secs(25));
    assert!(loaded.config.agents.is_empty());
}

const FULL: &str = r#"
[kafka]
brokers = "a:9092, [::1]:9093"
group_id = "g"
[kafka.properties]
"security.protocol" = "ssl"
session.timeout.ms = 6000
"socket.keepalive.enable" = true

[topics]
turns = "t1"
events = "t2"
results = "t3"
dead_letters = "t4"
status = "t5"
control = "t6"

[worker]
max_in_flight = 1_000
drain_timeout = "1m 30s"
delivery = "at-least-once"

[admin]
listen = "[::]:9464"

[tools]
samples = true

[[agents]]
name = "one"
model = "scripted"

[[agents]]
name = "two"
system = "Help."
model = "anthropic::x"
tools = [
    "echo",
    "github__*",
]
turn_tools = ["add"]
max_tool_calls = 5
max_model_calls = 6
max_tokens = 7
max_cost = "0.80"
max_run_time = "9m"
script = "script.json"

[[mcp_servers]]
name = "github"
command = ["github-mcp-server", "stdio"]
requires_approval = ["delete_issue"]

[[mcp_servers]]
name = "web"
url = "http://localhost:1"
"#;

#[test]
fn every_field() {
    let folder = Folder::new(FULL);
    let loaded = folder.load(&[]).unwrap();
    let config = &loaded.config;
    assert_eq!(config.kafka.brokers, "a:9092, [::1]:9093");
    assert_eq!(config.kafka.properties["security.protocol"], "ssl");
    assert_eq!(config.kafka.properties["session.timeout.ms"], "6000");
    assert_eq!(config.kafka.properties["socket.keepalive.enable"], "true");
    assert_eq!(config.topics.control, "t6");
    assert_eq!(config.worker.max_in_flight.get(), 1000);
    assert_eq!(config.worker.drain_timeout, Duration::from_secs(90));
    assert_eq!(config.admin.listen.port(), 9464);
    assert!(config.tools.samples);
    assert_eq!(config.agents[0], AgentSpec::new("one", "scripted"));
    assert_eq!(config.agents[1].tools, [Pattern::new("echo"), Pattern::new("github__*")]);
    assert_eq!(config.agents[1].script.as_deref(), Some(folder.0.path().join("script.json").as_path()));
    let limits = config.agents[1].limits();
    assert_eq!((limits.max_tool_calls, limits.max_model_calls, limits.max_tokens), (5, Some(6), Some(7)));
    assert_eq!(limits.max_cost, Some("0.80".parse().unwrap()));
    assert_eq!(config.agents[1].max_run_time, Some(Duration::from_secs(540)));
    assert_eq!(config.mcp_servers[0].requires_approval, ["delete_issue"]);
    assert_eq!(loaded.base_dir, folder.0.path());
    assert_eq!(loaded.file(), Some(folder.file().as_path()));
}

#[test]
fn the_reference_is_right() {
    let reference = include_str!("../../../docs/configuration.md");
    let example = reference.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = Folder::new(example);
    fs::write(folder.0.path().join("support.json"), "{}").unwrap();
    assert_eq!(folder.load(&[]).unwrap().config.agents[0].tools.len(), 2);
    for name in properties::refused_names() {
        assert!(reference.contains(&format!("`{name}`")), "{name} is not in docs/configuration.md");
    }
}

#[test]
fn lines_of_fields() {
    let loaded = load_text(FULL, &[("TURNMILL__KAFKA__GROUP_ID", "h")]);
    assert_eq!(loaded.line_of("kafka.brokers"), Some(3));
    assert_eq!(loaded.line_of("kafka.properties.\"session.timeout.ms\""), Some(7));
    assert_eq!(loaded.line_of("agents[0].model"), Some(31));
    assert_eq!(loaded.line_of("agents[1].tools"), Some(37));
    assert_eq!(loaded.line_of("agents[1].tools[1]"), Some(39));
    assert_eq!(loaded.line_of("agents[0].tools"), Some(29), "not set, so its agent's line");
    assert_eq!(loaded.line_of("kafka.group_id"), None, "the environment has set it");
    assert_eq!(loaded.line_of("nothing[7].\"of"), None);

    let problem = loaded.locate(Problem::field("agents[1].tools", "no such tool"));
    assert_eq!((problem.line, problem.file.as_deref()), (Some(37), loaded.file()));
    let problem = loaded.locate(Problem::field("kafka.group_id", "is taken"));
    assert_eq!(problem.to_string(), "TURNMILL__KAFKA__GROUP_ID: kafka.group_id: is taken");
}

#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new("");
    let missing = folder.0.path().join("no.toml");
    let none = std::iter::empty;
    let error = load(Some(&missing), none()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: there is no such file", missing.display()));
    assert_eq!(error.problems[0].file.as_ref(), Some(&missing));

    let loaded = load_file(&missing, false, none()).unwrap();
    assert_eq!((loaded.file(), loaded.line_of("kafka")), (None, None));
    let error = load_file(&missing, false, [("TURNMILL__X".into(), "1".into())].into_iter()).unwrap_err();
    assert_eq!(error.problems[0].variable.as_deref(), Some("TURNMILL__X"));

    let error = load(Some(folder.0.path()), none()).unwrap_err();
    assert!(error.to_string().contains(": cannot be read: "), "{error}");
    assert_eq!(problems(b"a = 1\nb = \"\xff\"", &[]), ["turnmill.toml:2: is not UTF-8 text"]);
}

#[test]
fn passwords_are_not_shown() {
    let text = "[kafka.properties]\n\"sasl.password\" = \"secret\"";
    assert!(!format!("{:?}", load_text(text, &[])).contains("secret"));
    for text in ["kafka = \"secret\"", "kafka.properties = \"secret\"", "x = secret", "x = \"secret\ny = 1"] {
        assert!(!problems(text, &[]).concat().contains("secret"), "{text}");
    }
}

/// Text that is often TOML, often with our names.
fn toml_like() -> impl Strategy<Value = String> {
    let names = [
        "kafka",
        "properties",
        "brokers",
        "worker",
        "max_in_flight",
        "drain_timeout",
        "delivery",
        "agents",
        "name",
        "model",
        "tools",
        "script",
        "mcp_servers",
        "command",
        "url",
        "admin",
        "listen",
        "topics",
        "turns",
        "x",
        "\"a.b\"",
    ];
    let values = [
        "1",
        "0",
        "-1",
        "1.5",
        "true",
        "\"\"",
        "\"x\"",
        "\"25s\"",
        "[]",
        "[1, \"x\"]",
        "{}",
        "[{}]",
        "{ name = \"x\" }",
        "[[1]]",
        "1979-05-27",
        "nan",
        "99999999999999999999",
        "\"exactly-once\"",
        "'",
    ];
    let key = || {
        prop::collection::vec(prop::sample::select(names.to_vec()), 1..4).prop_map(|parts| parts.join("."))
    };
    let line = prop_oneof![
        key().prop_map(|key| format!("[{key}]\n")),
        key().prop_map(|key| format!("[[{key}]]\n")),
        (key(), prop::sample::select(values.to_vec())).prop_map(|(key, value)| format!("{key} = {value}\n")),
    ];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

fn no_panic(text: &str, env: &[(&str, &str)]) -> Result<(), TestCaseError> {
    if let Err(error) = Folder::new(text).load(env) {
        let lines = text.lines().count().max(1);
        prop_assert!(!error.problems.is_empty());
        for problem in &error.problems {
            prop_assert!(problem.line.is_none_or(|line| (1..=lines).contains(&line)), "{problem}");
            prop_assert!(!problem.message.contains("invalid type"), "serde's own words: {problem}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text(text: String) {
        no_panic(&text, &[])?;
    }

    #[test]
    fn any_toml(text in toml_like()) {
        no_panic(&text, &[])?;
    }

    #[test]
    fn any_variable(text in toml_like(), name in "(KAFKA|AGENTS|WORKER|[A-Z0-9_]{0,3})(__[A-Z0-9_]{0,4}){0,4}", value: String) {
        no_panic(&text, &[(&format!("TURNMILL__{name}"), &value)])?;
    }
}
