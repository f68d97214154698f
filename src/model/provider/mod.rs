//! Models of providers: asked over HTTP, as often as it may help, and one after the other.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | what is tried again, where, and for how long |
//! | `endpoint` | where a provider is, and how it is spoken to |
//! | `exchange` | one request, and the stream that answers it |
//! | `sse` | a stream, taken apart into events |
//! | `anthropic`, `openai` | requests and events of the two shapes |
//! | `history` | what earlier replies said, in a form that providers accept |
//! | `draft` | a reply as it grows, bounded |
//! | `fault` | why a request came to nothing, and what is to be done about it |
//! | `gate` | how much a provider is asked at one time |

mod anthropic;
mod draft;
mod endpoint;
mod exchange;
mod fault;
mod gate;
mod history;
mod openai;
mod sse;
#[cfg(test)]
mod tests;

pub use endpoint::Api;
pub(crate) use endpoint::{Endpoint, RESERVED, Settings, url};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rust_decimal::Decimal;
use tokio::time::Instant;

use super::{Model, Request};
use crate::metrics::metrics;
use crate::retry::Backoff;
use crate::turn::{Failure, Reply, Served, Usage, code};
use exchange::Answer;
use fault::{Fault, Kind};

/// What an agent says about its replies.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    pub temperature: Option<f64>,
    pub max_reply_tokens: Option<u32>,
    /// Whether a provider that offers it is to keep what the next request begins with.
    pub prompt_cache: bool,
    /// Fields of the request beyond those.
    pub more: serde_json::Map<String, serde_json::Value>,
}

/// What a request is made for.
struct Asking<'a> {
    /// The provider: its own thoughts are sent back to it.
    provider: &'a str,
    model: &'a str,
    options: &'a Options,
}

/// What a model's tokens cost, each for a million.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Price {
    pub input: Decimal,
    pub output: Decimal,
    /// Of input that the provider had kept.
    pub cache_read: Decimal,
    /// Of input that it keeps from now on.
    pub cache_write: Decimal,
}

impl Price {
    /// What a reply costs.
    fn of(&self, usage: Usage) -> Decimal {
        let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
        let parts = [
            (usage.input_tokens.saturating_sub(cached), self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
        ];
        let million = Decimal::from(1_000_000);
        let sum = parts.iter().fold(Decimal::ZERO, |sum, (tokens, price)| {
            sum.saturating_add(Decimal::from(*tokens).saturating_mul(*price))
        });
        (sum / million).normalize()
    }
}

/// A model of a provider.
pub(crate) struct Candidate {
    pub endpoint: Arc<Endpoint>,
    /// As the provider calls it.
    pub model: String,
    pub price: Option<Price>,
}

impl Candidate {
    /// The shape of its provider's requests.
    pub(crate) fn api(&self) -> Api {
        self.endpoint.api
    }

    /// As an agent names it.
    fn name(&self) -> String {
        format!("{}::{}", self.endpoint.name, self.model)
    }
}

/// What an agent asks: models of providers, the next one where one cannot answer.
pub(crate) struct Remote {
    pub candidates: Vec<Candidate>,
    pub options: Options,
    /// How long a reply may take, whoever is asked how often.
    pub max_time: Duration,
}

/// The first wait between two attempts, and the longest that is not asked for.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long is waited for the room to ask a model where there is another one.
const ELSEWHERE_AFTER: Duration = Duration::from_secs(5);

#[async_trait]
impl Model for Remote {
    async fn complete(&self, request: Request<'_>) -> Result<Reply, Failure> {
        let until = Instant::now() + self.max_time;
        let mut tried = Tried { attempts: 0, last: None, until };
        let answered = tokio::time::timeout_at(until, self.ask(&request, &mut tried)).await;
        let message = match answered {
            Ok(answered) => return answered,
            Err(_) => {
                format!("no reply within {} (max_reply_time)", humantime::format_duration(self.max_time))
            }
        };
        let detail = tried.last.map(|(model, fault)| {
            format!("{message}; {} attempts, the last one at {model}: {}", tried.attempts, fault.message)
        });
        Err(Failure { detail, ..Failure::new(code::MODEL_TIMEOUT, message) })
    }
}

/// What has come of a question so far.
struct Tried {
    /// At all models.
    attempts: u32,
    last: Option<(String, Fault)>,
    /// When the time for it is over.
    until: Instant,
}

impl Remote {
    async fn ask(&self, request: &Request<'_>, tried: &mut Tried) -> Result<Reply, Failure> {
        let mut failure = Failure::new(code::MODEL_ERROR, "there is no model to ask");
        for (index, candidate) in self.candidates.iter().enumerate() {
            let is_last = index + 1 == self.candidates.len();
            let before = tried.attempts;
            match self.ask_one(candidate, is_last, request, tried).await {
                Ok(reply) => return Ok(reply),
                Err(fault) => {
                    let elsewhere = fault.kind.may_go_elsewhere();
                    failure = fault.into_failure(&candidate.name(), tried.attempts - before);
                    if is_last || !elsewhere {
                        break;
                    }
                    tracing::warn!(
                        model = candidate.name(),
                        code = %failure.code,
                        error = failure.for_operator(),
                        "model given up"
                    );
                }
            }
        }
        Err(failure)
    }

