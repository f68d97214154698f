//! Settings: one TOML file, and environment variables over it.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | what can be set, with units, defaults and bounds |
//! | `agent` | the same of `[[agents]]` |
//! | `model_names` | the model of an agent, or several |
//! | `provider` | the same of `[[providers]]` and `[[prices]]` |
//! | `http_tool` | the same of `[[http_tools]]`, and the tools that they become |
//! | `load` | the file and the environment, layered; every problem with its field and line |
//! | `field` | the place of a field: `agents[0].tools[1]` |
//! | `problem` | what is wrong, and where it was set |
//! | `tree` | the values as they were written, each with its place |
//! | `env` | the variables, over the tree |
//! | `variables` | `${NAME}` in headers and keys |
//! | `decode` | from the tree to the types of this file, noting every misfit |
//! | `validate`, `properties` | what the types do not say |
//!
//! A variable `TURNMILL__SECTION__FIELD` overrides `field` of `[section]`, and `TURNMILL__AGENTS__0__MODEL` the
//! model of the first agent. In `[kafka.properties]` an underscore of the variable's last part stands for a dot:
//! `TURNMILL__KAFKA__PROPERTIES__SECURITY_PROTOCOL`. `docs/configuration.md` is the reference.

mod agent;
mod decode;
mod env;
mod field;
mod http_tool;
mod load;
mod model_names;
mod problem;
mod properties;
mod provider;
#[cfg(test)]
mod tests;
mod tree;
mod validate;
mod variables;

pub use agent::AgentSpec;
pub use env::environment;
pub use http_tool::{HttpTool, Method, Schema};
pub(crate) use load::look;
pub use load::{Loaded, load};
pub use model_names::ModelNames;
pub use problem::{ConfigError, Problem};
pub(crate) use provider::split;
pub use provider::{ModelPrice, Provider};

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

/// Everything that can be set.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The brokers and the consumer group.
    pub kafka: Kafka,
    /// The names of the topics.
    pub topics: Topics,
    /// How a worker works.
    pub worker: Worker,
    /// Where metrics and health are served.
    pub admin: Admin,
    /// Where results of tools are kept for other calls.
    pub cache: Cache,
    /// The tools that need no code.
    pub tools: Tools,
    /// What is turned off. Alone of all settings it can change while a worker runs.
    pub switches: Switches,
    /// The agents.
    pub agents: Vec<AgentSpec>,
    /// Who is asked for replies.
    pub providers: Vec<Provider>,
    /// What replies cost.
    pub prices: Vec<ModelPrice>,
    /// The tools that are HTTP endpoints.
    pub http_tools: Vec<HttpTool>,
    /// The MCP servers whose tools the agents may use.
    pub mcp_servers: Vec<McpServer>,
}

/// The brokers and the consumer group.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kafka {
    /// Bootstrap servers, each `HOST:PORT`, separated by commas. Default `127.0.0.1:9092`.
    pub brokers: String,
    /// The consumer group; one events topic belongs to one group. Default `turnmill`.
    pub group_id: String,
    /// Any librdkafka property; a number or a boolean will do for a string. A few that the guarantees rest on
    /// are refused.
    #[serde(deserialize_with = "properties::deserialize")]
    pub properties: BTreeMap<String, String>,
}

impl Default for Kafka {
    fn default() -> Self {
        Self { brokers: "127.0.0.1:9092".into(), group_id: "turnmill".into(), properties: BTreeMap::new() }
    }
}

/// Without the values of the properties: some are passwords.
impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("brokers", &self.brokers)
            .field("group_id", &self.group_id)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

/// The names of the topics: 1 to 249 characters of `[a-zA-Z0-9._-]`, all different.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topics {
    /// Turns come in here. Default `agent.turns`.
    pub turns: String,
    /// The journal. Default `agent.tool-events`.
    pub events: String,
    /// Results go out here. Default `agent.results`.
    pub results: String,
    /// Records that cannot be run. Default `agent.turns.dlq`.
    pub dead_letters: String,
    /// Ephemeral status. Default `agent.status`.
    pub status: String,
    /// Cancels. Default `agent.control`.
    pub control: String,
}

