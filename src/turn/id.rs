//! Turn and session ids.

use std::fmt;
use std::sync::Arc;

use super::canonical;

/// An id that breaks the rules of its kind; says which rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidId(String);

/// The id of a turn, unique within its session: 1 to 128 characters of `[A-Za-z0-9._:-]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct TurnId(Arc<str>);

impl TurnId {
    /// The longest turn id, in characters.
    pub const MAX_LEN: usize = 128;

    /// Checks the rules.
    ///
    /// # Errors
    /// The text is empty, longer than [`Self::MAX_LEN`] or has a character outside `[A-Za-z0-9._:-]`.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() {
            return Err(InvalidId("turn_id is empty".into()));
        }
        if let Some(bad) = text.chars().find(|c| !is_turn_id_char(*c)) {
            return Err(InvalidId(format!(
                "turn_id has the character {bad:?}; allowed are A-Z a-z 0-9 . _ : -"
            )));
        }
        if text.len() > Self::MAX_LEN {
            return Err(InvalidId(format!(
                "turn_id has {} characters; at most {} are allowed",
                text.len(),
                Self::MAX_LEN
            )));
        }
        Ok(Self(text.into()))
    }

    /// The id of a turn whose producer gave none: `TOPIC:PARTITION:OFFSET`, the same on every
    /// delivery of the record. A topic name too long for that is replaced by the start of its hash.
    pub fn of_record(topic: &str, partition: i32, offset: i64) -> Self {
        let id = format!("{topic}:{partition}:{offset}");
        if id.len() <= Self::MAX_LEN && id.chars().all(is_turn_id_char) {
            return Self(id.into());
        }
        let digest = canonical::Hash::of_bytes(topic.as_bytes());
        let short: String = digest.as_str().chars().take(32).collect();
        Self(format!("{short}:{partition}:{offset}").into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_turn_id_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-')
}

impl<'de> serde::Deserialize<'de> for TurnId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a session, the ordering key: any text that is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Checks the rules.
    ///
    /// # Errors
    /// The text is empty.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() {
            return Err(InvalidId("session_id is empty".into()));
        }
        Ok(Self(text.into()))
    }

    /// The session of a record whose value names none: its key, in hex where the key is not UTF-8,
    /// else its turn id, which gives the turn a lane of its own. An empty key counts as none.
    pub fn of_record(key: Option<&[u8]>, turn: &TurnId) -> Self {
        match key {
            None | Some([]) => Self(Arc::clone(&turn.0)),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self(text.into()),
                Err(_) => Self(hex::encode(bytes).into()),
            },
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> serde::Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_ids_follow_their_rules() {
        assert_eq!(TurnId::new("a.B_9:-").unwrap().as_str(), "a.B_9:-");
        assert!(TurnId::new(&"x".repeat(128)).is_ok());
        for bad in ["", "a b", "ü", "a/b", &"x".repeat(129)] {
            assert!(TurnId::new(bad).is_err(), "{bad:?} is no turn id");
        }
    }

    #[test]
    fn a_record_without_a_turn_id_gets_a_valid_one() {
        assert_eq!(TurnId::of_record("agent.turns", 3, 42).as_str(), "agent.turns:3:42");
        let long = "t".repeat(249);
        let id = TurnId::of_record(&long, 1_000, i64::MAX);
        assert!(TurnId::new(id.as_str()).is_ok());
        assert_ne!(id, TurnId::of_record(&"u".repeat(249), 1_000, i64::MAX));
    }

    #[test]
    fn a_session_falls_back_to_the_key_then_the_turn() {
        let turn = TurnId::new("t").unwrap();
        assert_eq!(SessionId::of_record(Some("käse".as_bytes()), &turn).as_str(), "käse");
        assert_eq!(SessionId::of_record(Some(&[0xff, 0xfe]), &turn).as_str(), "fffe");
        assert_eq!(SessionId::of_record(Some(&[]), &turn).as_str(), "t");
        assert_eq!(SessionId::of_record(None, &turn).as_str(), "t");
    }
}
