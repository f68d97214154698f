//! `Approval`: which calls of a tool a person has to approve.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;

/// Which calls of a tool a person has to approve (specification P, "Approval"). A worker, which can ask nobody,
/// refuses a tool that needs approval for any of its calls.
#[derive(Clone, Default)]
pub enum Approval {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// Those whose arguments this says.
    When(Predicate),
}

/// Says of a call's arguments whether a person has to approve the call. Pure: it is asked again when a turn goes on.
#[derive(Clone)]
pub struct Predicate(Arc<dyn Fn(&Value) -> bool + Send + Sync>);

/// What a predicate may return: `bool`, or a `Result` of it, where an error asks.
pub trait Asks {
    /// Whether the person is asked.
    fn asks(self) -> bool;
}

impl Asks for bool {
    fn asks(self) -> bool {
        self
    }
}

impl<E> Asks for Result<bool, E> {
    fn asks(self) -> bool {
        self.unwrap_or(true)
    }
}

impl Approval {
    /// Those calls of whose arguments, an object, `predicate` says so.
    pub fn when<A: Asks>(predicate: impl Fn(&Value) -> A + Send + Sync + 'static) -> Self {
        Self::When(Predicate(Arc::new(move |arguments| predicate(arguments).asks())))
    }

    /// Whether there may be a call that has to be approved.
    pub fn is_gated(&self) -> bool {
        !matches!(self, Self::Never)
    }

    /// Whether the call with these arguments has to be approved. A predicate that fails or panics says yes.
    pub fn asks(&self, arguments: &Value) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::When(Predicate(predicate)) => {
                catch_unwind(AssertUnwindSafe(|| predicate(arguments))).unwrap_or(true)
            }
        }
    }

    /// The name of the kind: `never`, `always` or `predicate`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::When(_) => "predicate",
        }
    }
}

impl From<bool> for Approval {
    fn from(always: bool) -> Self {
        if always { Self::Always } else { Self::Never }
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_predicate_picks_calls_and_asks_where_it_fails() {
        let large = Approval::when(|args| args["cents"].as_u64() > Some(10_000));
        assert!(large.is_gated());
        assert!(large.asks(&json!({"cents": 10_001})));
        assert!(!large.asks(&json!({"cents": 10_000})));
        assert!(
            Approval::when(|args| args["cents"].as_str().map(|_| false).ok_or("no text")).asks(&json!({}))
        );
        assert!(Approval::when(|args| -> bool { panic!("no {args}") }).asks(&json!({})));
        assert!(Approval::from(true).asks(&json!({})) && Approval::Always.is_gated());
        assert!(!Approval::Never.asks(&json!({})) && !Approval::from(false).is_gated());
    }
}
