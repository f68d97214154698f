//! What stands between the brackets of `#[tool(..)]`.

use std::time::Duration;

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, LitInt, LitStr, Meta, Token};

use crate::Errors;

/// Every option, what it takes, and how it is written.
const ALLOWED: [(&str, &str, &str); 13] = [
    (NAME, "a string", "name = \"lookup_order\""),
    (DESCRIPTION, "a string", "description = \"Find an order.\""),
    (
        RETRY,
        "a whole number up to 4294967295, or a policy",
        "retry = 3` or `retry(max = 3, initial = \"200ms\", max_delay = \"5s\")",
    ),
    (TIMEOUT, "a duration in a string", "timeout = \"10s\""),
    (READ_ONLY, "no value", "read_only"),
    (WRITES, "no value", "writes"),
    (
        SCHEMA,
        "a JSON text, or an expression that gives a `serde_json::Value`",
        "schema = json!({\"type\": \"object\"})",
    ),
    (CACHE_TTL, "a duration in a string", "cache_ttl = \"5m\""),
    (
        REQUIRES_APPROVAL,
        "no value, or a function of the arguments that says whether to ask",
        "requires_approval` or `requires_approval = |arguments| arguments[\"cents\"].as_u64() > Some(10_000)",
    ),
    (APPROVAL_TIMEOUT, "a duration in a string", "approval_timeout = \"1h\""),
    (COST_PER_CALL, "a decimal number in a string", "cost_per_call = \"0.002\""),
    (DETERMINISTIC, "no value", "deterministic"),
    (ON_UNKNOWN_OUTCOME, "\"rerun\" or \"report\"", "on_unknown_outcome = \"report\""),
];

const NAME: &str = "name";
const DESCRIPTION: &str = "description";
const RETRY: &str = "retry";
const TIMEOUT: &str = "timeout";
const READ_ONLY: &str = "read_only";
const WRITES: &str = "writes";
const SCHEMA: &str = "schema";
const CACHE_TTL: &str = "cache_ttl";
const REQUIRES_APPROVAL: &str = "requires_approval";
const APPROVAL_TIMEOUT: &str = "approval_timeout";
const COST_PER_CALL: &str = "cost_per_call";
const DETERMINISTIC: &str = "deterministic";
const ON_UNKNOWN_OUTCOME: &str = "on_unknown_outcome";

/// The waits of a policy that does not say.
const INITIAL: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// The options as they were given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    /// Whether there may be a description that cannot be read: no reason to ask for another one.
    pub(crate) unreadable: bool,
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) effect: Option<Effect>,
    pub(crate) schema: Option<Schema>,
    pub(crate) cache_ttl: Option<Duration>,
    pub(crate) approval: Option<Approval>,
    pub(crate) approval_timeout: Option<Duration>,
    pub(crate) cost_per_call: Option<Cost>,
    pub(crate) deterministic: bool,
    /// Whether a call that may have run is reported instead of run again.
    pub(crate) report: bool,
}

/// How often a call is tried again, and the first and the longest wait before, if there are any.
#[derive(Clone, Copy)]
pub(crate) struct Retry {
    pub(crate) max: u32,
    pub(crate) wait: Option<(Duration, Duration)>,
}

/// What replaces the schema of the arguments.
pub(crate) enum Schema {
    /// A JSON text, known to be an object.
    Text(LitStr),
    /// Whatever gives a value.
    Value(Expr),
}

/// Which calls a person has to approve.
pub(crate) enum Approval {
    Always,
    /// Those that this function of the arguments picks.
    When(Expr),
}

/// An exact decimal: the digits, and how many of them stand behind the point.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) digits: i128,
    pub(crate) scale: u32,
}

/// What the tool says it does to the world.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    ReadOnly,
    Writes,
}

