//! What must hold at the end. Each check adds what is wrong to a list.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;

use crate::ledger::Call;
use crate::table::{Accepted, Table, TurnKey};
use crate::topics::Raw;

/// All that was seen, from outside.
pub struct Evidence {
    pub exactly_once: bool,
    pub turns: Vec<Raw>,
    /// Those that a reader of committed records sees in exactly-once mode, else all.
    pub results: Vec<Raw>,
    pub dead_letters: Vec<Raw>,
    /// The events as they came.
    pub history: Vec<Raw>,
    /// The events that compaction has left.
    pub events: Vec<Raw>,
    pub calls: Vec<Call>,
}

/// What is to be told beside the violations.
#[derive(Debug, Default)]
pub struct Found {
    pub duplicate_results: usize,
    pub reruns: usize,
    pub unknown_outcomes: usize,
    pub compacted: usize,
    pub violations: Vec<String>,
}

fn ids(raw: &Raw) -> TurnKey {
    let value = raw.json();
    let id = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    (id("session_id"), id("turn_id"))
}

/// Whether a step is the call of a tool, and not of an agent.
fn is_tool(event: &Value) -> bool {
    event["type"] == "tool:result" && event["tool"] != "chaos"
}

impl Evidence {
    /// Compares everything with everything: the table of the whole history, the one that compaction has left, results,
    /// turns and the ledger.
    pub fn compare(&self, history: &Accepted, left: &Accepted) -> Found {
        let mut found = Found::default();
        found.violations.extend(history.violations.iter().chain(&left.violations).cloned());
        for letter in &self.dead_letters {
            found.violations.push(format!("a dead letter: {}", letter.line()));
        }
        self.compaction(history, left, &mut found);
        self.one_key_and_one_input_per_position(&mut found);
        self.results(&history.table, &mut found);
        self.order(&mut found);
        self.steps(&history.table, &mut found);
        self.ledger(&history.table, &mut found);
        self.order_of_effects(&history.table, &mut found);
        found
    }

    /// What was compacted away has a successor under its key, and never counted for anything but a start.
    fn compaction(&self, history: &Accepted, left: &Accepted, found: &mut Found) {
        let at: HashMap<(i32, i64), &Raw> =
            self.events.iter().map(|raw| ((raw.partition, raw.offset), raw)).collect();
        let mut last: HashMap<(i32, &str), i64> = HashMap::new();
        for raw in &self.history {
            last.insert((raw.partition, &raw.key), raw.offset);
        }
        for raw in &self.history {
            match at.get(&(raw.partition, raw.offset)) {
                Some(left) if *left == raw => {}
                Some(left) => {
                    found.violations.push(format!("an event has changed: {} != {}", raw.line(), left.line()))
                }
                None if last[&(raw.partition, raw.key.as_str())] > raw.offset => found.compacted += 1,
                None => found.violations.push(format!("an event is gone: {}", raw.line())),
            }
        }
        if self.events.len() + found.compacted != self.history.len() {
            let (events, history) = (self.events.len(), self.history.len());
            found
                .violations
                .push(format!("{events} events are left of {history}, {} compacted", found.compacted));
        }
        for key in history.table.keys().chain(left.table.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (history.table.get(key), left.table.get(key));
            if before != after {
                found
                    .violations
                    .push(format!("compaction has changed turn {key:?}: {before:?} != {after:?}"));
            }
        }
    }

