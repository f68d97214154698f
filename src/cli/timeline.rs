//! How results and events look to a person: one line each.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::print::plain;
use crate::record::{EventType, ResultUsage, Status, StepEvent, TurnResult, TurnStatus};
use crate::turn::{Failure, Reply, StopReason};

/// How wide a line is, about, in characters.
const WIDTH: usize = 110;
/// How much of an id or a name is shown.
const NAME: usize = 40;
/// How much of an idempotency key is shown.
const KEY: usize = 80;
/// How much of a reason is shown: all of any that we write.
const REASON: usize = 400;
/// How much room the text at the end of a line has at least.
const TEXT: usize = 24;

const PLAIN: Style = Style::new();
const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// One event, with colours.
pub(crate) fn event(event: &StepEvent) -> String {
    let mut line = Line::default();
    if let Some(claim) = &event.claim {
        line.cell(DIM, event.kind.as_str());
        line.cell(PLAIN, &format!("group {}", claim.group));
        line.cell(PLAIN, &format!("turns {}", claim.turns_topic));
        line.cell(DIM, &format!("by {}", claim.member));
        return line.end("");
    }
    line.column(DIM, &shorten(&subject(event), KEY), 20);
    line.column(PLAIN, event.kind.as_str(), 11);
    if let Some(tool) = &event.tool {
        line.cell(BOLD, &shorten(tool, NAME));
    }
    match event.turn_status {
        Some(status) => line.cell(colour(status == TurnStatus::Completed), status.as_str()),
        None => match event.status {
            Some(Status::Ok) => line.cell(GOOD, "ok"),
            Some(Status::Error) => line.cell(BAD, "error"),
            None => {}
        },
    }
    if let Some(latency) = event.latency_ms {
        line.cell(DIM, &duration(latency));
    }
    if event.cache_hit == Some(true) {
        line.cell(DIM, "cached");
    } else if let Some(cost) = event.cost {
        line.cell(DIM, &format!("cost {cost}"));
    }
    if let Some(attempt) = event.attempt.or(event.attempts).filter(|attempt| *attempt > 0) {
        line.cell(if attempt > 1 { BOLD } else { DIM }, &format!("attempt {attempt}"));
    }
    match &event.error {
        Some(error) => line.reason(&failure(error)),
        None => line.end(&detail(event)),
    }
}

/// A step's idempotency key, else the turn.
fn subject(event: &StepEvent) -> String {
    if let Some(key) = &event.idempotency_key {
        return key.to_string();
    }
    let session = event.session_id.as_ref().map_or("?", |id| id.as_str());
    let turn = event.turn_id.as_ref().map_or("?", |id| id.as_str());
    format!("{}/{}", shorten(session, NAME), shorten(turn, NAME))
}

/// One result, with colours.
pub(crate) fn result(result: &TurnResult) -> String {
    let mut line = Line::default();
    let session = shorten(result.session_id.as_str(), NAME);
    line.cell(DIM, &format!("{session}/{}", shorten(result.turn_id.as_str(), NAME)));
    line.cell(colour(result.status == TurnStatus::Completed), result.status.as_str());
    if let Some(agent) = &result.agent {
        line.cell(BOLD, &shorten(agent, NAME));
    }
    if result.usage != ResultUsage::default() {
        line.cell(DIM, &usage(result));
    }
    match (&result.error, &result.output) {
        (Some(error), _) => line.reason(&failure(error)),
        (None, output) => line.end(output.as_deref().unwrap_or_default()),
    }
}

/// What a turn used: `2 model calls, 1 tool call, 10+4 tokens`.
pub(crate) fn usage(result: &TurnResult) -> String {
    let calls = |count: u32, what: &str| match count {
        1 => format!("1 {what} call"),
        n => format!("{n} {what} calls"),
    };
    let used = &result.usage;
    let mut text = format!("{}, {}", calls(used.model_calls, "model"), calls(used.tool_calls, "tool"));
    if !used.cost.is_zero() {
        let _ = write!(text, ", cost {}", used.cost);
    }
    if used.input_tokens + used.output_tokens > 0 {
        let _ = write!(text, ", {}+{} tokens", used.input_tokens, used.output_tokens);
    }
    text
}