impl Options {
    /// Reads all options; what is wrong goes to `errors` and counts as not given.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self::default();
        let metas = match Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens) {
            Ok(metas) => metas,
            Err(error) => {
                errors.push(error);
                options.unreadable = true;
                return options;
            }
        };
        let mut seen: Vec<&Ident> = Vec::new();
        for meta in &metas {
            let known =
                (meta.path().get_ident()).filter(|word| ALLOWED.iter().any(|(allowed, ..)| word == allowed));
            let Some(word) = known else {
                errors.add(meta.path(), unknown(meta));
                continue;
            };
            if seen.contains(&word) {
                errors.add(word, format!("`{word}` is given twice"));
                continue;
            }
            seen.push(word);
            if let Err(error) = options.set(word, meta) {
                options.unreadable |= word == DESCRIPTION;
                errors.push(error);
            }
        }
        let approval_timeout = seen.iter().find(|word| **word == APPROVAL_TIMEOUT);
        if let Some(word) = approval_timeout.filter(|_| seen.iter().all(|word| **word != REQUIRES_APPROVAL)) {
            errors.add(
                word,
                "`approval_timeout` is for a tool that `requires_approval`; add it, or leave this out",
            );
        }
        options
    }

    fn set(&mut self, word: &Ident, meta: &Meta) -> syn::Result<()> {
        match word.to_string().as_str() {
            NAME => self.name = Some(name(string(word, meta)?)?),
            DESCRIPTION => self.description = Some(description(string(word, meta)?)?),
            RETRY => self.retry = Some(retry(word, meta)?),
            TIMEOUT => self.timeout = Some(duration(TIMEOUT, "10s", string(word, meta)?)?),
            READ_ONLY => self.set_effect(Effect::ReadOnly, word, meta)?,
            WRITES => self.set_effect(Effect::Writes, word, meta)?,
            ON_UNKNOWN_OUTCOME => self.report = report(word, meta)?,
            SCHEMA => self.schema = Some(schema(word, meta)?),
            CACHE_TTL => self.cache_ttl = Some(duration(CACHE_TTL, "5m", string(word, meta)?)?),
            REQUIRES_APPROVAL => self.approval = Some(approval(word, meta)?),
            APPROVAL_TIMEOUT => {
                self.approval_timeout = Some(duration(APPROVAL_TIMEOUT, "1h", string(word, meta)?)?);
            }
            COST_PER_CALL => self.cost_per_call = Some(cost(string(word, meta)?)?),
            _ => {
                flag(word, meta)?;
                self.deterministic = true;
            }
        }
        Ok(())
    }

    fn set_effect(&mut self, effect: Effect, word: &Ident, meta: &Meta) -> syn::Result<()> {
        flag(word, meta)?;
        if self.effect.is_some() {
            let message = "a tool is `read_only` or `writes`, not both; leave one out";
            return Err(syn::Error::new_spanned(word, message));
        }
        self.effect = Some(effect);
        Ok(())
    }
}

fn unknown(meta: &Meta) -> String {
    let path = meta.path();
    let word = quote::quote!(#path).to_string().replace(' ', "");
    let allowed = ALLOWED.map(|(allowed, ..)| allowed).join(", ");
    format!("unknown option `{word}`; allowed: {allowed}")
}

/// The option has a value of another kind than it takes, or one where it takes none.
fn wrong_kind(word: &Ident, meta: &Meta) -> syn::Error {
    let (wants, example) = (ALLOWED.iter())
        .find(|(allowed, ..)| word == allowed)
        .map_or(("another value", ""), |(_, wants, example)| (*wants, *example));
    let message = format!("`{word}` takes {wants}; write `{example}`");
    match meta {
        Meta::NameValue(pair) => syn::Error::new_spanned(&pair.value, message),
        Meta::Path(_) | Meta::List(_) => syn::Error::new_spanned(meta, message),
    }
}

fn literal(meta: &Meta) -> Option<&Lit> {
    match meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit, .. }) => Some(lit),
            _ => None,
        },
        Meta::Path(_) | Meta::List(_) => None,
    }
}

fn string<'a>(word: &Ident, meta: &'a Meta) -> syn::Result<&'a LitStr> {
    match literal(meta) {
        Some(Lit::Str(text)) if text.suffix().is_empty() => Ok(text),
        _ => Err(wrong_kind(word, meta)),
    }
}

/// A number, or a policy in brackets.
fn retry(word: &Ident, meta: &Meta) -> syn::Result<Retry> {
    let Meta::List(list) = meta else {
        return Ok(Retry { max: count(word, meta)?, wait: None });
    };
    let (mut max, mut initial, mut max_delay) = (None, None, None);
    for part in list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)? {
        let path = part.path();
        let name = path.get_ident().map(ToString::to_string).unwrap_or_default();
        let twice = match name.as_str() {
            "max" => max.replace(count(word, &part)?).is_some(),
            "initial" => initial.replace(duration("initial", "200ms", string(word, &part)?)?).is_some(),
            "max_delay" => max_delay.replace(duration("max_delay", "5s", string(word, &part)?)?).is_some(),
            _ => {
                let word = quote::quote!(#path).to_string().replace(' ', "");
                let message = format!("unknown part `{word}` of `retry`; allowed: max, initial, max_delay");
                return Err(syn::Error::new_spanned(path, message));
            }
        };
        if twice {
            return Err(syn::Error::new_spanned(path, format!("`{name}` is given twice")));
        }
    }
    let max = max.ok_or_else(|| syn::Error::new_spanned(meta, "`retry` needs `max`: how often, at most"))?;
    let (initial, max_delay) = (initial.unwrap_or(INITIAL), max_delay.unwrap_or(MAX_DELAY));
    if initial > max_delay {
        return Err(syn::Error::new_spanned(meta, "`initial` is longer than `max_delay`"));
    }
    Ok(Retry { max, wait: Some((initial, max_delay)) })
}

