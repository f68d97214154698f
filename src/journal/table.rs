//! Events merged per turn and position: what a rerun reads. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use super::Contents;
use crate::record::{EventType, ResultUsage, StepEvent, TurnStatus};
use crate::turn::{Failure, Hash, Position, Recorded, Reply, SessionId, TurnId, Used};

/// How many ended turns are remembered beyond those that may come again: a second copy of an older turn
/// runs as a new one.
const REMEMBERED: usize = 100_000;

/// What was recorded at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// The model's reply, or why it failed.
    Reply(Result<Reply, Failure>),
    /// What a call or a step returned, as canonical JSON, or why it failed; and what it and the steps inside it used,
    /// beyond the call itself.
    Result(Result<String, Failure>, Used),
}

/// What a turn answers, once that is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// The model's last word, or why the turn failed.
    pub answer: Result<String, Failure>,
    /// What the turn used.
    pub usage: ResultUsage,
}

/// What is recorded of a turn that has not ended.
#[derive(Debug, Default)]
pub(crate) struct TurnLog {
    /// Per position: content beats a start, and the first content wins.
    pub steps: HashMap<Position, Recorded<Content>>,
    /// The hashes of the arguments of recorded calls, where the events say them: which input has changed.
    pub arguments: HashMap<Position, Hash>,
    /// The beginning of the arguments of recorded calls, for a person who wants to know what has changed.
    pub shown: HashMap<Position, String>,
    /// When the first attempt at a call began that has no result, in milliseconds since 1970 UTC by its worker's clock.
    pub began_at: HashMap<Position, i64>,
    /// When the first attempt at the turn began, in milliseconds since 1970 UTC by its worker's clock.
    pub began_at_ms: Option<i64>,
    /// The number of the last attempt at the turn.
    pub starts: u32,
    /// Whether the start of the first attempt is there: nothing before it can be.
    pub is_whole: bool,
    /// The attempts that were begun for the same record since it last got any further, but for those that were
    /// given up in order: what is left has died.
    died: HashSet<u32>,
    input_offset: Option<i64>,
    /// The offset of the first event.
    pub first_offset: Option<i64>,
    /// What the turn answers.
    pub output: Option<Output>,
    /// Which events count by what they were made from.
    contents: Contents,
}

/// A turn that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// The hash of its input.
    pub input: Hash,
    /// The offset of its record.
    pub input_offset: i64,
}

type Turn = (SessionId, TurnId);

/// The recorded turns of one partition.
#[derive(Debug)]
pub(crate) struct Table {
    watermark: i64,
    open: HashMap<Turn, TurnLog>,
    ended: HashMap<Turn, End>,
    order: VecDeque<Turn>,
    /// Records that went to the dead letters, by offset, and the hash of each.
    dead: HashMap<i64, Hash>,
}

impl Table {
    /// Nothing recorded; records from `watermark` up may come again.
    pub(crate) fn new(watermark: i64) -> Self {
        Self {
            watermark,
            open: HashMap::new(),
            ended: HashMap::new(),
            order: VecDeque::new(),
            dead: HashMap::new(),
        }
    }

    /// Merges an event; they come in the order of the log.
    pub(crate) fn apply(&mut self, offset: i64, event: StepEvent) {
        let (Some(session), Some(turn)) = (event.session_id.clone(), event.turn_id.clone()) else {
            return;
        };
        if event.kind == EventType::TurnEnd {
            self.apply_end((session, turn), &event);
            return;
        }
        // A late event of a turn that has ended says nothing new.
        if self.ended.contains_key(&(session.clone(), turn.clone())) {
            return;
        }
        let log = self.open.entry((session, turn)).or_default();
        log.first_offset.get_or_insert(offset);
        log.apply(event);
    }

    /// Merges an event that another worker wrote after it had lost the partition. It is never content; a call that
    /// it tells of was started all the same (rule 3).
    pub(crate) fn apply_void(&mut self, event: StepEvent) {
        let (Some(session), Some(turn)) = (event.session_id, event.turn_id) else {
            return;
        };
        let call = matches!(event.kind, EventType::ToolStart | EventType::ToolResult | EventType::Step);
        let turn = (session, turn);
        if call
            && !self.ended.contains_key(&turn)
            && let (Some(position), Some(input)) = (event.position, event.input_hash)
        {
            // What was refused has never begun.
            let Some(attempt) = event.attempt.or(event.attempts) else { return };
            let steps = &mut self.open.entry(turn).or_default().steps;
            steps.entry(position).or_insert(Recorded::Started { input, attempt });
        }
    }

