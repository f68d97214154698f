//! A claimed partition while it is ours: its tail, read on, says what is confirmed and whether somebody else
//! has claimed it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Error;
use super::claims::Claims;
use super::peek::{self, Peek};
use crate::metrics::metrics;

use super::point::{self, FirstEvents, Point};

/// What the tail has told so far.
pub(super) struct Live {
    fence: i64,
    topic_id: String,
    state: Mutex<State>,
}

/// Events that the log has lost and that a recovery point counted on.
pub(super) struct Lost {
    /// The recovery point.
    pub from: i64,
    /// Where the log began.
    pub begin: i64,
}

struct State {
    /// Everything below was read.
    position: i64,
    /// What is lost, until the turns that it can have been of have ended: the recovery point stays where it was, or the
    /// next owner would not know.
    lost: Option<Lost>,
    /// The first record of the turns that nothing is lost of.
    whole_from: Option<i64>,
    claims: Claims,
    first: FirstEvents,
    /// Who waits for the tail to pass an offset; several may wait for one.
    waiters: BTreeMap<i64, Vec<oneshot::Sender<Result<(), Error>>>>,
    /// Why the journal is over.
    over: Option<Error>,
}

impl Live {
    /// The tail begins behind the claim at `fence`; `claims` and `first` are what the restore has learned.
    pub(super) fn new(
        fence: i64,
        topic_id: &str,
        claims: Claims,
        first: FirstEvents,
        lost: Option<Lost>,
    ) -> Self {
        let state = State {
            position: fence + 1,
            lost,
            whole_from: None,
            claims,
            first,
            waiters: BTreeMap::new(),
            over: None,
        };
        Self { fence, topic_id: topic_id.to_owned(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset of our claim.
    pub(super) fn fence(&self) -> i64 {
        self.fence
    }

    /// Takes in a record of the tail. Whoever waits for what it passes is told.
    ///
    /// # Errors
    /// It is a claim above ours: the journal is over (design rule 11).
    pub(super) fn pass(&self, offset: i64, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut state = self.state();
        if peek::fence(key).is_some_and(|fence| fence < self.fence) {
            metrics().void_events.inc();
        }
        match peek::event(key, value) {
            Peek::Claim if offset > self.fence => {
                state.claims.learn(offset);
                let error = Error::Superseded { claim: offset };
                // What was written before the claim is valid; what comes after it is void.
                state.advance(offset);
                drop(state);
                self.end(error.clone());
                return Err(error);
            }
            Peek::OfTurn { input_offset } => state.first.note(input_offset, offset),
            Peek::Claim | Peek::Other => {}
        }
        state.advance(offset + 1);
        Ok(())
    }

    /// Waits until the tail has read past `offset` without meeting a claim above ours: only then is an event
    /// of ours confirmed (design rule 12).
    ///
    /// # Errors
    /// Another claim lies before the event, or the tail has ended and nobody can know.
    pub(super) async fn confirmed(&self, offset: i64) -> Result<(), Error> {
        let passed = {
            let mut state = self.state();
            if state.position > offset {
                return Ok(());
            }
            if let Some(error) = &state.over {
                return Err(error.clone());
            }
            let (waiter, passed) = oneshot::channel();
            state.waiters.entry(offset).or_default().push(waiter);
            passed
        };
        passed.await.unwrap_or_else(|_| Err(Error::Log("the tail was closed".into())))
    }

    /// The journal is over: nothing is confirmed any more. Returns why, which is what was said first.
    pub(super) fn end(&self, error: Error) -> Error {
        let mut state = self.state();
        for waiter in std::mem::take(&mut state.waiters).into_values().flatten() {
            let _ = waiter.send(Err(error.clone()));
        }
        state.over.get_or_insert(error).clone()
    }

    /// From this record of the turns on, nothing is lost.
    pub(super) fn whole_from(&self, offset: i64) {
        self.state().whole_from.get_or_insert(offset);
    }

    /// What to commit beside this watermark, and how many offsets a restore would read.
    pub(super) fn point(&self, watermark: i64) -> (Point, i64) {
        let mut state = self.state();
        let State { position, claims, first, lost, whole_from, .. } = &mut *state;
        lost.take_if(|_| whole_from.is_some_and(|whole| whole <= watermark));
        let mut point = point::point(first, claims, watermark, *position, &self.topic_id);
        claims.prune(point.from);
        let events = *position - point.from;
        match lost {
            None => (point, events),
            Some(Lost { from, begin }) => {
                (point.from, point.floor) = (*from, None);
                (point, *position - *begin)
            }
        }
    }
}

impl State {
    /// Everything below `position` was read, and all of ours below it is valid.
    fn advance(&mut self, position: i64) {
        self.position = position;
        while let Some(first) = self.waiters.first_entry().filter(|first| *first.key() < position) {
            for waiter in first.remove() {
                let _ = waiter.send(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Live {
        Live::new(10, "t", Claims::new(Some(10)), FirstEvents::default(), None)
    }

    #[tokio::test]
    async fn an_event_is_confirmed_once_the_tail_has_passed_it() {
        let live = live();
        let (confirmed, too) = (live.confirmed(12), live.confirmed(12));
        tokio::pin!(confirmed, too);
        live.pass(11, b"s/t/m0@10", b"{}").unwrap();
        assert!(futures_util::poll!(&mut confirmed).is_pending());
        assert!(futures_util::poll!(&mut too).is_pending());
        live.pass(12, b"s/t/m0@10", b"{}").unwrap();
        assert!(confirmed.await.is_ok() && too.await.is_ok());
        assert!(live.confirmed(11).await.is_ok());
    }

    #[tokio::test]
    async fn a_higher_claim_voids_what_comes_after_it_and_nothing_before() {
        let live = live();
        let (before, after) = (live.confirmed(11), live.confirmed(13));
        tokio::pin!(before, after);
        assert!(futures_util::poll!(&mut before).is_pending());
        assert!(futures_util::poll!(&mut after).is_pending());
        let error = live.pass(12, b"claim@x", b"{}").unwrap_err();
        assert!(matches!(error, Error::Superseded { claim: 12 }));
        assert!(before.await.is_ok());
        assert!(after.await.is_err());
        assert!(live.confirmed(13).await.is_err());
    }

    #[test]
    fn a_point_stays_where_events_were_lost_until_their_turns_have_ended() {
        let lost = Lost { from: 3, begin: 8 };
        let live = Live::new(10, "t", Claims::new(Some(10)), FirstEvents::default(), Some(lost));
        let at = |watermark| (live.point(watermark).0.from, live.point(watermark).1);
        assert_eq!(at(5), (3, 3));
        live.whole_from(7);
        live.whole_from(9);
        assert_eq!((at(6), at(7), at(6)), ((3, 3), (11, 0), (11, 0)));
    }

    #[test]
    fn a_point_knows_the_first_events_of_what_may_come_again() {
        let live = live();
        live.pass(11, b"s/t/turn:start@10", br#"{"type":"turn:start","fence":10,"input_offset":5}"#).unwrap();
        live.pass(12, b"s/u/turn:start@10", br#"{"type":"turn:start","fence":10,"input_offset":7}"#).unwrap();
        assert_eq!((live.point(5).0.from, live.point(5).0.floor), (11, Some(10)));
        assert_eq!(live.point(6).0.from, 12);
        assert_eq!(live.point(8).0.from, 13);
    }
}