fn count(word: &Ident, meta: &Meta) -> syn::Result<u32> {
    let plain = |number: &LitInt| matches!(number.suffix(), "" | "u32");
    match literal(meta) {
        Some(Lit::Int(number)) if plain(number) => number.base10_parse().ok(),
        _ => None,
    }
    .ok_or_else(|| wrong_kind(word, meta))
}

fn flag(word: &Ident, meta: &Meta) -> syn::Result<()> {
    match meta {
        Meta::Path(_) => Ok(()),
        Meta::NameValue(_) | Meta::List(_) => Err(wrong_kind(word, meta)),
    }
}

/// A text is looked at here; what an expression gives is looked at when the tool is registered.
fn schema(word: &Ident, meta: &Meta) -> syn::Result<Schema> {
    let Meta::NameValue(pair) = meta else {
        return Err(wrong_kind(word, meta));
    };
    let Expr::Lit(ExprLit { lit, .. }) = &pair.value else {
        return Ok(Schema::Value(pair.value.clone()));
    };
    let Lit::Str(text) = lit else {
        return Err(wrong_kind(word, meta));
    };
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text.value()) {
        Ok(_) => Ok(Schema::Text(text.clone())),
        Err(error) => {
            Err(syn::Error::new_spanned(text, format!("the schema is not the JSON of an object: {error}")))
        }
    }
}

fn approval(word: &Ident, meta: &Meta) -> syn::Result<Approval> {
    match meta {
        Meta::Path(_) => Ok(Approval::Always),
        Meta::NameValue(pair) if !matches!(pair.value, Expr::Lit(_)) => {
            Ok(Approval::When(pair.value.clone()))
        }
        Meta::NameValue(_) | Meta::List(_) => Err(wrong_kind(word, meta)),
    }
}

/// At most 28 digits: what the decimal of the record holds exactly.
fn cost(text: &LitStr) -> syn::Result<Cost> {
    const DIGITS: usize = 28;
    let value = text.value();
    let (whole, fraction) = value.split_once('.').unwrap_or((&value, ""));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let well_formed = !whole.is_empty() && plain(whole) && plain(fraction) && !value.ends_with('.');
    let digits = format!("{whole}{fraction}");
    match (well_formed && digits.len() <= DIGITS, digits.parse(), u32::try_from(fraction.len())) {
        (true, Ok(digits), Ok(scale)) => Ok(Cost { digits, scale }),
        _ => {
            let message = format!(
                "`cost_per_call` is a decimal number of at most {DIGITS} digits, not less than zero; \
                 write `cost_per_call = \"0.002\"`"
            );
            Err(syn::Error::new_spanned(text, message))
        }
    }
}

fn report(word: &Ident, meta: &Meta) -> syn::Result<bool> {
    match string(word, meta)?.value().as_str() {
        "rerun" => Ok(false),
        "report" => Ok(true),
        _ => Err(wrong_kind(word, meta)),
    }
}

fn name(text: &LitStr) -> syn::Result<LitStr> {
    if is_name(&text.value()) {
        return Ok(text.clone());
    }
    let message = "a tool's name is one or more of A-Z a-z 0-9 _ -";
    Err(syn::Error::new_spanned(text, message))
}

/// Specification P, "Options".
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !name.is_empty() && name.bytes().all(allowed)
}

fn description(text: &LitStr) -> syn::Result<LitStr> {
    if text.value().trim().is_empty() {
        return Err(syn::Error::new_spanned(text, "the description is empty"));
    }
    Ok(text.clone())
}

fn duration(word: &str, example: &str, text: &LitStr) -> syn::Result<Duration> {
    let error = |why: String| {
        let message = format!("`{word}` is no duration: {why}; write `{word} = \"{example}\"`");
        syn::Error::new_spanned(text, message)
    };
    let duration = humantime::parse_duration(&text.value()).map_err(|e| error(e.to_string()))?;
    if duration.is_zero() {
        return Err(syn::Error::new_spanned(text, format!("`{word}` must be more than zero")));
    }
    Ok(duration)
}
