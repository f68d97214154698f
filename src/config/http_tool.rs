//! `[[http_tools]]`: tools that are HTTP endpoints.

mod convert;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

pub(super) use convert::{check, header_field, object};
pub(super) use read::{cost, max_cost};

use crate::tool::{Decimal, Retry, Spec, UnknownOutcome};

/// A tool that is an HTTP endpoint.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    /// Its name, `[a-zA-Z0-9_-]+`. Unique among all tools of the program.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The method of its requests.
    pub method: Method,
    /// The URL, `http` or `https`. `{name}` in its path or query stands for an argument, which the schema requires.
    pub url: String,
    /// Headers of each request. `load` puts environment variables in place of `${NAME}` and `$` of `$$`. Default none.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The limit for one attempt. Default `30s`, more than `0s`.
    #[serde(default = "default_timeout", with = "humantime_serde")]
    pub timeout: Duration,
    /// How often a call is tried again after an error that may pass: a count, or `max`, `initial` (default `200ms`)
    /// and `max_delay` (default `10s`). Default 0.
    #[serde(default, deserialize_with = "read::retry")]
    pub retry: Retry,
    /// The largest body of a response. Default `256KiB`, 1 byte to `64MiB`.
    #[serde(default = "default_max_response")]
    pub max_response: ByteSize,
    /// Whether it does nothing to the world. Default false.
    #[serde(default)]
    pub read_only: bool,
    /// Whether it has side effects. Default false; not both this and `read_only`.
    #[serde(default)]
    pub writes: bool,
    /// How long a result is good for other calls with the same arguments. Default none: it is not. More than `0s`.
    #[serde(default, with = "humantime_serde")]
    pub cache_ttl: Option<Duration>,
    /// Whether a person has to approve its calls. A worker has nobody to ask, so it refuses to start where an agent is
    /// offered the tool. Default false.
    #[serde(default)]
    pub requires_approval: bool,
    /// How long a person has for an answer. Default none: as long as it takes. More than `0s`; only with
    /// `requires_approval`.
    #[serde(default, with = "humantime_serde")]
    pub approval_timeout: Option<Duration>,
    /// What a call costs, in the currency of the agents' budgets: a decimal number in a string, kept exactly. Default
    /// 0, not less.
    #[serde(default, deserialize_with = "read::cost")]
    pub cost_per_call: Decimal,
    /// Whether the same arguments always give the same result. Default false.
    #[serde(default)]
    pub deterministic: bool,
    /// What becomes of a call that had started when its worker died. Default `rerun`.
    #[serde(default)]
    pub on_unknown_outcome: UnknownOutcome,
    /// The JSON Schema of its arguments, an object's.
    pub parameters: Schema,
    /// The JSON Schema of its results. Default none: anything will do.
    #[serde(default)]
    pub output: Option<Schema>,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Arguments that are not in the URL become its query.
    Get,
    /// Arguments that are not in the URL become the body.
    Post,
    /// As with `POST`.
    Put,
    /// As with `POST`.
    Patch,
    /// As with `GET`.
    Delete,
}

/// A JSON Schema: a table, or the JSON text of one in a string.
#[derive(Debug, Clone, PartialEq)]
pub enum Schema {
    /// As a TOML table.
    Table(toml::Table),
    /// As a JSON text.
    Text(String),
}

fn default_timeout() -> Duration {
    Spec::DEFAULT_TIMEOUT
}

fn default_max_response() -> ByteSize {
    ByteSize::kib(256)
}

/// Without the values of the headers: some are passwords.
impl fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTool")
            .field("name", &self.name)
            .field("method", &self.method)
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}
