//! `[[agents]]`: what an agent is made of: its model, instructions, tools and limits.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::ModelNames;
use super::http_tool::max_cost;
use crate::model::RESERVED;
use crate::tool::{Decimal, Pattern};
use crate::turn::{Limits, OnToolError};

/// What an agent is made of. What it does is the loop of its model and its tools, or code
/// ([`AgentSpec::code`](Self::code)).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// The name that turns call it by. Unique.
    pub name: String,
    /// What other agents are told about it that may call it. Default: that a task can be handed to it.
    #[serde(default)]
    pub description: Option<String>,
    /// Its instructions. Default none.
    #[serde(default)]
    pub system: Option<String>,
    /// Its model: `PROVIDER::MODEL`, `scripted`, or one that the program registers; or a list of models of providers, which
    /// are asked one after the other where one cannot answer.
    pub model: ModelNames,
    /// How much chance is in its model's replies; what is usual is up to the provider. Default: the provider's.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// How many tokens one reply may have; one that is cut off there runs no tools. Default: the provider's, and 8192 where
    /// that wants a number. At least 1.
    #[serde(default)]
    pub max_reply_tokens: Option<NonZeroU32>,
    /// How long one reply may take, over all attempts at all its models. Default `10m`; more than `0s`.
    #[serde(default = "default_max_reply_time", with = "humantime_serde")]
    pub max_reply_time: Duration,
    /// Whether a provider that offers it is told to keep what the next request begins with. Default true.
    #[serde(default = "default_prompt_cache")]
    pub prompt_cache: bool,
    /// Whether the text of its replies goes to the status topic while they are made. Default false.
    #[serde(default)]
    pub stream_text: bool,
    /// Fields of each request beyond those, as its provider knows them: `thinking`, `reasoning_effort`, .. Default none.
    #[serde(default)]
    pub model_options: toml::Table,
    /// The tools that it is offered: names, where `*` stands for any characters. Default none.
    #[serde(default)]
    pub tools: Vec<Pattern>,
    /// The tools that a turn may pick by name beside those, the same way. Default none.
    #[serde(default)]
    pub turn_tools: Vec<Pattern>,
    /// The agents that it is offered like tools, by their names. Default none.
    #[serde(default)]
    pub sub_agents: Vec<String>,
    /// How many tool calls a turn may make, the refused ones too. Default 32, at least 1.
    #[serde(default = "default_max_tool_calls")]
    pub max_tool_calls: NonZeroU32,
    /// How many replies of the model a turn may have. Default any number; at least 1.
    #[serde(default)]
    pub max_model_calls: Option<NonZeroU32>,
    /// How many tokens a turn may read and write. Default any number; at least 1.
    #[serde(default)]
    pub max_tokens: Option<NonZeroU64>,
    /// What a turn's calls may cost, a decimal number in a string, in the currency of the tools' `cost_per_call`.
    /// Default any amount; not less than 0.
    #[serde(default, deserialize_with = "max_cost")]
    pub max_cost: Option<Decimal>,
    /// How long a turn may run, from its first start on whichever worker. Default any time; more than `0s`.
    #[serde(default, with = "humantime_serde")]
    pub max_run_time: Option<Duration>,
    /// What becomes of a turn when a tool fails: with `tell_model` the model reads the error and goes on, with
    /// `fail_turn` the turn fails. Default `tell_model`.
    #[serde(default)]
    pub on_tool_error: OnToolError,
    /// How long a turn may take, from the timestamp of its record; it fails at the next step boundary after that.
    /// A turn's own `deadline_ms` goes before it. Default `24h`.
    #[serde(default = "default_max_duration", with = "humantime_serde")]
    pub max_duration: Duration,
    /// What the scripted model plays where a turn brings no script: a JSON file, relative to the
    /// configuration file; `load` makes it relative to the working directory. Default none.
    #[serde(default)]
    pub script: Option<PathBuf>,
}

fn default_max_tool_calls() -> NonZeroU32 {
    NonZeroU32::new(32).unwrap_or(NonZeroU32::MIN)
}

fn default_max_reply_time() -> Duration {
    Duration::from_secs(10 * 60)
}

fn default_prompt_cache() -> bool {
    true
}

fn default_max_duration() -> Duration {
    Duration::from_secs(24 * 60 * 60)
}

