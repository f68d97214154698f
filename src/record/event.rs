//! `StepEvent`: one record of the journal.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::turn::{
    ExternalIoMode, Failure, Hash, IdempotencyKey, Position, Reply, SessionId, StepEffect, TurnId,
};

use super::ResultUsage;

/// What an event records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// A worker takes over the partition.
    #[serde(rename = "claim")]
    Claim,
    /// A worker begins the turn, for the first time or again.
    #[serde(rename = "turn:start")]
    TurnStart,
    /// The model's reply.
    #[serde(rename = "model:reply")]
    ModelReply,
    /// A tool is about to run.
    #[serde(rename = "tool:start")]
    ToolStart,
    /// How a call ended; supersedes its `tool:start` and is complete by itself.
    #[serde(rename = "tool:result")]
    ToolResult,
    /// A step of an agent's own: without a status it is about to run.
    #[serde(rename = "step")]
    Step,
    /// What the turn answers; on the log before the result is published.
    #[serde(rename = "turn:output")]
    TurnOutput,
    /// The turn is over: a redelivery of its record is skipped.
    #[serde(rename = "turn:end")]
    TurnEnd,
}

impl EventType {
    /// The type as it is on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::TurnStart => "turn:start",
            Self::ModelReply => "model:reply",
            Self::ToolStart => "tool:start",
            Self::ToolResult => "tool:result",
            Self::Step => "step",
            Self::TurnOutput => "turn:output",
            Self::TurnEnd => "turn:end",
        }
    }
}

/// Whether the step went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It did.
    Ok,
    /// It failed; `error` says why.
    Error,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The model had its last word.
    Completed,
    /// It failed for its own reasons.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its record went to the dead letters.
    DeadLetter,
}

impl TurnStatus {
    /// The status as it is on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::DeadLetter => "dead_letter",
        }
    }
}

/// Who claims a partition; for people, but for the nonce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Makes the claim's record key unique.
    pub nonce: String,
    /// The consumer group.
    pub group: String,
    /// The topic whose turns are recorded here.
    pub turns_topic: String,
    /// The client id of the worker.
    pub member: String,
}

/// One record of the journal. Fields that a type does not have are absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepEvent {
    /// What the event records.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The session; absent on a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The turn; absent on a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The agent; absent on a claim, and where the record does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Where the step stands; on replies and calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The step's idempotency key; on replies and calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// Which run this is, from 1: of the turn on `turn:start`, of the call on `tool:start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The offset of the writer's claim. On a claim itself: absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<i64>,
    /// Whether the step went well; on results and ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The position of the reply that caused a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Position>,
    /// The tool, as the model named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of a call, as canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// The arguments as the model wrote them, where they are not a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_raw: Option<String>,
    /// SHA-256 of the canonical arguments, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_hash: Option<Hash>,
    /// SHA-256 of what the step was made from, hex: the transcript of a reply, arguments and definition
    /// of a call, the record's value on `turn:start` and `turn:end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<Hash>,
    /// The model's reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// What the tool returned, or what the turn answers; canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RawValue>>,
    /// Why the step or the turn failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// How often the tool was run for this call in all, retries and reruns counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// What the call cost, as an exact decimal in a text, in the currency of the tool's `cost_per_call`; `0` where
    /// another call's result was taken. Absent where the tool declares none, and where nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Decimal>,
    /// Whether another call's result was taken and the tool not run; absent where the tool keeps no results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit: Option<bool>,
    /// Whether the tool declares that the same arguments always give the same result; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
    /// Whether the call may reach out, and whether its result is recorded; absent where nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_io_mode: Option<ExternalIoMode>,
    /// When the step began, in milliseconds since 1970 UTC by the worker's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<i64>,
    /// How long the step took, in milliseconds; waits between retries counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// What a step of an agent's own does to the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<StepEffect>,
    /// What the whole turn used, on `turn:output`; what the steps inside a call used, on its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ResultUsage>,
    /// The offset of the turn's record; on `turn:start` and `turn:end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_offset: Option<i64>,
    /// How many records of the turn that count, its start, replies and results, had been written with this fence: with
    /// fewer before it on the log it lacks what it was made from, and does not count. On what is made from all of
    /// them: replies and `turn:output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_from: Option<u32>,
    /// How the turn ended; on `turn:output` and `turn:end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_status: Option<TurnStatus>,
    /// Who claims the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

impl StepEvent {
    /// An event of this type and nothing else.
    pub fn new(kind: EventType) -> Self {
        Self {
            kind,
            session_id: None,
            turn_id: None,
            agent: None,
            position: None,
            idempotency_key: None,
            attempt: None,
            fence: None,
            status: None,
            cause: None,
            tool: None,
            arguments: None,
            arguments_raw: None,
            arguments_hash: None,
            input_hash: None,
            reply: None,
            output: None,
            error: None,
            attempts: None,
            cost: None,
            cache_hit: None,
            deterministic: None,
            external_io_mode: None,
            started_at_ms: None,
            latency_ms: None,
            effect: None,
            usage: None,
            input_offset: None,
            made_from: None,
            turn_status: None,
            claim: None,
        }
    }

    /// Whether later records of the turn may be made from it: a start of the turn, a reply, a result.
    pub(crate) fn is_content(&self) -> bool {
        match self.kind {
            EventType::TurnStart => self.status.is_none(),
            EventType::ModelReply | EventType::ToolResult => true,
            EventType::Step => self.status.is_some(),
            EventType::Claim | EventType::ToolStart | EventType::TurnOutput | EventType::TurnEnd => false,
        }
    }

    /// The record key: what compaction keeps the last event of. The fence is part of it, so that a late
    /// write of a worker that lost the partition can never replace a valid step.
    ///
    /// `claim@NONCE`, `SESSION/TURN@FENCE` for the end of a turn, else `IDEMPOTENCY_KEY@FENCE`, where the
    /// start and the output of a turn stand at positions of their own type's name.
    pub fn record_key(&self) -> String {
        if let Some(claim) = &self.claim {
            return format!("claim@{}", claim.nonce);
        }
        let fence = self.fence.unwrap_or(-1);
        match (&self.idempotency_key, &self.session_id, &self.turn_id) {
            (Some(key), ..) => format!("{key}@{fence}"),
            (None, Some(session), Some(turn)) => {
                let scope = IdempotencyKey::of_turn(session, turn);
                match self.kind {
                    EventType::TurnEnd => format!("{scope}@{fence}"),
                    // Giving a turn up must not replace its start, which is where a restore has to begin.
                    EventType::TurnStart if self.status.is_some() => format!("{scope}/turn:stop@{fence}"),
                    kind => format!("{scope}/{}@{fence}", kind.as_str()),
                }
            }
            _ => format!("{}@{fence}", self.kind.as_str()),
        }
    }
}
