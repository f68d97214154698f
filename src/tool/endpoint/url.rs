//! The URL of an endpoint: a text with placeholders, which are filled with encoded arguments.
//!
//! An argument can become text within one segment of the path or one value of the query, and nothing else: what a
//! parser of URLs makes of the filled text has to be that text.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::Url;
use serde_json::{Map, Value};

use crate::tool::ToolError;

/// All but the unreserved characters (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest URL, in bytes, that the client can send.
const MAX_URL: usize = 65_534;

/// A URL with placeholders in its path and its query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    /// Scheme, host and port.
    origin: String,
    path: Vec<Piece>,
    query: Option<Vec<Piece>>,
    /// The names in the query that are set already.
    taken: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    /// The name of an argument.
    Argument(String),
}

impl Template {
    /// Reads `https://shop.example/orders/{order_id}?expand={expand}`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let Some(rest) = rest else {
            return Err("expected a URL that begins with http:// or https://".into());
        };
        let (host, target) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
        if host.is_empty() {
            return Err("has no host".into());
        }
        if host.contains(['{', '}']) {
            return Err(
                "has a placeholder in its host or port, which are literal: only path and query have some"
                    .into(),
            );
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("has white space in its host".into());
        }
        if host.contains('@') {
            return Err("has a user name or a password: send it as a header".into());
        }
        if target.contains('#') {
            return Err(
                "has a fragment, which is never sent: remove it (a # of the path is written %23)".into()
            );
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let template = Self {
            origin: text.strip_suffix(target).unwrap_or_default().into(),
            path: pieces(if path.is_empty() { "/" } else { path })?,
            query: query.map(pieces).transpose()?,
            taken: query.map(names).unwrap_or_default(),
        };
        template.check()?;
        Ok(template)
    }

    /// A literal part that a parser changes would never be what was put together.
    fn check(&self) -> Result<(), String> {
        let filled =
            |pieces: &[Piece]| pieces.iter().map(|piece| piece.text().unwrap_or("x")).collect::<String>();
        let (path, query) = (filled(&self.path), self.query.as_deref().map(filled));
        let url = match whole(&self.origin, &path, query.as_deref()).parse::<Url>() {
            Ok(url) => url,
            Err(error) => return Err(format!("is not a URL: {error}")),
        };
        if is_exactly(&url, &path, query.as_deref()) {
            return Ok(());
        }
        Err("has a path or a query that is not written as it is sent: percent-encode spaces and what is not ASCII, and \
             leave out . and .. as parts of the path"
            .into())
    }

    /// What the schema of the arguments does not promise of the placeholders.
    pub(crate) fn unpromised(&self, schema: &Value) -> Vec<String> {
        let declared = |name: &str| schema.get("properties").is_some_and(|all| all.get(name).is_some());
        let required = schema.get("required").and_then(Value::as_array);
        let required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let mut problems = Vec::new();
        for name in self.arguments() {
            let ty = schema.pointer(&format!("/properties/{name}/type")).and_then(Value::as_str);
            let problem = match (declared(name), required(name)) {
                (true, true) if matches!(ty, Some("object" | "array" | "null")) => {
                    format!(
                        "{{{name}}} is of type {} in `parameters`: only a string, a number or a boolean can stand there",
                        ty.unwrap_or_default()
                    )
                }
                (true, true) => continue,
                (false, _) => format!("{{{name}}} is not one of the properties of `parameters`"),
                (true, false) => {
                    format!("{{{name}}} is not in `required` of `parameters`: a call could go without it")
                }
            };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        problems
    }

    fn arguments(&self) -> impl Iterator<Item = &str> {
        self.path.iter().chain(self.query.iter().flatten()).filter_map(Piece::argument)
    }

    /// The URL with these arguments in it, and those that are left. With `rest_in_query` none are left.
    ///
    /// # Errors
    /// `invalid_arguments`: an argument cannot stand where it belongs.
    pub(crate) fn fill(
        &self,
        arguments: Map<String, Value>,
        rest_in_query: bool,
    ) -> Result<(Url, Map<String, Value>), ToolError> {
        let path = fill(&self.path, &arguments, false)?;
        let mut query = self.query.as_deref().map(|query| fill(query, &arguments, true)).transpose()?;
        let mut rest = arguments;
        rest.retain(|name, _| self.arguments().all(|used| used != name));
        if rest_in_query {
            for (name, value) in std::mem::take(&mut rest) {
                if self.taken.contains(&name) {
                    let why = format!("the argument {name} is set by the tool itself; leave it out");
                    return Err(ToolError::invalid_arguments(why));
                }
                append(&mut query, &name, &value);
            }
        }
        let text = whole(&self.origin, &path, query.as_deref());
        if text.len() > MAX_URL {
            let why = format!("the URL that they make has {} bytes; it may have {MAX_URL}", text.len());
            return Err(ToolError::invalid_arguments(why));
        }
        match text.parse::<Url>() {
            Ok(url) if is_exactly(&url, &path, query.as_deref()) => Ok((url, rest)),
            _ => {
                let names: Vec<_> = self.path.iter().filter_map(Piece::argument).collect();
                Err(ToolError::invalid_arguments(format!(
                    "with {} the path of the URL has a part \".\" or \"..\", which leads to another path",
                    names.join(", ")
                )))
            }
        }
    }
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Argument(_) => None,
        }
    }

    fn argument(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Argument(name) => Some(name),
        }
    }
}

