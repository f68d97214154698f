//! How much a turn may use, and how much it has used.
//!
//! What is recorded counts as it did when it was spent, so a rerun after a crash goes on with what is left.

use std::collections::HashMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{Failure, Position, Usage, code};

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

/// What was used so far, steps read back from the log counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Replies of the model.
    pub model_calls: u32,
    /// Tool calls, the refused ones too.
    pub tool_calls: u32,
    /// Tokens.
    pub tokens: Usage,
    /// What calls and replies cost.
    pub cost: Decimal,
    /// What of that the replies cost that were asked for here, and not inside a call.
    pub replies_cost: Decimal,
}

impl Used {
    /// A reply with this usage, which costs nothing.
    pub fn reply(tokens: Usage) -> Self {
        Self { model_calls: 1, tokens, ..Self::default() }
    }

    /// The same, of one that costs something.
    #[must_use]
    pub fn at(self, cost: Decimal) -> Self {
        Self { cost, replies_cost: cost, ..self }
    }

    /// So many calls, whose costs are not known yet.
    pub fn calls(count: u32) -> Self {
        Self { tool_calls: count, ..Self::default() }
    }

    /// What calls cost that are counted already.
    pub fn cost(cost: Decimal) -> Self {
        Self { cost, ..Self::default() }
    }
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.tokens += other.tokens;
        self.cost = self.cost.saturating_add(other.cost);
        self.replies_cost = self.replies_cost.saturating_add(other.replies_cost);
    }
}

