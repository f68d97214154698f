//! `Spec`: what a tool declares about itself.

use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::Value;

use super::{Approval, Retry};

/// What a tool declares about itself. Every option has its default until it is set:
///
/// ```
/// # use std::time::Duration;
/// # use serde_json::json;
/// use turnmill::tool::Spec;
///
/// let spec = Spec::new("rates", "Today's rates.", json!({"type": "object"}))
///     .read_only()
///     .retry(3)
///     .cache_ttl(Duration::from_secs(300));
/// ```
#[derive(Debug, Clone)]
pub struct Spec {
    /// `[a-zA-Z0-9_-]+`, unique in a registry (specification P, "Options").
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object's.
    pub parameters: Value,
    /// The JSON Schema that its results hold against; a model is not told. Default none: anything will do.
    pub output: Option<Value>,
    /// How often a call is tried again after a retryable error. Default never.
    pub retry: Retry,
    /// The limit for one attempt. Default 30 s.
    pub timeout: Duration,
    /// How long a result is good for other calls with the same arguments. Default none: it is not.
    pub cache_ttl: Option<Duration>,
    /// What it does to the world.
    pub effect: Effect,
    /// Whether a person has to approve a call. Default no.
    pub requires_approval: Approval,
    /// How long a person has for an answer; after it the call counts as denied. Default none: as long as it takes.
    pub approval_timeout: Option<Duration>,
    /// What a call costs, in the currency of the agents' budgets; recorded exactly. Default 0.
    pub cost_per_call: Decimal,
    /// Whether the same arguments always give the same result, so that a replay may check it. Says nothing about
    /// its effect. Default false.
    pub deterministic: bool,
    /// What becomes of a call that had started when its worker died. Default: it runs again.
    pub on_unknown_outcome: UnknownOutcome,
    /// Whether it runs on a blocking thread, which no timeout can stop: its late result is discarded and a
    /// timeout is not retried.
    pub blocking: bool,
}

impl Spec {
    /// The timeout of a tool that declares none.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// A tool with defaults for everything else.
    pub fn new(name: &str, description: &str, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            output: None,
            retry: Retry::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            cache_ttl: None,
            effect: Effect::Unmarked,
            requires_approval: Approval::Never,
            approval_timeout: None,
            cost_per_call: Decimal::ZERO,
            deterministic: false,
            on_unknown_outcome: UnknownOutcome::Rerun,
            blocking: false,
        }
    }

    /// What a call costs, if it costs anything.
    pub(crate) fn price(&self) -> Option<Decimal> {
        Some(self.cost_per_call).filter(|cost| !cost.is_zero())
    }

    /// Sets the JSON Schema that results hold against.
    #[must_use]
    pub fn output(mut self, schema: Value) -> Self {
        self.output = Some(schema);
        self
    }

    /// Sets how often a call is tried again: a number, or a policy with waits.
    #[must_use]
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.retry = retry.into();
        self
    }

    /// Sets the limit for one attempt.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets how long a result is good for other calls with the same arguments.
    #[must_use]
    pub fn cache_ttl(mut self, ttl: Duration) -> Self {
        self.cache_ttl = Some(ttl);
        self
    }

    /// It does nothing to the world.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.effect = Effect::ReadOnly;
        self
    }

    /// It has side effects.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.effect = Effect::Writes;
        self
    }

    /// A person has to approve calls: `true` for all of them, or those that [`Approval::when`] picks.
    #[must_use]
    pub fn requires_approval(mut self, approval: impl Into<Approval>) -> Self {
        self.requires_approval = approval.into();
        self
    }

    /// Sets how long a person has for an answer.
    #[must_use]
    pub fn approval_timeout(mut self, limit: Duration) -> Self {
        self.approval_timeout = Some(limit);
        self
    }

    /// Sets what a call costs.
    #[must_use]
    pub fn cost_per_call(mut self, cost: Decimal) -> Self {
        self.cost_per_call = cost;
        self
    }

    /// The same arguments always give the same result.
    #[must_use]
    pub fn deterministic(mut self) -> Self {
        self.deterministic = true;
        self
    }

    /// Sets what becomes of a call that had started when its worker died.
    #[must_use]
    pub fn on_unknown_outcome(mut self, what: UnknownOutcome) -> Self {
        self.on_unknown_outcome = what;
        self
    }
}

/// What becomes of a call that has a start and no result on the log: whether it took effect is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownOutcome {
    /// It runs again under the same idempotency key: right for whatever honours the key.
    #[default]
    Rerun,
    /// It never runs a second time: the model reads that the outcome is unknown. Costs a confirmed write before
    /// each call.
    Report,
}

/// What a tool does to the world, as it declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Effect {
    /// It does not say, and is treated like one that writes.
    #[default]
    Unmarked,
    /// Nothing.
    ReadOnly,
    /// It has side effects.
    Writes,
}