    /// Over all events, void ones too: whoever has written them may have run the tool.
    fn one_key_and_one_input_per_position(&self, found: &mut Found) {
        let mut keys: BTreeMap<(TurnKey, String), BTreeSet<String>> = BTreeMap::new();
        let mut inputs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut owners: BTreeMap<String, BTreeSet<(TurnKey, String)>> = BTreeMap::new();
        for raw in &self.history {
            let event = raw.json();
            let Some(position) = event["position"].as_str() else {
                continue;
            };
            let key = event["idempotency_key"].as_str().unwrap_or_default().to_owned();
            let at = (ids(raw), position.to_owned());
            keys.entry(at.clone()).or_default().insert(key.clone());
            owners.entry(key.clone()).or_default().insert(at);
            if matches!(event["type"].as_str(), Some("tool:start" | "tool:result")) {
                let input = format!("{} {} {}", event["tool"], event["arguments"], event["input_hash"]);
                inputs.entry(key).or_default().insert(input);
            }
        }
        let many = |what: &str, of: String, values: String| format!("{what} of {of}: {values}");
        let violations = &mut found.violations;
        violations.extend(
            (keys.iter().filter(|(_, keys)| keys.len() != 1))
                .map(|(at, keys)| many("keys", format!("{at:?}"), format!("{keys:?}"))),
        );
        violations.extend(
            (owners.iter().filter(|(_, at)| at.len() != 1))
                .map(|(key, at)| many("positions", key.clone(), format!("{at:?}"))),
        );
        violations.extend(
            (inputs.iter().filter(|(_, inputs)| inputs.len() != 1))
                .map(|(key, inputs)| many("inputs", key.clone(), format!("{inputs:?}"))),
        );
    }

    /// Each turn has its result, once in exactly-once mode, and it is what the table says.
    fn results(&self, table: &Table, found: &mut Found) {
        let mut results: BTreeMap<TurnKey, Vec<&Value>> = BTreeMap::new();
        for raw in &self.results {
            results.entry(ids(raw)).or_default().push(raw.json());
        }
        let sent: HashSet<TurnKey> = self.turns.iter().map(ids).collect();
        for turn in &sent {
            let given = results.get(turn).map(Vec::as_slice).unwrap_or_default();
            let wrong = match given {
                [] => Some("has no result".to_owned()),
                [_, _, ..] if self.exactly_once => Some(format!("has {} committed results", given.len())),
                [first, more @ ..] => {
                    found.duplicate_results += usize::from(!more.is_empty());
                    let same = |other: &&Value| {
                        ["status", "output", "error", "usage"].iter().all(|f| other[*f] == first[*f])
                    };
                    let recorded = table.get(turn).and_then(|turn| turn.outputs.first());
                    match recorded {
                        _ if first["status"] != "completed" => Some("has not completed".into()),
                        _ if !more.iter().all(same) => Some("has two results that differ".into()),
                        Some(output) if output.event["output"] == first["output"] => None,
                        recorded => Some(format!("has another answer on the log: {recorded:?}")),
                    }
                }
            };
            found.violations.extend(wrong.map(|why| format!("turn {turn:?} {why}: {given:?}")));
        }
        for turn in results.keys().chain(table.keys()).filter(|turn| !sent.contains(*turn)) {
            found.violations.push(format!("turn {turn:?} was never sent"));
        }
    }

    /// The first results of a session come in the order of its turns.
    fn order(&self, found: &mut Found) {
        let by_session = |records: &[Raw]| {
            let (mut all, mut seen) = (BTreeMap::<String, Vec<String>>::new(), HashSet::new());
            for (session, turn) in records.iter().map(ids) {
                if seen.insert((session.clone(), turn.clone())) {
                    all.entry(session).or_default().push(turn);
                }
            }
            all
        };
        let (turns, results) = (by_session(&self.turns), by_session(&self.results));
        for (session, sent) in turns {
            let answered = results.get(&session).cloned().unwrap_or_default();
            if let Some((turn, result)) = sent.iter().zip(&answered).find(|(turn, result)| turn != result) {
                found
                    .violations
                    .push(format!("session {session:?}: the result of {result} came where {turn}'s was due"));
            }
        }
    }