impl AgentSpec {
    /// An agent with this name and model, no instructions and no tools.
    pub fn new(name: &str, model: &str) -> Self {
        Self {
            name: name.into(),
            description: None,
            system: None,
            model: model.into(),
            temperature: None,
            max_reply_tokens: None,
            max_reply_time: default_max_reply_time(),
            prompt_cache: default_prompt_cache(),
            stream_text: false,
            model_options: toml::Table::new(),
            tools: Vec::new(),
            turn_tools: Vec::new(),
            sub_agents: Vec::new(),
            max_tool_calls: default_max_tool_calls(),
            max_model_calls: None,
            max_tokens: None,
            max_cost: None,
            max_run_time: None,
            on_tool_error: OnToolError::default(),
            max_duration: default_max_duration(),
            script: None,
        }
    }

    /// The models of providers that are asked one after the other, where one cannot answer.
    #[must_use]
    pub fn fallbacks<'a>(mut self, models: impl IntoIterator<Item = &'a str>) -> Self {
        self.model.extend(models);
        self
    }

    /// How much chance is in its model's replies.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// The text of its replies goes to the status topic while they are made.
    #[must_use]
    pub fn stream_text(mut self) -> Self {
        self.stream_text = true;
        self
    }

    /// How many tokens one reply may have.
    #[must_use]
    pub fn max_reply_tokens(mut self, count: NonZeroU32) -> Self {
        self.max_reply_tokens = Some(count);
        self
    }

    /// Its instructions.
    #[must_use]
    pub fn system(mut self, text: &str) -> Self {
        self.system = Some(text.into());
        self
    }

    /// What other agents are told about it that may call it.
    #[must_use]
    pub fn description(mut self, text: &str) -> Self {
        self.description = Some(text.into());
        self
    }

    /// The agents that it is offered like tools, by their names.
    #[must_use]
    pub fn sub_agents<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.sub_agents = names.into_iter().map(Into::into).collect();
        self
    }

    /// The tools that it is offered: names, where `*` stands for any characters.
    #[must_use]
    pub fn tools<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Self {
        self.tools = patterns.into_iter().map(Pattern::new).collect();
        self
    }

    /// The tools that a turn may pick by name beside those.
    #[must_use]
    pub fn turn_tools<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Self {
        self.turn_tools = patterns.into_iter().map(Pattern::new).collect();
        self
    }

    /// What is said with each of its requests.
    ///
    /// # Errors
    /// The options of its model have a number that JSON does not know, or what the request has from elsewhere.
    pub(crate) fn options(&self) -> Result<crate::model::Options, String> {
        if let Some(name) = RESERVED.iter().find(|name| self.model_options.contains_key(**name)) {
            return Err(format!("{name} cannot be set here: the request has it from elsewhere; remove it"));
        }
        Ok(crate::model::Options {
            temperature: self.temperature,
            max_reply_tokens: self.max_reply_tokens.map(NonZeroU32::get),
            prompt_cache: self.prompt_cache,
            more: super::http_tool::object(&self.model_options)?,
        })
    }

    /// How much its turns may use.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_tool_calls: self.max_tool_calls.get(),
            max_model_calls: self.max_model_calls.map(NonZeroU32::get),
            max_tokens: self.max_tokens.map(NonZeroU64::get),
            max_cost: self.max_cost,
        }
    }

    /// How many replies of the model a turn may have.
    #[must_use]
    pub fn max_model_calls(mut self, count: NonZeroU32) -> Self {
        self.max_model_calls = Some(count);
        self
    }

    /// How many tokens a turn may read and write.
    #[must_use]
    pub fn max_tokens(mut self, count: NonZeroU64) -> Self {
        self.max_tokens = Some(count);
        self
    }

    /// What a turn's calls may cost.
    #[must_use]
    pub fn max_cost(mut self, cost: Decimal) -> Self {
        self.max_cost = Some(cost);
        self
    }

    /// How long a turn may run, from its first start on whichever worker.
    #[must_use]
    pub fn max_run_time(mut self, most: Duration) -> Self {
        self.max_run_time = Some(most);
        self
    }

    /// What becomes of a turn when a tool fails.
    #[must_use]
    pub fn on_tool_error(mut self, what: OnToolError) -> Self {
        self.on_tool_error = what;
        self
    }

    /// How many tool calls a turn may make.
    #[must_use]
    pub fn max_tool_calls(mut self, count: NonZeroU32) -> Self {
        self.max_tool_calls = count;
        self
    }
}
