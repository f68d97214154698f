//! The settings as they were written, before they get types: values, and the place of each.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::field::{Field, Step};
use super::problem::{Place, Places, Problem};

/// How many syntax errors are shown. An unclosed bracket makes one of almost every line after it.
const MAX_SYNTAX_ERRORS: usize = 5;

/// A value, and where it was set.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    /// None for the root, and for what stands in for a missing field.
    pub(super) place: Option<Place>,
}

/// What was set.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A value of the file that is neither a table nor an array.
    Scalar(toml::Value),
    /// The text of a variable: a string, or else TOML, as its field wants.
    Text(String),
    /// The elements, each with the index that it was written at.
    Array(Vec<(usize, Node)>),
    /// The entries.
    Table(BTreeMap<String, Node>),
}

impl Node {
    /// Reads a file's text. None, and the syntax errors among the problems, if it is not TOML.
    pub(super) fn parse(text: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let lines = Lines::of(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            problems.extend(syntax_errors(&errors, &lines));
            return None;
        }
        let place = |at| Some(Place::Line(lines.line(at)));
        let mut reader = Reader { place: &place, problems };
        Some(Self { value: reader.table(table.get_ref(), &Field::default()), place: None })
    }

    /// The TOML value that a variable's text is, if it is one and no string.
    pub(super) fn reread(&self) -> Option<Self> {
        let Value::Text(text) = &self.value else { return None };
        let value = DeValue::parse(text).ok()?;
        if value.get_ref().is_str() {
            return None;
        }
        let mut problems = Vec::new();
        let mut reader = Reader { place: &|_| self.place.clone(), problems: &mut problems };
        let value = reader.value(value.get_ref(), &Field::default())?;
        problems.is_empty().then(|| Self { value, place: self.place.clone() })
    }

    /// As a TOML value, without the places.
    pub(super) fn to_value(&self) -> toml::Value {
        match &self.value {
            Value::Scalar(value) => value.clone(),
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Array(items) => items.iter().map(|(_, node)| node.to_value()).collect::<Vec<_>>().into(),
            Value::Table(entries) => {
                toml::Value::Table(entries.iter().map(|(k, node)| (k.clone(), node.to_value())).collect())
            }
        }
    }

    /// The node one step below. An index counts the elements that are left.
    pub(super) fn get_mut(&mut self, step: &Step) -> Option<&mut Self> {
        match (&mut self.value, step) {
            (Value::Array(items), Step::Index(index)) => items.get_mut(*index).map(|(_, node)| node),
            (Value::Table(entries), Step::Key(key)) => entries.get_mut(key),
            _ => None,
        }
    }

    /// The node at a field. An index counts the elements that are left.
    pub(super) fn at_mut(&mut self, field: &Field) -> Option<&mut Self> {
        field.0.iter().try_fold(self, |node, step| node.get_mut(step))
    }

    /// Removes the node at a field; says whether it was there.
    pub(super) fn remove(&mut self, field: &Field) -> bool {
        let (Some(parent), Some(last)) = (field.parent(), field.0.last()) else { return false };
        match (self.at_mut(&parent).map(|node| &mut node.value), last) {
            (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => {
                items.remove(*index);
                true
            }
            (Some(Value::Table(entries)), Step::Key(key)) => entries.remove(key).is_some(),
            _ => false,
        }
    }

    /// The field as it was written: with the indices before any element was removed.
    pub(super) fn as_written(&self, field: &Field) -> Field {
        let mut written = Field::default();
        let mut node = Some(self);
        for step in &field.0 {
            let (step, next) = match (node.map(|node| &node.value), step) {
                (Some(Value::Array(items)), Step::Index(index)) => match items.get(*index) {
                    Some((original, node)) => (Step::Index(*original), Some(node)),
                    None => (step.clone(), None),
                },
                (Some(Value::Table(entries)), Step::Key(key)) => (step.clone(), entries.get(key)),
                _ => (step.clone(), None),
            };
            written.0.push(step);
            node = next;
        }
        written
    }

    /// Puts the place of each field into `places`.
    pub(super) fn places(&self, field: &Field, places: &mut Places) {
        if let Some(place) = &self.place {
            places.fields.insert(field.clone(), place.clone());
        }
        match &self.value {
            Value::Scalar(_) | Value::Text(_) => {}
            Value::Array(items) => {
                items.iter().for_each(|(index, node)| node.places(&field.child(*index), places));
            }
            Value::Table(entries) => {
                entries.iter().for_each(|(key, node)| node.places(&field.child(key.as_str()), places));
            }
        }
    }
}

/// The first errors, one a line: what follows the first of a line mostly follows from it.
fn syntax_errors(errors: &[toml::de::Error], lines: &Lines) -> impl Iterator<Item = Problem> {
    let mut errors: Vec<_> =
        errors.iter().map(|e| (e.span().map_or(0, |span| span.start), e.message())).collect();
    errors.sort_by_key(|(at, _)| *at);
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    for (at, message) in errors {
        found.entry(lines.line(at)).or_insert_with(|| format!("not valid TOML: {message}"));
    }
    found.into_iter().take(MAX_SYNTAX_ERRORS).map(|(line, message)| Problem::line(line, message))
}

/// Makes nodes of parsed TOML.
struct Reader<'a> {
    /// The place of what starts at a byte of the text.
    place: &'a dyn Fn(usize) -> Option<Place>,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, field: &Field) -> Value {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            if let Some(value) = self.value(value.get_ref(), &field.child(key.get_ref().as_ref())) {
                // The key's line: a value may go on for many.
                let node = Node { value, place: (self.place)(key.span().start) };
                entries.insert(key.get_ref().to_string(), node);
            }
        }
        Value::Table(entries)
    }

    /// Nothing for a number that is too large, which is a problem.
    fn value(&mut self, value: &DeValue<'_>, field: &Field) -> Option<Value> {
        let scalar = match value {
            DeValue::Table(table) => return Some(self.table(table, field)),
            DeValue::Array(array) => {
                let mut items = Vec::new();
                for (index, item) in array.iter().enumerate() {
                    if let Some(value) = self.value(item.get_ref(), &field.child(index)) {
                        items.push((index, Node { value, place: (self.place)(item.span().start) }));
                    }
                }
                return Some(Value::Array(items));
            }
            DeValue::String(text) => toml::Value::String(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => toml::Value::Integer(number),
                Err(_) => {
                    let message =
                        format!("the number {number} is out of range: it does not fit into 64 bits");
                    self.problems.push(Problem::field(field.to_string(), message));
                    return None;
                }
            },
            DeValue::Float(number) => toml::Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => toml::Value::Boolean(*flag),
            DeValue::Datetime(time) => toml::Value::Datetime(*time),
        };
        Some(Value::Scalar(scalar))
    }
}

/// Where the lines of a text start, but for the first.
struct Lines {
    starts: Vec<usize>,
    last: usize,
}

impl Lines {
    fn of(text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { starts: newlines.map(|(at, _)| at + 1).collect(), last: text.len().saturating_sub(1) }
    }

    /// The line, from 1, of a byte. What is missing at the end is missing on the last line.
    fn line(&self, at: usize) -> usize {
        let at = at.min(self.last);
        self.starts.partition_point(|start| *start <= at) + 1
    }
}