    /// Each turn has each of its steps once, and ends once.
    fn steps(&self, table: &Table, found: &mut Found) {
        for raw in &self.turns {
            let (turn, value) = (ids(raw), raw.json());
            let Some(recorded) = table.get(&turn) else {
                continue;
            };
            let counts = value["metadata"]["calls"].as_str().unwrap_or_default();
            let counts: Vec<u32> = counts.split(',').filter_map(|count| count.parse().ok()).collect();
            let calls = counts
                .iter()
                .enumerate()
                .flat_map(|(reply, count)| (0..*count).map(move |call| format!("m{reply}.c{call}")));
            let wanted: BTreeSet<String> =
                (0..=counts.len()).map(|reply| format!("m{reply}")).chain(calls).collect();
            let have: BTreeSet<String> = recorded.steps.keys().cloned().collect();
            let mut wrong = Vec::new();
            let in_code = value["agent"] == "coder";
            if !in_code && wanted != have {
                wrong.push(format!("has the steps {have:?}, not {wanted:?}"));
            }
            let (made, asked) = (recorded.told().len(), counts.iter().sum::<u32>());
            if in_code && made != asked as usize {
                wrong.push(format!("has made {made} direct calls, not {asked}: {have:?}"));
            }
            let twice = recorded.steps.iter().filter(|(_, contents)| contents.len() != 1);
            wrong.extend(
                twice.map(|(position, contents)| format!("has {position} more than once: {contents:?}")),
            );
            if recorded.outputs.len() != 1 || recorded.ends.len() != 1 {
                wrong.push(format!("has the answers {:?} and ends at {:?}", recorded.outputs, recorded.ends));
            }
            let output = recorded.outputs.first().map(|output| output.text()).unwrap_or_default();
            let mut said: Value = serde_json::from_str(&output).unwrap_or_default();
            let transcript = match in_code {
                true => serde_json::json!({"results": recorded.told()}),
                false => recorded.transcript(),
            };
            if let Some(said) = said.as_object_mut() {
                said.remove("nonce");
            }
            if in_code && let Some(told) = said["results"].as_array_mut() {
                told.sort_by_key(|text| text.as_str().map(str::to_owned));
            }
            if said != transcript {
                wrong.push(format!("answers {said}, and its steps are {transcript}"));
            }
            found.violations.extend(wrong.into_iter().map(|why| format!("turn {turn:?} {why}")));
        }
    }

    /// A key carries one set of arguments, those on the log; what a call returned, the ledger has told it.
    fn ledger(&self, table: &Table, found: &mut Found) {
        let mut calls: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
        for call in &self.calls {
            calls.entry(&call.key).or_default().push(call);
        }
        found.reruns = self.calls.len() - calls.len();
        let results = table
            .values()
            .flat_map(|turn| turn.steps.iter())
            .filter(|(_, contents)| is_tool(&contents[0].event));
        for (_, contents) in results {
            let content = &contents[0];
            let (key, tool) =
                (content.event["idempotency_key"].as_str().unwrap_or_default(), &content.event["tool"]);
            let own = calls.remove(key).unwrap_or_default();
            let shown = || format!("{key}: {content:?}, and the ledger has {own:?}");
            if own.iter().any(|call| call.arguments != content.event["arguments"] || call.tool != *tool) {
                found.violations.push(format!("other arguments: {}", shown()));
            }
            if tool == "book" && own.len() > 1 {
                found.violations.push(format!("ran more than once: {}", shown()));
            }
            let text = content.text();
            let told = match content.code() {
                None => own.iter().any(|call| call.nonce == text),
                Some("unknown_outcome") if tool == "book" => {
                    found.unknown_outcomes += 1;
                    true
                }
                Some(_) => tool == "shaky" && own.iter().any(|call| text.ends_with(&call.nonce)),
            };
            if !told {
                found.violations.push(format!("a result that the ledger never gave: {}", shown()));
            }
        }
        found
            .violations
            .extend(calls.into_iter().map(|(key, calls)| format!("not on the log: {key}: {calls:?}")));
    }

    /// No tool of a turn runs before every tool of the session's turn before it has.
    fn order_of_effects(&self, table: &Table, found: &mut Found) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            first.entry(&call.key).or_insert(index);
        }
        let mut latest: HashMap<String, (usize, String)> = HashMap::new();
        for (session, turn) in self.turns.iter().map(ids) {
            let Some(recorded) = table.get(&(session.clone(), turn)) else {
                continue;
            };
            let calls =
                recorded.steps.values().flatten().filter(|content| content.code() != Some("unknown_outcome"));
            let calls = calls.filter_map(|content| {
                let key = content.event["idempotency_key"].as_str()?;
                Some((*first.get(key)?, key.to_owned()))
            });
            let calls: Vec<_> = calls.collect();
            if let (Some(begin), Some(before)) = (calls.iter().min(), latest.get(&session))
                && begin.0 < before.0
            {
                found.violations.push(format!("session {session:?}: {} ran before {}", begin.1, before.1));
            }
            if let Some(last) = calls.into_iter().max() {
                latest.insert(session, last);
            }
        }
    }
}
