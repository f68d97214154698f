//! `Turn`: one unit of work, as a producer sends it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::turn::{Budget, Failure, Hash, Message, SessionId, TurnId, code};

/// One unit of work: an agent, a session, the input messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Unique within its session. Absent: made from topic, partition and offset of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The ordering key. Absent: the record's key, else the turn id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The agent that is to run it.
    pub agent: String,
    /// What the agent is asked.
    pub input: Input,
    /// The tools on offer for this turn, by exact name, in place of the agent's own list: each must be in
    /// that list or be allowed by the agent's `turn_tools`. Absent: the agent's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// When the turn's time is over, in milliseconds since 1970 UTC: it fails at the next step boundary after that.
    /// Absent: the record's timestamp and the agent's `max_duration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// How much the turn may use; a limit of its agent that is lower holds all the same. Absent: the agent's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Texts for the agent and its model, by name; `script` is what the scripted model plays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The input of a turn: a text, which is one message of a user, or a list of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of messages with role and content")]
pub enum Input {
    /// One message of a user.
    Text(String),
    /// The messages, oldest first.
    Messages(Vec<Message>),
}

impl Input {
    /// The input as messages.
    pub fn into_messages(self) -> Vec<Message> {
        match self {
            Self::Text(content) => vec![Message::User { content }],
            Self::Messages(messages) => messages,
        }
    }
}

/// Which turn a record is: found even where the record cannot be run, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The hash of the record's value: of its canonical JSON, or of its bytes where it is not JSON.
    pub input: Hash,
}

/// A record that is no turn, and what could be read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its ids, made from the record where it gives none.
    pub identity: Identity,
    /// Whether the producer gave a turn id that can be answered to.
    pub answerable: bool,
    /// The agent, where it names one.
    pub agent: Option<String>,
    /// Why it is no turn.
    pub failure: Failure,
}

/// Reads the value of a record of the turns topic.
///
/// # Errors
/// The record is no turn; what could be read of it is in the error.
pub fn read_turn(
    topic: &str,
    partition: i32,
    offset: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<(Identity, Turn), Box<Unreadable>> {
    let own_id = TurnId::of_record(topic, partition, offset);
    let unreadable = |input: Hash, code, message: String| {
        Box::new(Unreadable {
            identity: Identity { session: SessionId::of_record(key, &own_id), turn: own_id.clone(), input },
            answerable: false,
            agent: None,
            failure: Failure::new(code, message),
        })
    };
    let Some(bytes) = value else {
        let message = "the record has no value (a tombstone); a turn is a JSON object".into();
        return Err(unreadable(Hash::of_bytes(b""), code::NULL_VALUE, message));
    };
    let raw = || Hash::of_bytes(bytes);
    let text = std::str::from_utf8(bytes)
        .map_err(|e| unreadable(raw(), code::INVALID_JSON, format!("the value is not UTF-8 text: {e}")))?;
    let input = Hash::of_json(text)
        .map_err(|e| unreadable(raw(), code::INVALID_JSON, format!("the value is not JSON: {e}")))?;

    // Where it fails it is read again, for the path of what is wrong.
    let parsed: Result<Turn, _> = serde_json::from_str(text)
        .or_else(|_| serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text)));
    match parsed {
        Ok(turn) => {
            let id = turn.turn_id.clone().unwrap_or(own_id);
            let session = (turn.session_id.clone()).unwrap_or_else(|| SessionId::of_record(key, &id));
            Ok((Identity { session, turn: id, input }, turn))
        }
        Err(error) => {
            let glimpse: Glimpse = serde_json::from_str(text).unwrap_or_default();
            let turn_id = glimpse.text("turn_id").and_then(|id| TurnId::new(&id).ok());
            let answerable = turn_id.is_some();
            let id = turn_id.unwrap_or(own_id);
            let session = (glimpse.text("session_id"))
                .and_then(|id| SessionId::new(&id).ok())
                .unwrap_or_else(|| SessionId::of_record(key, &id));
            Err(Box::new(Unreadable {
                identity: Identity { session, turn: id, input },
                answerable,
                agent: glimpse.text("agent"),
                failure: Failure::new(code::INVALID_TURN, explain(&error)),
            }))
        }
    }
}

fn explain(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let inner = error.inner();
    if path == "." {
        format!("the value is not a turn: {inner}")
    } else {
        format!("the value is not a turn: field `{path}`: {inner}")
    }
}

/// Whatever members an object has, to find the ids of a record that is no turn. Unread, so that one that cannot be
/// read, as a number out of every range, hides no other.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct Glimpse(BTreeMap<String, Box<RawValue>>);

impl Glimpse {
    fn text(&self, field: &str) -> Option<String> {
        serde_json::from_str(self.0.get(field)?.get()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: Option<&[u8]>, value: &str) -> Result<(Identity, Turn), Box<Unreadable>> {
        read_turn("agent.turns", 1, 7, key, Some(value.as_bytes()))
    }

    #[test]
    fn ids_come_from_the_value_then_the_key_then_the_record() {
        let (id, _) = read(None, r#"{"turn_id":"t","session_id":"s","agent":"a","input":"x"}"#).unwrap();
        assert_eq!((id.session.as_str(), id.turn.as_str()), ("s", "t"));
        let (id, _) = read(Some(b"k"), r#"{"agent":"a","input":"x"}"#).unwrap();
        assert_eq!((id.session.as_str(), id.turn.as_str()), ("k", "agent.turns:1:7"));
        let (id, _) = read(None, r#"{"turn_id":"t","agent":"a","input":"x"}"#).unwrap();
        assert_eq!((id.session.as_str(), id.turn.as_str()), ("t", "t"));
    }

    #[test]
    fn a_record_that_is_no_turn_says_why_and_keeps_its_ids() {
        let bad = read(None, r#"{"turn_id":"t","session_id":"s","agent":"a"}"#).unwrap_err();
        assert!(bad.answerable);
        assert_eq!(bad.identity.turn.as_str(), "t");
        assert!(bad.failure.message.contains("input"), "{}", bad.failure.message);

        let bad = read(None, r#"{"turn_id":"a b","agent":"a","input":"x"}"#).unwrap_err();
        assert!(!bad.answerable);
        assert!(bad.failure.message.contains("turn_id"), "{}", bad.failure.message);

        let odd = r#"{"turn_id":"t","session_id":"s","agent":"a","priority":1e999}"#;
        let bad = read(None, odd).unwrap_err();
        assert!(bad.answerable);
        assert_eq!((bad.identity.session.as_str(), bad.agent.as_deref()), ("s", Some("a")));

        let bad = read(None, r#"{"agent":"a","input":"x","metadata":{"script":{}}}"#).unwrap_err();
        assert!(bad.failure.message.contains("metadata.script"), "{}", bad.failure.message);

        let bad = read(Some(&[0xff, 0xfe]), "{").unwrap_err();
        assert_eq!(bad.failure.code, code::INVALID_JSON);
        assert_eq!(bad.identity.session.as_str(), "fffe");
        assert_eq!(read_turn("t", 0, 0, None, None).unwrap_err().failure.code, code::NULL_VALUE);
    }
}
