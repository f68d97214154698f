//! From the tree to [`Config`]: every misfit, not only the first.
//!
//! serde stops at the first one. So each is noted and taken out, and what is left is tried again.

use serde_path_to_error::Segment;

use super::Config;
use super::field::{Field, Step};
use super::problem::Problem;
use super::tree::{Node, Value};

/// How many problems are looked for.
const MAX_PROBLEMS: usize = 100;

/// How much of a wrong value is shown, in characters.
const MAX_SHOWN: usize = 60;

/// Gives the settings their types. What does not fit is taken out of the tree and noted as a problem; the
/// settings are then what is left, and none if that cannot be told.
pub(super) fn decode(tree: &mut Node, problems: &mut Vec<Problem>) -> Option<Config> {
    while problems.len() < MAX_PROBLEMS {
        let error = match serde_path_to_error::deserialize::<_, Config>(tree.to_value()) {
            Ok(config) => return Some(config),
            Err(error) => error,
        };
        if !mend(tree, &field_of(error.path()), error.inner().message(), problems) {
            return None;
        }
    }
    problems.push(Problem::new(format!("and perhaps more: only {MAX_PROBLEMS} problems are shown")));
    None
}

fn field_of(path: &serde_path_to_error::Path) -> Field {
    let steps = path.iter().map_while(|segment| match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(key.as_str().into()),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    Field(steps.collect())
}

/// Makes the tree fit at one place; says whether it could.
///
/// It always comes to an end: each round turns a variable's text into TOML, which is not text any more, or
/// takes something out, or puts in what is missing, which is never taken out alone.
fn mend(tree: &mut Node, field: &Field, message: &str, problems: &mut Vec<Problem>) -> bool {
    if let Some(name) = missing(message) {
        note(tree, &field.child(name), "is missing".into(), problems);
        return insert_placeholder(tree, field, name);
    }
    let Some(node) = tree.at_mut(field) else {
        problems.push(Problem::field(field.to_string(), message));
        return false;
    };
    if let Some(reread) = node.reread() {
        *node = reread;
        return true;
    }
    let message = rephrase(message, field, node);
    if note(tree, field, message, problems) {
        return tree.remove(field);
    }
    // The placeholder itself does not fit, so what it was put into has to go.
    field.parent().is_some_and(|parent| tree.remove(&parent))
}

/// The field that serde says is missing.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// A required field that is missing, or was and is taken out: only one problem for both.
fn insert_placeholder(tree: &mut Node, table: &Field, name: &str) -> bool {
    let Some(Value::Table(entries)) = tree.at_mut(table).map(|node| &mut node.value) else { return false };
    let value = Value::Scalar(toml::Value::String(String::new()));
    entries.insert(name.into(), Node { value, place: None }).is_none()
}

/// Adds a problem, unless the field has one; says whether it did.
fn note(tree: &Node, field: &Field, message: String, problems: &mut Vec<Problem>) -> bool {
    let written = tree.as_written(field).to_string();
    if problems.iter().any(|problem| problem.field.as_ref() == Some(&written)) {
        return false;
    }
    problems.push(Problem::field(written, message));
    true
}

/// serde's message in words for someone who does not know Rust's types.
fn rephrase(message: &str, field: &Field, node: &Node) -> String {
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let known = rest.rsplit_once(", expected ").map_or("nothing", |(_, known)| known);
        return format!("unknown field; expected {known}");
    }
    let expected = match message.rsplit_once(", expected ") {
        Some((_, expected)) => expected,
        None if message == "invalid socket address syntax" => "socket address",
        None => return message.into(),
    };
    let expected = match expected {
        "a duration" => "a duration such as \"25s\"",
        "a nonzero usize" | "a nonzero u64" => "a whole number of at least 1",
        "u32" => "a whole number from 0 to 4294967295",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "socket address" => "an address such as \"127.0.0.1:9464\"",
        "a boolean" => "true or false",
        "a sequence" if field.0.len() == 1 => {
            return format!("expected tables headed [[{field}]]; got {}", got(field, node));
        }
        "a sequence" => "a list such as [\"a\", \"b\"]",
        "a map" => "a table",
        "an integer or string" | "parsable string" | "integer overflow" => "a size such as \"1MiB\"",
        "string only" => "a string",
        "path string" => "a path",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("expected {expected}; got {}", got(field, node))
}

/// What is there instead.
fn got(field: &Field, node: &Node) -> String {
    // These may hold a password or a token.
    let header = is_header(field);
    let secret =
        header || ["kafka", "mcp_servers", "cache", "providers"].iter().any(|table| field.is_in(table));
    match &node.value {
        Value::Table(_) => "a table".into(),
        Value::Array(_) => "a list".into(),
        Value::Scalar(toml::Value::Integer(_) | toml::Value::Float(_)) if header => "a number".into(),
        Value::Text(_) | Value::Scalar(toml::Value::String(_)) if secret => "a string".into(),
        Value::Text(text) | Value::Scalar(toml::Value::String(text)) => quoted(text),
        Value::Scalar(value) => value.to_string(),
    }
}

/// Whether there may be a header of an HTTP tool in a field.
fn is_header(field: &Field) -> bool {
    field.is_in("http_tools") && field.0.get(2).is_none_or(|step| *step == "headers".into())
}

/// The start of a text, in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