    /// Asks one model as often as it may help.
    async fn ask_one(
        &self,
        candidate: &Candidate,
        is_last: bool,
        request: &Request<'_>,
        tried: &mut Tried,
    ) -> Result<Reply, Fault> {
        let Candidate { endpoint, model, price } = candidate;
        let asking = Asking { provider: &endpoint.name, model, options: &self.options };
        let body = endpoint.api.body(&asking, request);
        let body = body
            .map_err(|error| Fault::new(Kind::Request, format!("the request cannot be written: {error}")))?;
        let mut backoff = Backoff::between(FIRST_WAIT, LONGEST_WAIT);
        let mut left = endpoint.max_retries;
        loop {
            let wait = if is_last { endpoint.max_retry_after } else { ELSEWHERE_AFTER };
            let patience = Instant::now().checked_add(wait).map_or(tried.until, |at| at.min(tried.until));
            let inside = endpoint.gate.enter(patience).await.map_err(|asked| too_often(asked, wait))?;
            tried.attempts += 1;
            let (attempt, listener) = (tried.attempts, request.listener);
            let tell = move |text: &str| listener.tell(attempt, text);
            let Answer { outcome, request_id } = exchange::ask(endpoint, body.clone(), &tell).await;
            let fault = match outcome {
                Ok(mut reply) => {
                    inside.answered();
                    let cost = price.map(|price| price.of(reply.usage));
                    let (model, attempts) = (candidate.name(), tried.attempts);
                    reply.served = Some(Box::new(Served { model, attempts, request_id, cost }));
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            metrics().model_faults.with_label_values(&[endpoint.name.as_str(), fault.kind.code()]).inc();
            let asked = fault.retry_after.unwrap_or_default();
            let pause = backoff.pause().max(asked);
            match fault.kind {
                Kind::Rate => inside.too_much(pause),
                _ => drop(inside),
            }
            let in_time = tried.until.duration_since(Instant::now()) > pause;
            if left == 0 || !fault.kind.may_pass() || asked > endpoint.max_retry_after || !in_time {
                return Err(fault);
            }
            left -= 1;
            tracing::warn!(
                model = candidate.name(),
                code = fault.kind.code(),
                error = fault.message,
                request_id,
                "model failed; it is asked again"
            );
            tried.last = Some((candidate.name(), fault));
            tokio::time::sleep(pause).await;
        }
    }
}

/// A provider is not asked, because it was told to others that it is asked too often.
fn too_often(asked: Option<Duration>, waited: Duration) -> Fault {
    let asked = match asked {
        Some(asked) => {
            format!("it asks for {} more", humantime::format_duration(Duration::from_secs(asked.as_secs())))
        }
        None => format!("there was no room for {}", humantime::format_duration(waited)),
    };
    Fault::new(Kind::Rate, format!("it is asked too often by other turns of this worker; {asked}"))
}
