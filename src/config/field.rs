//! The place of a field in the settings: `worker.drain_timeout`, `agents[0].tools[1]`,
//! `kafka.properties."security.protocol"`.

use std::fmt;

/// One step on the way to a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Into an array.
    Index(usize),
    /// Into a table.
    Key(String),
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.into())
    }
}

/// The way from the root to a field; empty for the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field(pub(super) Vec<Step>);

impl Field {
    /// Reads what `Display` writes; takes anything else as far as it makes sense.
    pub(super) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (step, after) = match first {
                '.' => (None, rest.get(1..).unwrap_or_default()),
                '"' => {
                    let (key, after) = unquote(rest.get(1..).unwrap_or_default());
                    (Some(Step::Key(key)), after)
                }
                '[' => {
                    let (digits, after) =
                        rest.get(1..).unwrap_or_default().split_once(']').unwrap_or_default();
                    (digits.parse().ok().map(Step::Index), after)
                }
                _ => {
                    let end = rest.find(['.', '[']).unwrap_or(rest.len());
                    let (key, after) = rest.split_at(end);
                    (Some(key.into()), after)
                }
            };
            steps.extend(step);
            rest = after;
        }
        Self(steps)
    }

    /// The field below this one.
    pub(super) fn child(&self, step: impl Into<Step>) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.into());
        Self(steps)
    }

    /// The field above this one; none above the root.
    pub(super) fn parent(&self) -> Option<Self> {
        let (_, steps) = self.0.split_last()?;
        Some(Self(steps.to_vec()))
    }

    /// Whether one of the two is the other or lies within it.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }

    /// Whether it is a section with this name, or lies within it.
    pub(super) fn is_in(&self, section: &str) -> bool {
        matches!(self.0.first(), Some(Step::Key(key)) if key == section)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    write_key(f, key)?;
                }
            }
        }
        Ok(())
    }
}

fn write_key(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !key.is_empty() && key.chars().all(bare) {
        return f.write_str(key);
    }
    f.write_str("\"")?;
    for c in key.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            // A key must not break the line of a message, or write to a terminal.
            c if c.is_control() => write!(f, "\\u{:04X}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// Reads up to the closing quote; returns the key and what follows the quote.
fn unquote(text: &str) -> (String, &str) {
    let mut key = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    key.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
                }
                escaped => key.extend(escaped),
            },
            c => key.push(c),
        }
    }
    (key, chars.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![any::<usize>().prop_map(Step::Index), any::<String>().prop_map(Step::Key)];
        prop::collection::vec(step, 0..5)
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(steps in steps()) {
            let field = Field(steps);
            prop_assert_eq!(Field::parse(&field.to_string()), field);
        }

        #[test]
        fn any_text_can_be_read(text: String) {
            Field::parse(&text);
        }
    }

    #[test]
    fn written_as_in_toml() {
        let field = Field::default().child("agents").child(1).child("tools").child(0);
        assert_eq!(field.to_string(), "agents[1].tools[0]");
        let field = Field::default().child("kafka").child("properties").child("a.b");
        assert_eq!(field.to_string(), "kafka.properties.\"a.b\"");
    }

    #[test]
    fn overlapping() {
        let overlap = |a, b| Field::parse(a).overlaps(&Field::parse(b));
        assert!(overlap("agents[1]", "agents[1].tools[0]"));
        assert!(overlap("agents[1].tools", "agents[1]"));
        assert!(!overlap("agents[1]", "agents[10]"));
        assert!(!overlap("kafka.brokers", "kafka.group_id"));
    }
}