    fn apply_end(&mut self, turn: Turn, event: &StepEvent) {
        let Some(input_offset) = event.input_offset else {
            return;
        };
        let Some(input) = event.input_hash.clone() else {
            return;
        };
        if event.turn_status == Some(TurnStatus::DeadLetter) && input_offset >= self.watermark {
            self.dead.insert(input_offset, input.clone());
        }
        self.end(turn.0, turn.1, End { input, input_offset });
    }

    /// A turn has ended.
    pub(crate) fn end(&mut self, session: SessionId, turn: TurnId, end: End) {
        let turn = (session, turn);
        self.open.remove(&turn);
        if self.ended.insert(turn.clone(), end).is_none() {
            self.order.push_back(turn);
        }
        while self.order.len() > REMEMBERED {
            let oldest = self.order.front().and_then(|turn| self.ended.get(turn));
            if oldest.is_some_and(|end| end.input_offset >= self.watermark) {
                return;
            }
            if let Some(turn) = self.order.pop_front() {
                self.ended.remove(&turn);
            }
        }
    }

    /// How a turn has ended, if it has.
    pub(crate) fn ended(&self, session: &SessionId, turn: &TurnId) -> Option<&End> {
        self.ended.get(&(session.clone(), turn.clone()))
    }

    /// Whether the record at this offset, with this hash, went to the dead letters.
    pub(crate) fn is_dead(&self, input_offset: i64, input: &Hash) -> bool {
        self.dead.get(&input_offset) == Some(input)
    }

    /// What is recorded of a turn that is about to run; nothing if it is new.
    pub(crate) fn take(&mut self, session: &SessionId, turn: &TurnId) -> Box<TurnLog> {
        Box::new(self.open.remove(&(session.clone(), turn.clone())).unwrap_or_default())
    }

    /// Whether a turn that has not ended has its answer.
    pub(crate) fn has_answer(&self, session: &SessionId, turn: &TurnId) -> bool {
        self.open.get(&(session.clone(), turn.clone())).is_some_and(|log| log.output.is_some())
    }

    /// How many turns have begun and not ended.
    pub(crate) fn open_turns(&self) -> usize {
        self.open.len()
    }

    /// Everything that may be evicted is, from here on: within one assignment no record comes again.
    pub(crate) fn restored(&mut self) {
        self.watermark = i64::MAX;
    }
}

impl TurnLog {
    /// How often a worker has died under the turn of the record at this offset, since it last got any further. One that
    /// was sent again by hand has its tries before it.
    pub(crate) fn deaths(&self, input_offset: i64) -> u32 {
        let died = if self.input_offset == Some(input_offset) { self.died.len() } else { 0 };
        u32::try_from(died).unwrap_or(u32::MAX)
    }

    /// Whether anything is recorded that a rerun would go by.
    pub(crate) fn has_steps(&self) -> bool {
        !self.steps.is_empty() || self.output.is_some()
    }

    fn apply(&mut self, event: StepEvent) {
        if !self.contents.admit(&event) {
            return;
        }
        match event.kind {
            EventType::TurnStart => {
                let attempt = event.attempt.unwrap_or(1);
                self.starts = self.starts.max(attempt);
                self.is_whole |= attempt == 1 && event.status.is_none();
                // A record that was sent again by hand gets new tries.
                if event.input_offset != self.input_offset {
                    self.died.clear();
                    self.began_at_ms = None;
                    self.input_offset = event.input_offset;
                }
                self.began_at_ms = self.began_at_ms.or(event.started_at_ms);
                match event.status {
                    None => self.died.insert(attempt),
                    Some(_) => self.died.remove(&attempt),
                };
            }
            EventType::TurnOutput => {
                if self.output.is_none() {
                    let usage = event.usage.unwrap_or_default();
                    self.output = output(&event).map(|answer| Output { answer, usage });
                }
            }
            EventType::ToolStart | EventType::ModelReply | EventType::ToolResult | EventType::Step => {
                if let (Some(position), Some(input)) = (event.position.clone(), event.input_hash.clone()) {
                    self.merge(position, input, event);
                }
            }
            EventType::Claim | EventType::TurnEnd => {}
        }
    }

