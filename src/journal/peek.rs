//! What a record of the events topic is, without reading more of it than that takes. Pure.

use serde::Deserialize;

/// What is known of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Peek {
    /// Somebody takes the partition over.
    Claim,
    /// The start or the end of a turn.
    OfTurn {
        /// The offset of the turn's record.
        input_offset: i64,
    },
    /// A step, or nothing of ours.
    Other,
}

#[derive(Deserialize)]
struct Head {
    input_offset: Option<i64>,
}

/// The fence in the key of an event.
pub(super) fn fence(key: &[u8]) -> Option<i64> {
    let digits = key.rsplitn(2, |b| *b == b'@').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Looks at a record: its key says what it is, so that only starts and ends of turns are read.
pub(super) fn event(key: &[u8], value: &[u8]) -> Peek {
    if key.starts_with(b"claim@") {
        return Peek::Claim;
    }
    let scope = key.rsplitn(2, |b| *b == b'@').nth(1).unwrap_or_default();
    let start = scope.ends_with(b"/turn:start");
    // `SESSION/TURN`, or the hash of it: neither has the position that every step has.
    let end = scope.iter().filter(|b| **b == b'/').count() <= 1;
    if !start && !end {
        return Peek::Other;
    }
    match serde_json::from_slice::<Head>(value) {
        Ok(Head { input_offset: Some(input_offset) }) => Peek::OfTurn { input_offset },
        Ok(Head { input_offset: None }) | Err(_) => Peek::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EventType, StepEvent};
    use crate::turn::{IdempotencyKey, Position, SessionId, TurnId};

    fn of(kind: EventType, session: &str) -> (Vec<u8>, Vec<u8>) {
        let mut event = StepEvent::new(kind);
        let (session, turn) = (SessionId::new(session).unwrap(), TurnId::new("t").unwrap());
        if kind == EventType::ModelReply {
            event.idempotency_key = Some(IdempotencyKey::new(&session, &turn, &Position::reply(0)));
        }
        (event.session_id, event.turn_id) = (Some(session), Some(turn));
        event.fence = Some(3);
        event.input_offset = (kind != EventType::TurnOutput).then_some(7);
        (event.record_key().into_bytes(), serde_json::to_vec(&event).unwrap())
    }

    #[test]
    fn starts_and_ends_are_told_from_steps_by_their_keys() {
        for session in ["s", &"long/".repeat(100)] {
            for (kind, expected) in [
                (EventType::TurnStart, Peek::OfTurn { input_offset: 7 }),
                (EventType::TurnEnd, Peek::OfTurn { input_offset: 7 }),
                (EventType::TurnOutput, Peek::Other),
            ] {
                let (key, value) = of(kind, session);
                assert_eq!(event(&key, &value), expected, "{kind:?} {}", String::from_utf8_lossy(&key));
            }
        }
        let (key, value) = of(EventType::ModelReply, "s");
        assert_eq!(event(&key, &value), Peek::Other);
        assert_eq!(fence(&key), Some(3));
        assert_eq!((fence(b"claim@x"), fence(b"s@1/t@2")), (None, Some(2)));
        assert_eq!(event(b"claim@x", b"{}"), Peek::Claim);
        assert_eq!(event(b"", b""), Peek::Other);
        assert_eq!(event(b"\xff@", b"{"), Peek::Other);
    }
}
