//! `[[providers]]` and `[[prices]]`: who is asked for replies, and what that costs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::Deserialize;

use super::http_tool::{cost, max_cost};
use super::problem::Problem;
use super::variables::{Variables, expand_provider};
use crate::model::{Api, Endpoint, Price, Settings, url};
use crate::tool::Decimal;
use crate::tool::endpoint::header;

/// Who is asked for replies: `NAME::MODEL` in an agent's `model` is a model of the provider `NAME`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The name. Unique; one or more of `A-Z a-z 0-9 _ -`. `anthropic` and `openai` need not be listed.
    pub name: String,
    /// The shape of its requests: `anthropic` (Messages) or `openai` (Chat Completions, and every server that follows
    /// them). Default: the name, where it is one of these.
    #[serde(default)]
    pub api: Option<Api>,
    /// Where its API is, such as `http://127.0.0.1:8080/v1`. Default: of Anthropic or OpenAI itself, where the name is one of
    /// these.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The key. `${NAME}` in it is an environment variable. Default `${ANTHROPIC_API_KEY}` or `${OPENAI_API_KEY}`, where the
    /// name is one of these; else none.
    #[serde(default)]
    pub api_key: Option<String>,
    /// A file that has the key and nothing else, in place of `api_key`; relative to the configuration file. White space
    /// around it does not count.
    #[serde(default)]
    pub api_key_file: Option<PathBuf>,
    /// Headers of each request, by name. `${NAME}` in a value is an environment variable. Default none.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How often a request that may go better later is made again. Default 4.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// The longest wait that the provider may ask for (`retry-after`); one that asks for more is given up. Default `60s`, at
    /// most `1h`.
    #[serde(default = "default_max_retry_after", with = "humantime_serde")]
    pub max_retry_after: Duration,
    /// How long the provider may say nothing, before and in the middle of a reply. Default `5m`; more than `0s`,
    /// at most `1h`.
    #[serde(default = "default_idle_timeout", with = "humantime_serde")]
    pub idle_timeout: Duration,
}

/// Without the key and the values of the headers.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("api", &self.api)
            .field("api_key_file", &self.api_key_file)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

fn default_max_retries() -> u32 {
    4
}

fn default_max_retry_after() -> Duration {
    Duration::from_secs(60)
}

fn default_idle_timeout() -> Duration {
    Duration::from_secs(5 * 60)
}

/// The longest that anything of these may be.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// What a model's tokens cost, each for a million, as decimal numbers in strings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// The model as agents name it: `NAME::MODEL`. Unique.
    pub model: String,
    /// Of a million tokens that it reads.
    #[serde(deserialize_with = "cost")]
    pub input: Decimal,
    /// Of a million tokens that it writes.
    #[serde(deserialize_with = "cost")]
    pub output: Decimal,
    /// Of a million tokens that the provider had kept. Default: `input`.
    #[serde(default, deserialize_with = "max_cost")]
    pub cache_read: Option<Decimal>,
    /// Of a million tokens that the provider keeps from now on. Default: `input`.
    #[serde(default, deserialize_with = "max_cost")]
    pub cache_write: Option<Decimal>,
}

impl From<&ModelPrice> for Price {
    fn from(price: &ModelPrice) -> Self {
        let ModelPrice { input, output, cache_read, cache_write, .. } = *price;
        Self {
            input,
            output,
            cache_read: cache_read.unwrap_or(input),
            cache_write: cache_write.unwrap_or(input),
        }
    }
}

impl Provider {
    /// One that nobody has listed, with the key that the environment has. None: nothing is known of the name.
    pub(crate) fn unlisted(name: &str, env: &HashMap<String, String>) -> Option<Result<Self, String>> {
        Self::by_name(name)?;
        let mut provider = Self::named(name);
        provider.complete();
        let mut faults = Variables::default();
        expand_provider(0, &mut provider, env, &mut faults);
        let wrong = faults.unset.pop().map(|problem| problem.message);
        let wrong = wrong.or_else(|| provider.check().pop().map(|(_, message)| format!("its key {message}")));
        Some(wrong.map_or(Ok(provider), Err))
    }

    fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            api: None,
            base_url: None,
            api_key: None,
            api_key_file: None,
            headers: BTreeMap::new(),
            max_retries: default_max_retries(),
            max_retry_after: default_max_retry_after(),
            idle_timeout: default_idle_timeout(),
        }
    }

    /// Whose name it has, if that is one of those that need not be listed.
    fn by_name(name: &str) -> Option<Api> {
        match name {
            "anthropic" => Some(Api::Anthropic),
            "openai" => Some(Api::OpenAi),
            _ => None,
        }
    }

    /// Fills in what the name says, where nothing else does.
    pub(super) fn complete(&mut self) {
        let Some(api) = Self::by_name(&self.name) else { return };
        self.api.get_or_insert(api);
        // Elsewhere, the key of the provider itself is not to be sent.
        if self.base_url.is_some() {
            return;
        }
        self.base_url = Some(api.base_url().into());
        if self.api_key.is_none() && self.api_key_file.is_none() {
            let variable = if api == Api::Anthropic { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
            self.api_key = Some(format!("${{{variable}}}"));
        }
    }

    /// Everything that is wrong with it, each with the way to the field from its own.
    pub(super) fn check(&self) -> Vec<(Vec<&str>, String)> {
        let mut wrong: Vec<(Vec<&str>, String)> = Vec::new();
        let mut add = |field: &'static str, message: &str| wrong.push((vec![field], message.to_owned()));
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if !self.name.is_empty() && !self.name.bytes().all(is_plain) {
            add("name", "expected one or more of A-Z a-z 0-9 _ -");
        }
        if self.api.is_none() && Self::by_name(&self.name).is_none() {
            add("api", "is missing; expected \"anthropic\" or \"openai\", whose shape its requests have");
        }
        match &self.base_url {
            Some(base) => {
                if let Err(message) = url(base, Api::OpenAi) {
                    add("base_url", &message);
                }
            }
            None if Self::by_name(&self.name).is_none() => {
                add(
                    "base_url",
                    "is missing; expected where the API is, such as \"http://127.0.0.1:8080/v1\"",
                );
            }
            None => {}
        }
        if self.api_key.is_some() && self.api_key_file.is_some() {
            add("api_key_file", "is set, and so is api_key; keep one of them");
        }
        if self.idle_timeout.is_zero() || self.idle_timeout > MAX_WAIT {
            add("idle_timeout", "expected more than 0s and at most 1h");
        }
        if self.max_retry_after > MAX_WAIT {
            add("max_retry_after", "expected at most 1h");
        }
        if self.api_key.as_deref().is_some_and(|key| key.trim().is_empty()) {
            add("api_key", "is empty; remove it where the provider wants none");
        }
        for (name, value) in &self.headers {
            if let Err(message) = header(name, value) {
                wrong.push((vec!["headers", name], message));
            }
        }
        wrong
    }

    /// The provider, ready to be asked.
    ///
    /// # Errors
    /// What [`Self::check`] finds, or the file of the key cannot be read.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, (&'static str, String)> {
        let (Some(api), Some(base_url)) = (self.api, self.base_url.as_deref()) else {
            return Err(("base_url", "is missing".into()));
        };
        let read = |file: &PathBuf| {
            let key = std::fs::read_to_string(file);
            let key = key.map_err(|error| ("api_key_file", format!("{}: {error}", file.display())))?;
            match key.trim() {
                "" => Err(("api_key_file", format!("{} is empty", file.display()))),
                key => Ok(key.to_owned()),
            }
        };
        let from_file = self.api_key_file.as_ref().map(read).transpose()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let (name, mut value) = header(name, value).map_err(|message| ("headers", message))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let api_key = from_file.as_deref().or(self.api_key.as_deref());
        Endpoint::new(Settings {
            name: &self.name,
            api,
            base_url,
            api_key,
            headers,
            max_retries: self.max_retries,
            max_retry_after: self.max_retry_after,
            idle_timeout: self.idle_timeout,
        })
        .map_err(|message| ("api_key", message))
    }
}

/// Everything that is wrong with the prices.
pub(super) fn check_prices(prices: &[ModelPrice]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, price) in prices.iter().enumerate() {
        let field = format!("prices[{index}].model");
        if split(&price.model).is_none() {
            problems.push(Problem::field(
                field,
                "expected a provider's name and a model, such as \"openai::gpt-4.1\"",
            ));
        } else if prices.iter().take(index).any(|other| other.model == price.model) {
            problems.push(Problem::field(field, "has a price already; a model must be there once"));
        }
    }
    problems
}

/// A provider's name and its model.
pub(crate) fn split(model: &str) -> Option<(&str, &str)> {
    model.split_once("::").filter(|(name, model)| !name.is_empty() && !model.is_empty())
}