    fn merge(&mut self, position: Position, input: Hash, event: StepEvent) {
        if let Some(Recorded::Done { .. }) = self.steps.get(&position) {
            return;
        }
        let is_start = !event.is_content();
        if is_start {
            if let Some(began) = event.started_at_ms {
                self.began_at.entry(position.clone()).or_insert(began);
            }
        } else {
            self.died.clear();
        }
        if let Some(shown) = shown_arguments(&event) {
            self.shown.insert(position.clone(), shown);
        }
        if let Some(arguments) = event.arguments_hash.clone() {
            self.arguments.insert(position.clone(), arguments);
        }
        let record = match event.kind {
            _ if is_start => Recorded::Started { input, attempt: event.attempt.unwrap_or(1) },
            EventType::ModelReply => {
                let reply = event.error.map_or_else(|| Ok(event.reply.unwrap_or_default()), Err);
                Recorded::Done { input, content: Content::Reply(reply) }
            }
            _ => {
                let json = event.output.as_ref().map_or("null", |raw| raw.get()).to_owned();
                let result = event.error.map_or(Ok(json), Err);
                let mut used = Used::from(event.usage.unwrap_or_default());
                used += Used::cost(event.cost.unwrap_or_default());
                Recorded::Done { input, content: Content::Result(result, used) }
            }
        };
        self.steps.insert(position, record);
    }
}

/// The beginning of a call's arguments, for a person.
pub(crate) fn shown(arguments: &str) -> String {
    const SHOWN: usize = 200;
    match arguments.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", arguments.get(..end).unwrap_or_default()),
        None => arguments.to_owned(),
    }
}

fn shown_arguments(event: &StepEvent) -> Option<String> {
    let canonical = event.arguments.as_ref().map(|arguments| arguments.get());
    canonical.or(event.arguments_raw.as_deref()).map(shown)
}