/// `code: message`, and in brackets what only the operator is told.
pub(crate) fn failure(failure: &Failure) -> String {
    let Failure { code, message, detail } = failure;
    if let Some(detail) = detail.as_ref().filter(|detail| detail.starts_with(message)) {
        return format!("{code}: {detail}");
    }
    let detail = detail.as_ref().map(|detail| format!(" ({detail})"));
    format!("{code}: {message}{}", detail.unwrap_or_default())
}

fn detail(event: &StepEvent) -> String {
    if let Some(reply) = &event.reply {
        return reply_text(reply);
    }
    if let Some(output) = &event.output {
        return output.get().to_owned();
    }
    match event.kind {
        EventType::ToolStart => match (&event.arguments, &event.arguments_raw) {
            (Some(arguments), _) => arguments.get().to_owned(),
            (None, raw) => raw.clone().unwrap_or_default(),
        },
        _ => String::new(),
    }
}

fn reply_text(reply: &Reply) -> String {
    let mut parts = Vec::new();
    if reply.stop_reason == StopReason::MaxTokens {
        parts.push("(cut off at its token limit)".to_owned());
    }
    parts.extend(reply.text.as_ref().map(|text| format!("{text:?}")));
    parts.extend(reply.calls.iter().map(|call| format!("{}({})", call.name, call.arguments)));
    parts.join(" ")
}

fn colour(good: bool) -> Style {
    if good { GOOD } else { BAD }
}

fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

/// At most `width` characters, the last of them `…` where something is left out.
fn shorten(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    Cow::Owned(kept + "…")
}

/// A line of cells, two spaces apart.
#[derive(Default)]
struct Line {
    text: String,
    width: usize,
    /// What is missing to the width of the last column.
    missing: usize,
}

impl Line {
    fn cell(&mut self, style: Style, text: &str) {
        if self.width > 0 {
            let gap = std::mem::take(&mut self.missing) + 2;
            self.text.extend(std::iter::repeat_n(' ', gap));
            self.width += gap;
        }
        let text = plain(text);
        self.width += text.chars().count();
        // Writing to a string does not fail.
        let _ = write!(self.text, "{style}{text}{style:#}");
    }

    /// A cell of at least this width, where another follows.
    fn column(&mut self, style: Style, text: &str, width: usize) {
        self.cell(style, text);
        self.missing = width.saturating_sub(text.chars().count());
    }

    /// The last cell gets the room that is left.
    fn end(mut self, text: &str) -> String {
        if !text.is_empty() {
            let room = WIDTH.saturating_sub(self.width + self.missing + 2).max(TEXT);
            // Long before it is escaped: a megabyte is not worth it.
            let start: String = text.chars().take(WIDTH + 1).collect();
            self.cell(PLAIN, &shorten(&plain(&start), room));
        }
        self.text
    }

