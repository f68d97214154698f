//! The idempotency key of a step: what a tool passes on to the outside world.

use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Hash, Position, SessionId, TurnId};

/// What stays as it is in a session id inside a key: the alphabet of turn ids, and `~`.
const ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b':').remove(b'-').remove(b'~');

/// `SESSION/TURN/POSITION`, percent-encoded ASCII, at most [`Self::MAX_LEN`] bytes, so that it can be
/// sent as an HTTP header; a longer one is `sha256:` and the hex of its hash.
///
/// Stable across retries, redeliveries and workers. It depends neither on the call's arguments nor
/// on the provider's call id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// The longest key, in bytes.
    pub const MAX_LEN: usize = 255;

    /// The key of the step at `position`.
    pub fn new(session: &SessionId, turn: &TurnId, position: &Position) -> Self {
        Self::shorten(format!("{}/{position}", scope(session, turn)))
    }

    /// `SESSION/TURN`: what identifies a whole turn in a record key, shortened by the same rule.
    pub fn of_turn(session: &SessionId, turn: &TurnId) -> Self {
        Self::shorten(scope(session, turn))
    }

    fn shorten(key: String) -> Self {
        if key.len() <= Self::MAX_LEN {
            Self(key.into())
        } else {
            Self(format!("sha256:{}", Hash::of_bytes(key.as_bytes())).into())
        }
    }

    /// The key as text: printable ASCII.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn scope(session: &SessionId, turn: &TurnId) -> String {
    format!("{}/{}", utf8_percent_encode(session.as_str(), ID), utf8_percent_encode(turn.as_str(), ID))
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