impl Default for Topics {
    fn default() -> Self {
        Self {
            turns: "agent.turns".into(),
            events: "agent.tool-events".into(),
            results: "agent.results".into(),
            dead_letters: "agent.turns.dlq".into(),
            status: "agent.status".into(),
            control: "agent.control".into(),
        }
    }
}

/// How a worker works.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// Turns that run at one time, over all sessions and partitions. Default 256, at least 1.
    pub max_in_flight: NonZeroUsize,
    /// How long a drain waits for running tools and model calls before it cancels them. Default `25s`; keep
    /// it below what the supervisor grants (`terminationGracePeriodSeconds`). More than `0s`, at most `1h`.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
    /// What a reader of results is promised. Default `at-least-once`.
    pub delivery: Delivery,
    /// Whether a model's reply is confirmed before any of its tools starts. Default true. Without it a turn is faster
    /// by a round trip to the brokers for each reply, and a key may carry two inputs: a reply that is lost in a crash
    /// after its tools began is asked for anew, and may say something else.
    pub step_boundary_durability: bool,
    /// How often a turn is begun without getting any further before its record goes to the dead letters as
    /// `crash_loop`. Default 5.
    pub max_redeliveries: NonZeroU32,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            max_in_flight: NonZeroUsize::new(256).unwrap_or(NonZeroUsize::MIN),
            drain_timeout: Duration::from_secs(25),
            delivery: Delivery::AtLeastOnce,
            step_boundary_durability: true,
            max_redeliveries: NonZeroU32::new(5).unwrap_or(NonZeroU32::MIN),
        }
    }
}

/// What a reader of results is promised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A crash at the wrong moment publishes a result again, under the same turn id.
    #[default]
    AtLeastOnce,
    /// One committed result per turn, for readers of committed records: results and ends of turns are written in
    /// transactions. Changed only with the whole group stopped.
    ExactlyOnce,
}

/// Where metrics and health are served, for whoever can reach the address.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// The address. Default `127.0.0.1:9464`.
    pub listen: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 9464)) }
    }
}

/// Where results of tools that have a `cache_ttl`, and what tools keep themselves, are kept.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// A Redis that the workers share: `redis://[USER][:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://` for TLS. Default
    /// none: each worker keeps them in its memory.
    pub redis_url: Option<String>,
    /// What all keys in Redis begin with. Default `turnmill`.
    pub key_prefix: String,
    /// How long Redis is waited for before a call runs as if there were no cache. Default `500ms`; more than `0s`.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// How much is kept in memory, where there is no Redis. Default `64MiB`.
    pub max_memory: ByteSize,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            redis_url: None,
            key_prefix: "turnmill".into(),
            timeout: Duration::from_millis(500),
            max_memory: ByteSize::b(crate::tool::Cache::DEFAULT_MEMORY),
        }
    }
}

/// Without the URL: it may have a password.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("redis", &self.redis_url.is_some())
            .field("key_prefix", &self.key_prefix)
            .field("timeout", &self.timeout)
            .field("max_memory", &self.max_memory)
            .finish()
    }
}

/// The tools that need no code.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// Whether `echo`, `add`, `sleep` and `flaky` are registered. Default false.
    pub samples: bool,
}

/// Agents and tools that are turned off. SIGHUP makes a worker read it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Agents by name, and what becomes of their turns. Default none.
    pub agents: BTreeMap<String, WhenOff>,
    /// Tools by name: a call is answered with an error that the model may recover from. Default none.
    pub tools: Vec<String>,
}

/// What becomes of the turns of an agent that is turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenOff {
    /// They wait until it is turned on; intake pauses once the buffers are full.
    Wait,
    /// They fail with `agent_disabled`.
    Refuse,
}

/// An MCP server. Not started in this version: a server with `requires_approval` is refused as it always
/// will be, any other is a configuration error.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its name; its tools are called `NAME__TOOL`.
    pub name: String,
    /// The command that starts it, with its arguments; or else `url`.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Where it is served; or else `command`.
    #[serde(default)]
    pub url: Option<String>,
    /// Its tools that a person must approve. A worker has nobody to ask, so it refuses to start.
    #[serde(default)]
    pub requires_approval: Vec<String>,
}