fn output(event: &StepEvent) -> Option<Result<String, Failure>> {
    if let Some(error) = &event.error {
        return Some(Err(error.clone()));
    }
    serde_json::from_str(event.output.as_ref()?.get()).ok().map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(mut fields: serde_json::Value) -> StepEvent {
        let map = fields.as_object_mut().unwrap();
        map.entry("session_id").or_insert("s".into());
        map.entry("turn_id").or_insert("t".into());
        serde_json::from_str(&fields.to_string()).unwrap()
    }

    fn ids() -> (SessionId, TurnId) {
        (SessionId::new("s").unwrap(), TurnId::new("t").unwrap())
    }

    #[test]
    fn content_beats_a_start_and_the_first_content_wins() {
        let mut table = Table::new(0);
        let at = |kind: &str, more: serde_json::Value| {
            let mut fields = json!({"type": kind, "position": "m0.c0", "input_hash": "h"});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event(fields)
        };
        table.apply(10, at("tool:start", json!({"attempt": 1})));
        table.apply(11, at("tool:start", json!({"attempt": 2})));
        let (s, t) = ids();
        let log = table.take(&s, &t);
        let position = Position::call(0, 0);
        assert!(matches!(log.steps[&position], Recorded::Started { attempt: 2, .. }));
        assert_eq!(log.first_offset, Some(10));

        table.apply(12, at("tool:result", json!({"output": {"a": 1}})));
        table.apply(13, at("tool:start", json!({"attempt": 3})));
        table.apply(14, at("tool:result", json!({"error": {"code": "tool_error", "message": "x"}})));
        let log = table.take(&s, &t);
        let Recorded::Done { content: Content::Result(Ok(json), _), .. } = &log.steps[&position] else {
            panic!("{:?}", log.steps)
        };
        assert_eq!(json, r#"{"a":1}"#);
    }

    #[test]
    fn a_void_result_is_no_content_but_tells_of_a_start() {
        let mut table = Table::new(0);
        let (s, t) = ids();
        let void = |kind: &str| {
            event(json!({"type": kind, "position": "m0.c0", "input_hash": "h", "attempts": 2, "output": 1}))
        };
        table.apply_void(void("tool:result"));
        table.apply_void(event(json!({"type": "model:reply", "position": "m0", "input_hash": "h"})));
        table.apply_void(event(json!({"type": "turn:end", "input_offset": 1, "input_hash": "h"})));
        assert!(table.ended(&s, &t).is_none());
        let log = table.take(&s, &t);
        assert_eq!(log.steps.len(), 1);
        assert!(matches!(log.steps[&Position::call(0, 0)], Recorded::Started { attempt: 2, .. }));

        table.apply(5, void("tool:result"));
        table.apply_void(void("tool:start"));
        let log = table.take(&s, &t);
        assert!(matches!(log.steps[&Position::call(0, 0)], Recorded::Done { .. }));
    }

    #[test]
    fn what_lacks_what_it_was_made_from_is_no_content_and_a_trace_all_the_same() {
        let mut table = Table::new(0);
        let (s, t) = ids();
        let reply = json!({"type": "model:reply", "position": "m1", "input_hash": "h", "made_from": 3});
        table.apply(4, event(reply));
        table.apply(5, event(json!({"type": "turn:output", "output": "done", "made_from": 4})));
        assert!(!table.has_answer(&s, &t));
        let log = table.take(&s, &t);
        assert_eq!((log.has_steps(), log.is_whole, log.first_offset), (false, false, Some(4)));
    }

    #[test]
    fn a_recorded_failure_is_a_result() {
        let mut table = Table::new(0);
        table.apply(
            0,
            event(json!({"type": "model:reply", "position": "m0", "input_hash": "h",
            "error": {"code": "model_error", "message": "down"}})),
        );
        let (s, t) = ids();
        let log = table.take(&s, &t);
        let Recorded::Done { content: Content::Reply(Err(failure)), .. } = &log.steps[&Position::reply(0)]
        else {
            panic!("{:?}", log.steps)
        };
        assert_eq!(failure.code, "model_error");
    }

    #[test]
    fn deaths_without_progress_are_counted_per_record() {
        let mut table = Table::new(0);
        let (s, t) = ids();
        let start = |offset: i64, attempt: u32| {
            event(json!({"type": "turn:start", "input_offset": offset, "attempt": attempt}))
        };
        let stopped = |attempt: u32| {
            event(json!({"type": "turn:start", "input_offset": 7, "attempt": attempt, "status": "ok"}))
        };
        let reply = || event(json!({"type": "model:reply", "position": "m0", "input_hash": "h"}));
        table.apply(0, start(7, 1));
        table.apply(1, start(7, 2));
        table.apply(2, reply());
        table.apply(3, start(7, 3));
        table.apply(4, start(7, 4));
        table.apply(5, reply());
        table.apply(6, start(7, 5));
        table.apply(7, stopped(5));
        let log = table.take(&s, &t);
        assert_eq!(log.deaths(7), 2, "a reply that was there is no progress, and a drain is no death");
        assert_eq!(log.starts, 5);
        // Compaction keeps the last record of a key.
        table.apply(8, start(7, 1));
        table.apply(9, stopped(2));
        let log = table.take(&s, &t);
        assert_eq!((log.deaths(7), log.deaths(9)), (1, 0), "another record of it has not been tried");
        table.apply(10, start(7, 1));
        table.apply(11, start(9, 2));
        assert_eq!(table.take(&s, &t).deaths(9), 1);
    }

    #[test]
    fn an_end_closes_the_turn_and_a_dead_letter_only_its_offset() {
        let mut table = Table::new(5);
        let (s, t) = ids();
        table.apply(0, event(json!({"type": "turn:start", "input_offset": 7})));
        table.apply(
            1,
            event(json!({"type": "turn:end", "turn_status": "dead_letter", "input_offset": 9,
            "turn_id": "own:0:9", "input_hash": "h"})),
        );
        assert!(table.ended(&s, &t).is_none());
        let hash: Hash = serde_json::from_str("\"h\"").unwrap();
        assert!(table.is_dead(9, &hash) && !table.is_dead(7, &hash));
        assert!(!table.is_dead(9, &Hash::of_bytes(b"")), "another record, on a topic that was made anew");
        table.apply(
            2,
            event(json!({"type": "turn:end", "turn_status": "failed", "input_offset": 7, "input_hash": "h"})),
        );
        table.apply(3, event(json!({"type": "turn:start", "input_offset": 7})));
        assert_eq!(table.ended(&s, &t).unwrap().input_offset, 7);
        assert_eq!(table.open_turns(), 0);
    }

    #[test]
    fn ends_that_may_come_again_are_never_forgotten() {
        let mut table = Table::new(10);
        let session = SessionId::new("s").unwrap();
        let end = |offset| End { input: Hash::of_bytes(b""), input_offset: offset };
        let id = |n: usize| TurnId::new(&format!("t{n}")).unwrap();
        for n in 0..REMEMBERED + 20 {
            table.end(session.clone(), id(n), end(i64::try_from(n).unwrap()));
        }
        assert!(table.ended(&session, &id(9)).is_none());
        assert!(table.ended(&session, &id(10)).is_some());
        table.restored();
        table.end(session.clone(), id(REMEMBERED + 20), end(0));
        assert!(table.ended(&session, &id(10)).is_none());
        assert!(table.ended(&session, &id(REMEMBERED + 20)).is_some());
    }
}
