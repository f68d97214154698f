//! What stands between the brackets of `#[tool(..)]`.

use std::time::Duration;

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, LitInt, LitStr, Meta, Token};

use crate::Errors;

/// Every option, what it takes, and how it is written.
const ALLOWED: [(&str, &str, &str); 8] = [
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
    (REQUIRES_APPROVAL, "no value", "requires_approval"),
    (ON_UNKNOWN_OUTCOME, "\"rerun\" or \"report\"", "on_unknown_outcome = \"report\""),
];

const NAME: &str = "name";
const DESCRIPTION: &str = "description";
const RETRY: &str = "retry";
const TIMEOUT: &str = "timeout";
const READ_ONLY: &str = "read_only";
const WRITES: &str = "writes";
const REQUIRES_APPROVAL: &str = "requires_approval";
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
    pub(crate) requires_approval: bool,
    /// Whether a call that may have run is reported instead of run again.
    pub(crate) report: bool,
}

/// How often a call is tried again, and the first and the longest wait before, if there are any.
#[derive(Clone, Copy)]
pub(crate) struct Retry {
    pub(crate) max: u32,
    pub(crate) wait: Option<(Duration, Duration)>,
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
            _ => {
                flag(word, meta)?;
                self.requires_approval = true;
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
