//! The accepted table, made of the events by the rules of `docs/guarantees.md` and by nothing of the code under test.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::topics::Raw;

/// Session and turn.
pub type TurnKey = (String, String);
pub type Table = BTreeMap<TurnKey, Turn>;

/// What counts of a turn.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Replies and results by position, in the order of the log.
    pub steps: BTreeMap<String, Vec<Content>>,
    /// What it answers.
    pub outputs: Vec<Content>,
    /// The offsets of its `turn:end`s.
    pub ends: Vec<i64>,
}

/// Something that is recorded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub offset: i64,
    pub event: Value,
}

impl Content {
    fn of(raw: &Raw, event: &Value) -> Self {
        let fields =
            ["type", "tool", "arguments", "input_hash", "reply", "output", "error", "idempotency_key"];
        let event = fields.iter().map(|field| ((*field).to_owned(), event[*field].clone())).collect();
        Self { offset: raw.offset, event: Value::Object(event) }
    }

    /// What the model has read of it.
    pub fn text(&self) -> String {
        match (&self.event["reply"]["text"], &self.event["error"]["message"], &self.event["output"]) {
            (Value::String(text), ..) | (_, Value::String(text), _) | (.., Value::String(text)) => {
                text.clone()
            }
            (.., output) => output.to_string(),
        }
    }

    pub fn code(&self) -> Option<&str> {
        self.event["error"]["code"].as_str()
    }
}

/// Events as they count, and what is wrong with them.
#[derive(Default)]
pub struct Accepted {
    pub table: Table,
    pub claims: usize,
    /// Events that a later claim has made void.
    pub void: usize,
    pub violations: Vec<String>,
}

/// Judges the events, partition after partition in the order of the log. In exactly-once mode they are the committed
/// ones, and an end among them counts whatever its fence.
pub fn accepted(events: &[Raw], exactly_once: bool) -> Accepted {
    let mut accepted = Accepted::default();
    for partition in events.chunk_by(|a, b| a.partition == b.partition) {
        accepted.partition(partition, exactly_once);
    }
    accepted
}

impl Accepted {
    fn partition(&mut self, events: &[Raw], exactly_once: bool) {
        let parsed: Vec<(&Raw, &Value)> = events.iter().map(|raw| (raw, raw.json())).collect();
        let is_claim = |event: &Value| event["type"] == "claim";
        let claims: BTreeSet<i64> =
            parsed.iter().filter(|(_, event)| is_claim(event)).map(|(raw, _)| raw.offset).collect();
        self.claims += claims.len();
        for (raw, event) in parsed.iter().filter(|(_, event)| !is_claim(event)) {
            let Some(fence) = event["fence"].as_i64() else {
                self.violations.push(format!("an event without a fence: {}", raw.line()));
                continue;
            };
            if !claims.contains(&fence) || fence >= raw.offset {
                self.violations.push(format!("the fence is no claim before the event: {}", raw.line()));
            }
            if !raw.key.ends_with(&format!("@{fence}")) {
                self.violations.push(format!("the record key lacks the fence: {}", raw.line()));
            }
            let superseded = claims.range(fence + 1..raw.offset).next().is_some();
            if superseded && !(exactly_once && event["type"] == "turn:end") {
                self.void += 1;
            } else {
                self.count(raw, event);
            }
        }
    }

    fn count(&mut self, raw: &Raw, event: &Value) {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let turn = self.table.entry((text("session_id"), text("turn_id"))).or_default();
        match event["type"].as_str().unwrap_or_default() {
            // One that has begun is no content.
            "step" if event["status"].is_null() => {}
            "model:reply" | "tool:result" | "step" => {
                turn.steps.entry(text("position")).or_default().push(Content::of(raw, event));
            }
            "turn:output" => turn.outputs.push(Content::of(raw, event)),
            "turn:end" => turn.ends.push(raw.offset),
            "turn:start" | "tool:start" => {}
            _ => self.violations.push(format!("an event of an unknown type: {}", raw.line())),
        }
    }
}

impl Turn {
    /// What an agent in code was told by the calls that it made itself, sorted.
    pub fn told(&self) -> Vec<String> {
        let direct = |position: &str| {
            position.contains('#') && !position.contains('/') && !position.starts_with("step:")
        };
        let calls = self.steps.iter().filter(|(position, _)| direct(position));
        let mut told: Vec<String> = calls.map(|(_, contents)| contents[0].text()).collect();
        told.sort();
        told
    }

    /// What its last reply must be made of: the texts of the replies before it and of the results, each in order.
    pub fn transcript(&self) -> Value {
        let mut by_number: BTreeMap<Vec<u32>, &Content> = BTreeMap::new();
        for (position, contents) in &self.steps {
            by_number.insert(numbers(position), &contents[0]);
        }
        let of = |len: usize| {
            let those = by_number.iter().filter(move |(numbers, _)| numbers.len() == len);
            those.map(|(_, content)| content.text()).collect::<Vec<_>>()
        };
        let mut replies = of(1);
        replies.pop();
        json!({"replies": replies, "results": of(2)})
    }
}

/// `m2.c0` as 2 and 0.
fn numbers(position: &str) -> Vec<u32> {
    position.split('.').filter_map(|part| part[1..].parse().ok()).collect()
}
