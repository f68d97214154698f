//! How much a turn may use, and how much it has used.
//!
//! What is recorded counts as it did when it was spent, so a rerun after a crash goes on with what is left.

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{Failure, Usage, code};

/// How much a turn may use (specification A, "Decorator + base"; design, "budgets").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tool calls, the refused ones too.
    pub max_tool_calls: u32,
    /// Replies of the model. None: any number.
    pub max_model_calls: Option<u32>,
    /// Tokens that the model reads and writes. None: any number.
    pub max_tokens: Option<u64>,
    /// What the calls cost. None: any amount.
    pub max_cost: Option<Decimal>,
}

/// What a turn itself says about how much it may use; a limit of its agent that is lower holds all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Replies of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u32>,
    /// Tool calls, the refused ones too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Tokens that the model reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// What the calls cost, an exact decimal in a text.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional_cost")]
    pub cost: Option<Decimal>,
    /// How long it may run, in seconds from its first start, on whichever worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// What a turn has used so far, steps read back from the log counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Replies of the model.
    pub model_calls: u32,
    /// Tool calls, the refused ones too.
    pub tool_calls: u32,
    /// Tokens.
    pub tokens: Usage,
    /// What the calls cost.
    pub cost: Decimal,
}

/// A cost as it is written: digits, and a point among them; at most 28 digits, which a decimal holds exactly.
pub(crate) fn exact_cost(text: &str) -> Option<Decimal> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let ends = |at: Option<u8>| at.is_some_and(|b| b.is_ascii_digit());
    let whole = plain && digits <= 28 && ends(text.bytes().next()) && ends(text.bytes().last());
    whole.then(|| Decimal::from_str_exact(text).ok()).flatten()
}

fn optional_cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Decimal>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let expected = "a decimal number of at least 0 and at most 28 digits in a text";
    let wrong = || de::Error::invalid_value(de::Unexpected::Str(&text), &expected);
    exact_cost(&text).map(Some).ok_or_else(wrong)
}

impl Limits {
    /// So many tool calls, and any amount of the rest.
    pub fn tool_calls(max: u32) -> Self {
        Self { max_tool_calls: max, max_model_calls: None, max_tokens: None, max_cost: None }
    }

    /// The lower of these and a turn's own.
    #[must_use]
    pub fn within(self, budget: &Budget) -> Self {
        fn lower<T: Ord>(ours: Option<T>, theirs: Option<T>) -> Option<T> {
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
                (ours, theirs) => ours.or(theirs),
            }
        }
        Self {
            max_tool_calls: budget.tool_calls.map_or(self.max_tool_calls, |max| max.min(self.max_tool_calls)),
            max_model_calls: lower(self.max_model_calls, budget.model_calls),
            max_tokens: lower(self.max_tokens, budget.tokens),
            max_cost: lower(self.max_cost, budget.cost),
        }
    }

    /// Why the model is not asked, if it is not: its budget of calls or tokens is used up.
    pub(super) fn forbids_reply(&self, used: &Used) -> Option<Failure> {
        if let Some(max) = self.max_model_calls.filter(|max| used.model_calls >= *max) {
            let message = format!(
                "the turn has made {} model calls, and may make {max} (model_calls)",
                used.model_calls
            );
            return Some(Failure::new(code::MODEL_CALL_LIMIT, message));
        }
        let tokens = used.tokens.total();
        let max = self.max_tokens.filter(|max| tokens >= *max)?;
        let message = format!("the turn has used {tokens} tokens, and may use {max} (tokens)");
        Some(Failure::new(code::TOKEN_LIMIT, message))
    }

    /// Why the calls of a reply do not run, if they do not. What they have used before, how many they are, and what
    /// they cost at most. No tool runs whose result no model could read.
    pub(super) fn forbids_calls(&self, used: &Used, calls: u32, cost: Decimal) -> Option<Failure> {
        let total = used.tool_calls.saturating_add(calls);
        if total > self.max_tool_calls {
            let message = format!(
                "reply m{} brings the turn to {total} tool calls, and it may make {} (tool_calls)",
                used.model_calls.saturating_sub(1),
                self.max_tool_calls
            );
            return Some(Failure::new(code::TOOL_CALL_LIMIT, message));
        }
        if let Some(failure) = self.forbids_reply(used) {
            return Some(failure);
        }
        let total = used.cost.saturating_add(cost);
        let max = self.max_cost.filter(|max| total > *max)?;
        let message = format!(
            "reply m{} brings what the turn costs to as much as {total}, and it may cost {max} (cost)",
            used.model_calls.saturating_sub(1)
        );
        Some(Failure::new(code::COST_LIMIT, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_digits_that_are_kept() {
        let read = |json: &str| serde_json::from_str::<Budget>(json).map(|budget| budget.cost);
        for (json, cost) in [
            (r#"{"cost":"0.10"}"#, "0.10"),
            (r#"{"cost":"12345678901234567.89"}"#, "12345678901234567.89"),
            (r#"{"cost":"0"}"#, "0"),
        ] {
            assert_eq!(read(json).unwrap().unwrap().to_string(), cost);
        }
        assert_eq!(read(r#"{"cost":null}"#).unwrap(), None);
        for wrong in [
            "0.1",
            "1",
            "\"-1\"",
            "\"1e3\"",
            "\"1_000\"",
            "\"\"",
            "\".5\"",
            "\"5.\"",
            "\"1.2.3\"",
            "\" 1\"",
            "\"0.00000000000000000000000000001\"",
        ] {
            assert!(read(&format!("{{\"cost\":{wrong}}}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_lower_limit_holds() {
        let agent = Limits { max_model_calls: Some(5), max_cost: Some(2.into()), ..Limits::tool_calls(10) };
        assert_eq!(agent.within(&Budget::default()), agent);
        let turn = Budget {
            model_calls: Some(9),
            tool_calls: Some(3),
            tokens: Some(100),
            cost: Some("0.5".parse().unwrap()),
            seconds: None,
        };
        let both = agent.within(&turn);
        assert_eq!((both.max_model_calls, both.max_tool_calls, both.max_tokens), (Some(5), 3, Some(100)));
        assert_eq!(both.max_cost, Some("0.5".parse().unwrap()));
    }
}
