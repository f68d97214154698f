//! The answer for one step: return what is recorded, run it, run it again, or fail.
//!
//! Everything that must not be repeated silently passes here: model replies, calls of tools and agents, and the steps of
//! an agent's own.

use serde::Serialize;

use super::canonical::hash_of;
use super::{Hash, Position};

/// What the journal has at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded<C> {
    /// Something began here and no result is known.
    Started {
        /// The hash of the step's input.
        input: Hash,
        /// The attempt that began, from 1.
        attempt: u32,
    },
    /// The result, a failure too.
    Done {
        /// The hash of the step's input.
        input: Hash,
        /// What was recorded.
        content: C,
    },
}

impl<C> Recorded<C> {
    /// The hash of the input that the record was made from.
    pub fn input(&self) -> &Hash {
        match self {
            Self::Started { input, .. } | Self::Done { input, .. } => input,
        }
    }
}

/// What to do about a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision<C> {
    /// Return what was recorded; run nothing.
    Return(C),
    /// Fail the turn with `replay_input_changed`: the record was made from another input.
    Changed {
        /// The hash that the record was made from.
        recorded: Hash,
    },
    /// Run it under the same key. The first run is attempt 1; a step that had started and has no result
    /// runs as the next attempt, which does not use up its retries.
    Run {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
}

/// The hash of the input of a step of an agent's own, which stands there in its agent: all that can be known of what its
/// code is made from.
pub fn step_input(place: &Position) -> Hash {
    hash_of(&Input { step: place })
}

#[derive(Serialize)]
struct Input<'a> {
    step: &'a Position,
}

/// Decides about the step whose input has the hash `input`.
pub fn decide<C>(recorded: Option<Recorded<C>>, input: &Hash) -> Decision<C> {
    match recorded {
        None => Decision::Run { attempt: 1 },
        Some(record) if record.input() != input => Decision::Changed { recorded: record.input().clone() },
        Some(Recorded::Started { attempt, .. }) => Decision::Run { attempt: attempt.saturating_add(1) },
        Some(Recorded::Done { content, .. }) => Decision::Return(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &str) -> Hash {
        Hash::of_bytes(text.as_bytes())
    }

    #[test]
    fn four_answers() {
        let (a, b) = (hash("a"), hash("b"));
        assert_eq!(decide::<u8>(None, &a), Decision::Run { attempt: 1 });
        let started = Recorded::<u8>::Started { input: a.clone(), attempt: 1 };
        assert_eq!(decide(Some(started.clone()), &a), Decision::Run { attempt: 2 });
        assert_eq!(decide(Some(started), &b), Decision::Changed { recorded: a.clone() });
        let done = Recorded::Done { input: a.clone(), content: 7 };
        assert_eq!(decide(Some(done.clone()), &a), Decision::Return(7));
        assert_eq!(decide(Some(done), &b), Decision::Changed { recorded: a });
    }
}
