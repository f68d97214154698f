//! Environment variables over the file: `TURNMILL__SECTION__FIELD=value`.

use std::collections::BTreeMap;

use super::field::{Field, Step};
use super::problem::{Place, Problem};
use super::tree::{Node, Value};

const PREFIX: &str = "TURNMILL__";

/// More parts than any setting has.
const MAX_PARTS: usize = 16;

/// This process's environment, for [`load`](super::load). What is not UTF-8 becomes U+FFFD instead of a panic.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// Puts each variable of ours into the tree.
pub(super) fn merge(
    tree: &mut Node,
    env: impl Iterator<Item = (String, String)>,
    problems: &mut Vec<Problem>,
) {
    // By field, so that element 0 comes before element 1 whatever order the environment has.
    let mut settings: BTreeMap<Field, (String, String)> = BTreeMap::new();
    for (variable, text) in env {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        let Some(field) = field_of(name) else {
            let message = "not the name of a setting: expected TURNMILL__SECTION__FIELD";
            problems.push(Problem::variable(&variable, message));
            continue;
        };
        if let Some((other, _)) = settings.get(&field) {
            problems
                .push(Problem::variable(&variable, format!("{other} sets {field} too; keep one of them")));
            continue;
        }
        settings.insert(field, (variable, text));
    }
    for (field, (variable, text)) in settings {
        if is_header(&field) {
            // In a variable's name a header's is not the header's: it has no dash, and its case is another.
            let message = "sets a header of an HTTP tool: set it in the file, as `Name = \"${VARIABLE}\"`";
            problems.push(Problem::variable(&variable, message));
            continue;
        }
        let leaf = Node { value: Value::Text(text), place: Some(Place::Variable(variable.clone())) };
        if let Err(message) = insert(tree, &field, leaf) {
            problems.push(Problem::variable(&variable, message));
        }
    }
}

/// The field that a variable without its prefix names; none if it cannot name one.
fn field_of(name: &str) -> Option<Field> {
    let name = name.to_lowercase();
    let parts: Vec<&str> = name.split("__").collect();
    if parts.len() > MAX_PARTS || parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    if let ["kafka", "properties", property @ ..] = parts.as_slice()
        && !property.is_empty()
    {
        // Properties have dots, which few shells allow in a variable.
        let property = property.join(".").replace('_', ".");
        return Some(Field::default().child("kafka").child("properties").child(property.as_str()));
    }
    let step = |part: &&str| part.parse().map_or_else(|_| Step::from(*part), Step::Index);
    Some(Field(parts.iter().map(step).collect()))
}

fn is_header(field: &Field) -> bool {
    field.is_in("http_tools") && field.0.len() > 3 && field.0.get(2) == Some(&"headers".into())
}

/// Puts a leaf at a field, with the tables and arrays around it.
fn insert(root: &mut Node, field: &Field, leaf: Node) -> Result<(), String> {
    let mut node = root;
    let mut at = Field::default();
    let mut steps = field.0.iter().peekable();
    while let Some(step) = steps.next() {
        let value = match steps.peek() {
            Some(Step::Index(_)) => Value::Array(Vec::new()),
            _ => Value::Table(BTreeMap::new()),
        };
        let new = Node { value, place: leaf.place.clone() };
        node = match (&mut node.value, step) {
            (Value::Table(entries), Step::Key(key)) => entries.entry(key.clone()).or_insert(new),
            (Value::Array(items), Step::Index(index)) => {
                let next = items.last().map_or(0, |(last, _)| last + 1);
                if *index == next {
                    items.push((next, new));
                }
                match items.iter_mut().find(|(original, _)| original == index) {
                    Some((_, node)) => node,
                    None => return Err(format!("there is no {at}[{index}]: {at} has {next} elements")),
                }
            }
            (Value::Array(_), Step::Key(_)) => {
                return Err(format!("{at} is a list: a number comes next, 0 for its first element"));
            }
            (Value::Table(_), Step::Index(_)) => return Err(format!("{at} is not a list")),
            (Value::Scalar(_) | Value::Text(_), _) => {
                return Err(format!("{at} has no fields: it is one value"));
            }
        };
        at.0.push(step.clone());
    }
    *node = leaf;
    Ok(())
}