impl std::ops::SubAssign for Used {
    fn sub_assign(&mut self, other: Self) {
        self.model_calls = self.model_calls.saturating_sub(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_sub(other.tool_calls);
        self.tokens -= other.tokens;
        self.cost = self.cost.saturating_sub(other.cost);
        self.replies_cost = self.replies_cost.saturating_sub(other.replies_cost);
    }
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

    /// Any amount of everything.
    pub fn none() -> Self {
        Self::tool_calls(u32::MAX)
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
}

/// Where a turn's agent stands, or one that it has called: what each may use, and has used. What one that was called
/// uses, its caller uses too.
#[derive(Debug)]
pub struct Ledger {
    accounts: Vec<Account>,
    /// Those of calls, by where the call stands: begun again, it goes on with what it has used.
    of_calls: HashMap<Position, usize>,
}

/// One agent's.
#[derive(Debug)]
struct Account {
    limits: Limits,
    used: Used,
    /// What may be used by what runs now: no two that run together can both have the last of it.
    held: Used,
    /// Whose it is, for a person.
    whose: String,
    caller: Option<usize>,
}

/// An account would be overdrawn: the agent whose it is ends with this.
#[derive(Debug, PartialEq, Eq)]
pub struct Overdrawn {
    /// Whose.
    pub account: usize,
    /// Why.
    pub failure: Failure,
}

impl Ledger {
    /// The account 0 of a turn's own agent.
    pub fn new(limits: Limits) -> Self {
        Self { accounts: vec![Account::new(limits, "the turn".into(), None)], of_calls: HashMap::new() }
    }

    /// The account of the call at this position, which the owner of another account makes; without limits, unless it has
    /// some.
    pub fn open(&mut self, caller: usize, call: &Position) -> usize {
        let next = self.accounts.len();
        let account = *self.of_calls.entry(call.clone()).or_insert(next);
        if account == next {
            self.accounts.push(Account::new(Limits::none(), String::new(), Some(caller)));
        }
        account
    }

    /// An account gets limits, and the name of its owner for a person.
    pub fn limit(&mut self, account: usize, limits: Limits, whose: String) {
        if let Some(account) = self.accounts.get_mut(account) {
            (account.limits, account.whose) = (limits, whose);
        }
    }

    /// Counts what is recorded at a position, on the accounts of all calls that it is inside of.
    pub fn count_recorded(&mut self, at: &Position, used: Used) {
        let account = at.ancestors().fold(0, |caller, call| self.open(caller, &call));
        self.add(account, used);
    }

    /// What was used on this account so far.
    pub fn used(&self, account: usize) -> Used {
        self.accounts.get(account).map(|account| account.used).unwrap_or_default()
    }

    /// What was used inside the call at this position so far.
    pub fn used_of(&self, call: &Position) -> Used {
        self.of_calls.get(call).map(|account| self.used(*account)).unwrap_or_default()
    }

    /// Adds what is recorded, or cannot be helped any more, to the account and those of its callers.
    pub fn add(&mut self, account: usize, used: Used) {
        self.each(account, |account| account.used += Used { replies_cost: Decimal::ZERO, ..used });
        if let Some(account) = self.accounts.get_mut(account) {
            account.used.replies_cost = account.used.replies_cost.saturating_add(used.replies_cost);
        }
    }

    /// Something begins that may use so much.
    pub fn hold(&mut self, account: usize, held: Used) {
        self.each(account, |account| account.held += held);
    }

    /// It has ended.
    pub fn release(&mut self, account: usize, held: Used) {
        self.each(account, |account| account.held -= held);
    }

    fn each(&mut self, account: usize, change: impl Fn(&mut Account)) {
        let mut next = Some(account);
        while let Some(account) = next.and_then(|at| self.accounts.get_mut(at)) {
            change(account);
            next = account.caller;
        }
    }

    /// Why the model is not asked, if it is not: somebody's budget of calls or tokens is used up.
    ///
    /// # Errors
    /// Whose, and why.
    pub fn check_reply(&self, account: usize) -> Result<(), Overdrawn> {
        self.check(account, Account::forbids_reply)
    }

    /// Why the calls of a reply do not run, if they do not: how many they are, and what they cost at most. No tool
    /// runs whose result no model could read.
    ///
    /// # Errors
    /// Whose budget is too small, and why.
    pub fn check_calls(
        &self,
        account: usize,
        what: &str,
        calls: u32,
        cost: Decimal,
    ) -> Result<(), Overdrawn> {
        self.check(account, |account| {
            account
                .forbids_calls(what, calls)
                .or_else(|| account.forbids_reply())
                .or_else(|| account.forbids_cost(what, cost))
        })
    }

    /// Why a call that code makes itself does not run, if it does not; no model reads its result.
    ///
    /// # Errors
    /// Whose budget is too small, and why.
    pub fn check_direct(&self, account: usize, what: &str, cost: Decimal) -> Result<(), Overdrawn> {
        self.check(account, |account| {
            account.forbids_calls(what, 1).or_else(|| account.forbids_cost(what, cost))
        })
    }

    fn check(&self, account: usize, why: impl Fn(&Account) -> Option<Failure>) -> Result<(), Overdrawn> {
        let mut next = Some(account);
        while let Some((index, account)) = next.and_then(|at| Some((at, self.accounts.get(at)?))) {
            if let Some(failure) = why(account) {
                return Err(Overdrawn { account: index, failure });
            }
            next = account.caller;
        }
        Ok(())
    }
}

impl Account {
    fn new(limits: Limits, whose: String, caller: Option<usize>) -> Self {
        Self { limits, used: Used::default(), held: Used::default(), whose, caller }
    }

    fn total(&self) -> Used {
        let mut total = self.used;
        total += self.held;
        total
    }

    fn forbids_reply(&self) -> Option<Failure> {
        let Self { limits, whose, .. } = self;
        let used = self.total();
        if let Some(max) = limits.max_model_calls.filter(|max| used.model_calls >= *max) {
            let message = format!(
                "{whose} has made {} model calls, and may make {max} (model_calls)",
                used.model_calls
            );
            return Some(Failure::new(code::MODEL_CALL_LIMIT, message));
        }
        let tokens = used.tokens.total();
        if let Some(max) = limits.max_tokens.filter(|max| tokens >= *max) {
            let message = format!("{whose} has used {tokens} tokens, and may use {max} (tokens)");
            return Some(Failure::new(code::TOKEN_LIMIT, message));
        }
        // What a reply costs is known when it is there. Where replies cost nothing, the last word is never too dear.
        let Used { cost, replies_cost, .. } = self.used;
        let max = limits.max_cost.filter(|max| cost > *max && !replies_cost.is_zero())?;
        let message = format!("{whose} has cost {cost}, and may cost {max} (cost)");
        Some(Failure::new(code::COST_LIMIT, message))
    }

    fn forbids_calls(&self, what: &str, calls: u32) -> Option<Failure> {
        let total = self.total().tool_calls.saturating_add(calls);
        let max = Some(self.limits.max_tool_calls).filter(|max| total > *max)?;
        let whose = &self.whose;
        let message =
            format!("{what} brings {whose} to {total} tool calls, and it may make {max} (tool_calls)");
        Some(Failure::new(code::TOOL_CALL_LIMIT, message))
    }

    fn forbids_cost(&self, what: &str, cost: Decimal) -> Option<Failure> {
        let total = self.total().cost.saturating_add(cost);
        let max = self.limits.max_cost.filter(|max| total > *max)?;
        let whose = &self.whose;
        let message =
            format!("{what} brings what {whose} costs to as much as {total}, and it may cost {max} (cost)");
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

    fn ledger(change: impl Fn(&mut Limits)) -> Ledger {
        let mut limits = Limits::tool_calls(32);
        change(&mut limits);
        Ledger::new(limits)
    }

    fn why(checked: Result<(), Overdrawn>) -> (String, String) {
        let failure = checked.unwrap_err().failure;
        (failure.code.into_owned(), failure.message)
    }

    #[test]
    fn the_last_allowed_model_call_may_answer_and_may_not_call_what_no_model_would_read() {
        let mut ledger = ledger(|limits| limits.max_model_calls = Some(2));
        ledger.add(0, Used::reply(Usage::default()));
        assert_eq!(ledger.check_calls(0, "reply m0", 1, Decimal::ZERO), Ok(()));
        assert_eq!(ledger.check_reply(0), Ok(()));
        ledger.add(0, Used::reply(Usage::default()));
        let message = "the turn has made 2 model calls, and may make 2 (model_calls)".to_owned();
        let expected = (code::MODEL_CALL_LIMIT.to_owned(), message);
        assert_eq!(why(ledger.check_calls(0, "reply m1", 1, Decimal::ZERO)), expected);
        assert_eq!(why(ledger.check_reply(0)), expected);
        assert_eq!(ledger.check_direct(0, "the call x#0", Decimal::ZERO), Ok(()), "code reads its result");
    }

    #[test]
    fn calls_beyond_the_tokens_do_not_run() {
        let mut ledger = ledger(|limits| limits.max_tokens = Some(10));
        ledger.add(0, Used::reply(Usage { input_tokens: 4, output_tokens: 5, ..Usage::default() }));
        assert_eq!(ledger.check_calls(0, "reply m0", 1, Decimal::ZERO), Ok(()));
        ledger.add(0, Used::reply(Usage { output_tokens: 1, ..Usage::default() }));
        let message = "the turn has used 10 tokens, and may use 10 (tokens)".to_owned();
        assert_eq!(why(ledger.check_reply(0)), (code::TOKEN_LIMIT.into(), message));
    }

    #[test]
    fn no_reply_is_asked_for_beyond_the_cost() {
        let mut ledger = ledger(|limits| limits.max_cost = Some(1.into()));
        ledger.add(0, Used::cost(2.into()));
        assert_eq!(ledger.check_reply(0), Ok(()), "replies cost nothing");
        ledger.add(0, Used::reply(Usage::default()).at("0.01".parse().unwrap()));
        let message = "the turn has cost 2.01, and may cost 1 (cost)".to_owned();
        assert_eq!(why(ledger.check_reply(0)), (code::COST_LIMIT.into(), message));
    }

    #[test]
    fn the_last_call_that_can_be_paid_runs_and_one_more_does_not() {
        let mut ledger = ledger(|limits| limits.max_cost = Some("0.75".parse().unwrap()));
        let quarter: Decimal = "0.25".parse().unwrap();
        ledger.add(0, Used::cost(quarter));
        assert_eq!(ledger.check_calls(0, "reply m1", 2, quarter + quarter), Ok(()));
        ledger.add(0, Used::cost(quarter + quarter));
        assert_eq!(ledger.check_calls(0, "reply m2", 1, Decimal::ZERO), Ok(()));
        let message = "reply m3 brings what the turn costs to as much as 1.00, and it may cost 0.75 (cost)";
        assert_eq!(
            why(ledger.check_calls(0, "reply m3", 2, quarter)),
            (code::COST_LIMIT.into(), message.into())
        );
        let most = ledger.check_direct(0, "x#0", Decimal::MAX);
        assert_eq!(why(most).0, code::COST_LIMIT, "no cost is too large to be added");
        ledger.add(0, Used::cost(Decimal::MAX));
        assert_eq!(ledger.used(0).cost, Decimal::MAX);
    }

    #[test]
    fn what_one_that_was_called_uses_its_callers_use_too_and_every_limit_holds() {
        let mut ledger = ledger(|limits| limits.max_tool_calls = 3);
        let (call, nested) = (Position::call(0, 0), Position::call(0, 0).child(&Position::direct("x", 0)));
        let own = ledger.open(0, &call);
        ledger.limit(own, Limits { max_model_calls: Some(1), ..Limits::none() }, "agent \"b\"".into());
        let inner = ledger.open(own, &nested);
        assert_eq!((ledger.open(0, &call), ledger.open(own, &nested)), (own, inner), "begun again");
        ledger.add(inner, Used { cost: 1.into(), ..Used::calls(2) });
        ledger.add(own, Used::reply(Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() }));
        assert_eq!((ledger.used(inner).tool_calls, ledger.used(inner).model_calls), (2, 0));
        assert_eq!((ledger.used(own).tool_calls, ledger.used(own).model_calls), (2, 1));
        assert_eq!(ledger.used(own), ledger.used(0));
        assert_eq!(ledger.check_direct(inner, "x", Decimal::ZERO), Ok(()));
        let Err(Overdrawn { account, failure }) = ledger.check_calls(inner, "reply m0", 2, Decimal::ZERO)
        else {
            panic!()
        };
        assert_eq!((account, failure.code.as_ref()), (own, code::MODEL_CALL_LIMIT));
        assert_eq!(failure.message, "agent \"b\" has made 1 model calls, and may make 1 (model_calls)");
        ledger.add(inner, Used::calls(1));
        let Err(Overdrawn { account, failure }) = ledger.check_direct(inner, "x", Decimal::ZERO) else {
            panic!()
        };
        assert_eq!((account, failure.code.as_ref()), (0, code::TOOL_CALL_LIMIT));
        assert_eq!(failure.message, "x brings the turn to 4 tool calls, and it may make 3 (tool_calls)");
    }

    #[test]
    fn what_runs_may_use_what_it_holds_and_nobody_else_may() {
        let mut ledger = ledger(|limits| {
            limits.max_cost = Some(1.into());
            limits.max_model_calls = Some(1);
        });
        let inner = ledger.open(0, &Position::call(0, 0));
        let (cost, reply) = (Used::cost(1.into()), Used::reply(Usage::default()));
        ledger.hold(inner, cost);
        ledger.hold(0, reply);
        assert_eq!(why(ledger.check_direct(0, "x", "0.1".parse().unwrap())).0, code::COST_LIMIT);
        assert_eq!(why(ledger.check_reply(inner)).0, code::MODEL_CALL_LIMIT);
        assert_eq!(ledger.used(0), Used::default());
        ledger.release(inner, cost);
        ledger.release(0, reply);
        assert_eq!(ledger.check_direct(0, "x", 1.into()), Ok(()));
        assert_eq!(ledger.check_reply(inner), Ok(()));
    }

    #[test]
    fn what_is_recorded_counts_for_every_call_that_it_is_inside_of() {
        let mut ledger = ledger(|_| {});
        let call = Position::call(0, 0);
        let inside = call.child(&Position::direct("x", 0)).child(&Position::direct("y", 1));
        ledger.count_recorded(&inside, Used::calls(1));
        ledger.count_recorded(&Position::reply(1), Used::reply(Usage::default()));
        let own = ledger.open(0, &call);
        assert_eq!((ledger.used(own).tool_calls, ledger.used(own).model_calls), (1, 0));
        assert_eq!((ledger.used(0).tool_calls, ledger.used(0).model_calls), (1, 1));
    }
}