    /// The last cell says why something failed, and is not cut off where the line is full.
    fn reason(mut self, text: &str) -> String {
        let start: String = text.chars().take(REASON + 1).collect();
        self.cell(PLAIN, &shorten(&plain(&start), REASON));
        self.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::turn::{IdempotencyKey, Position, ReplyCall, SessionId, TurnId};

    /// Without colours.
    fn bare(styled: &str) -> String {
        anstream::adapter::strip_str(styled).to_string()
    }

    fn of(kind: EventType) -> StepEvent {
        let mut event = StepEvent::new(kind);
        event.session_id = SessionId::new("s-1").ok();
        event.turn_id = TurnId::new("t-3").ok();
        event
    }

    fn key(position: &Position) -> IdempotencyKey {
        IdempotencyKey::new(&SessionId::new("s-1").unwrap(), &TurnId::new("t-3").unwrap(), position)
    }

    #[test]
    fn a_reason_is_shown_whole() {
        let mut end = of(EventType::TurnEnd);
        end.error = Some(Failure::new("invalid_json", "because ".repeat(30)));
        assert!(bare(&event(&end)).ends_with("because because "));
    }

    #[test]
    fn a_detail_that_goes_on_is_not_said_twice() {
        let with = |detail: &str| {
            let detail = Some(detail.to_owned());
            failure(&Failure { detail, ..Failure::new("replay_input_changed", "it differs") })
        };
        assert_eq!(with("it differs: 1, now 2"), "replay_input_changed: it differs: 1, now 2");
        assert_eq!(with("db-3 is down"), "replay_input_changed: it differs (db-3 is down)");
    }

    #[test]
    fn a_step_of_an_agents_own_is_one_line() {
        let mut step = of(EventType::Step);
        step.idempotency_key = Some(key(&Position::step("charge")));
        step.attempt = Some(2);
        assert_eq!(bare(&event(&step)), "s-1/t-3/step:charge   step         attempt 2");
        (step.attempt, step.attempts, step.status) = (None, Some(2), Some(Status::Ok));
        step.output = RawValue::from_string("7".into()).ok();
        assert_eq!(bare(&event(&step)), "s-1/t-3/step:charge   step         ok  attempt 2  7");
    }

    #[test]
    fn a_call_is_one_line() {
        let mut result = of(EventType::ToolResult);
        result.idempotency_key = Some(key(&Position::call(0, 1)));
        result.tool = Some("echo".into());
        result.status = Some(Status::Ok);
        result.latency_ms = Some(12);
        result.attempts = Some(2);
        result.output = RawValue::from_string("\"hi\"".into()).ok();
        let line = event(&result);
        assert_eq!(bare(&line), "s-1/t-3/m0.c1         tool:result  echo  ok  12ms  attempt 2  \"hi\"");
        assert!(line.contains("\u{1b}[32mok\u{1b}[0m"), "{line:?}");
        result.cost = Some("0.0020".parse().unwrap());
        result.cache_hit = Some(false);
        assert!(bare(&event(&result)).contains("  12ms  cost 0.0020  attempt 2  "));
        (result.cost, result.cache_hit, result.attempts) = (Some("0".parse().unwrap()), Some(true), Some(0));
        let line = bare(&event(&result));
        assert_eq!(line, "s-1/t-3/m0.c1         tool:result  echo  ok  12ms  cached  \"hi\"");
    }

    #[test]
    fn the_other_events_too() {
        assert_eq!(bare(&event(&of(EventType::TurnStart))), "s-1/t-3               turn:start");
        let mut reply = of(EventType::ModelReply);
        reply.idempotency_key = Some(key(&Position::reply(0)));
        let call = ReplyCall { name: "add".into(), arguments: "{\"a\":1}".into(), ..ReplyCall::default() };
        reply.reply = Some(Reply { text: Some("so\n".into()), calls: vec![call], ..Reply::default() });
        let line = bare(&event(&reply));
        assert_eq!(line, "s-1/t-3/m0            model:reply  \"so\\n\" add({\"a\":1})");
        let mut end = of(EventType::TurnEnd);
        end.turn_status = Some(TurnStatus::Failed);
        end.error = Some(Failure::new("tool_fatal", "no\u{1b}[31m"));
        let line = bare(&event(&end));
        assert_eq!(line, "s-1/t-3               turn:end     failed  tool_fatal: no\\u{1b}[31m");
    }

    #[test]
    fn a_long_text_is_shortened_to_the_width() {
        let mut result = of(EventType::ToolResult);
        result.output = RawValue::from_string(format!("\"{}\"", "ü".repeat(5_000))).ok();
        let line = bare(&event(&result));
        assert_eq!(line.chars().count(), WIDTH);
        assert!(line.ends_with("ü…"), "{line}");
    }

    #[test]
    fn a_result_is_one_line() {
        let json = r#"{"turn_id":"t-3","session_id":"s-1","agent":"support","status":"completed",
            "output":"hi","usage":{"model_calls":2,"tool_calls":1,"input_tokens":10,"output_tokens":4}}"#;
        let line = bare(&result(&serde_json::from_str(json).unwrap()));
        let expected = "s-1/t-3  completed  support  2 model calls, 1 tool call, 10+4 tokens  hi";
        assert_eq!(line, expected);
    }

    #[test]
    fn durations_are_read_at_a_glance() {
        let all: Vec<String> = [0, 999, 1_250, 61_500].into_iter().map(duration).collect();
        assert_eq!(all, ["0ms", "999ms", "1.2s", "1m01s"]);
    }
}