/// Splits a text at its placeholders.
fn pieces(mut text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    while let Some(at) = text.find(['{', '}']) {
        let (before, brace) = text.split_at(at);
        if !before.is_empty() {
            pieces.push(Piece::Text(before.into()));
        }
        match brace.strip_prefix('{').and_then(|name| name.split_once('}')) {
            Some((name, after)) if is_name(name) => {
                pieces.push(Piece::Argument(name.into()));
                text = after;
            }
            _ => {
                let shown: String = brace.chars().take(20).collect();
                return Err(format!(
                    "has a brace that makes no placeholder such as {{order_id}}, at {shown:?}; a brace of the URL \
                     itself is written %7B or %7D"
                ));
            }
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.into()));
    }
    Ok(pieces)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// The names in a query.
fn names(query: &str) -> Vec<String> {
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default().replace('+', " "));
    names.map(|name| percent_decode_str(&name).decode_utf8_lossy().into_owned()).collect()
}

fn whole(origin: &str, path: &str, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{origin}{path}?{query}"),
        None => format!("{origin}{path}"),
    }
}

fn is_exactly(url: &Url, path: &str, query: Option<&str>) -> bool {
    url.path() == path && url.query() == query && url.fragment().is_none()
}

fn fill(pieces: &[Piece], arguments: &Map<String, Value>, may_be_empty: bool) -> Result<String, ToolError> {
    let mut filled = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Argument(name) => {
                let text = arguments.get(name).and_then(plain).ok_or_else(|| {
                    let why =
                        format!("the argument {name} is a part of the URL: a string, a number or a boolean");
                    ToolError::invalid_arguments(why)
                })?;
                if text.is_empty() && !may_be_empty {
                    let why =
                        format!("the argument {name} is a part of the URL's path, so it must not be empty");
                    return Err(ToolError::invalid_arguments(why));
                }
                filled.extend(utf8_percent_encode(&text, ENCODED));
            }
        }
    }
    Ok(filled)
}

/// The text of a value that is one: a number with every digit.
fn plain(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Adds a parameter: an array repeats its name, null is left out, anything else that is no text is compact JSON.
fn append(query: &mut Option<String>, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter().for_each(|item| match item {
            Value::Array(_) => append_text(query, name, &item.to_string()),
            item => append(query, name, item),
        }),
        value => append_text(query, name, &plain(value).unwrap_or_else(|| value.to_string().into())),
    }
}

fn append_text(query: &mut Option<String>, name: &str, text: &str) {
    let query = query.get_or_insert_default();
    if !query.is_empty() {
        query.push('&');
    }
    query.extend(utf8_percent_encode(name, ENCODED));
    query.push('=');
    query.extend(utf8_percent_encode(text, ENCODED));
}

#[cfg(test)]
mod tests;
