//! Lanes: a session's turns one after the other, in the order of the log; sessions side by side. Nothing here waits.

use std::collections::{HashMap, VecDeque};

use crate::metrics::metrics;
use crate::turn::SessionId;

/// A lane for each session that has turns.
pub(super) struct Lanes<J> {
    lanes: HashMap<SessionId, Lane<J>>,
    /// Sessions whose next turn may run.
    ready: VecDeque<SessionId>,
    /// Sessions whose next turn waits for its agent to be turned on.
    held: Vec<SessionId>,
}

struct Lane<J> {
    jobs: VecDeque<J>,
    running: bool,
    partition: i32,
}

impl<J> Lanes<J> {
    pub(super) fn new() -> Self {
        Self { lanes: HashMap::new(), ready: VecDeque::new(), held: Vec::new() }
    }

    /// A turn goes behind those of its session. False: the session has come on another partition before.
    pub(super) fn push(&mut self, session: SessionId, partition: i32, job: J) -> bool {
        let lane = (self.lanes.entry(session.clone())).or_insert_with(|| Lane {
            jobs: VecDeque::new(),
            running: false,
            partition,
        });
        let same = std::mem::replace(&mut lane.partition, partition) == partition;
        lane.jobs.push_back(job);
        metrics().queued.inc();
        if lane.jobs.len() == 1 && !lane.running {
            self.ready.push_back(session);
        }
        same
    }

    /// The next turn that may run. One of [`Self::runs`], [`Self::hold`] and [`Self::done`] is to follow.
    pub(super) fn next(&mut self) -> Option<(SessionId, J)> {
        while let Some(session) = self.ready.pop_front() {
            if let Some(job) = self.lanes.get_mut(&session).and_then(|lane| lane.jobs.pop_front()) {
                metrics().queued.dec();
                return Some((session, job));
            }
            self.done(session);
        }
        None
    }

    /// The session's turn runs; until [`Self::done`], no other of it does.
    pub(super) fn runs(&mut self, session: &SessionId) {
        if let Some(lane) = self.lanes.get_mut(session) {
            lane.running = true;
        }
    }

    /// The session's turn keeps its place and waits for [`Self::release`].
    pub(super) fn hold(&mut self, session: SessionId, job: J) {
        if let Some(lane) = self.lanes.get_mut(&session) {
            lane.jobs.push_front(job);
            metrics().queued.inc();
            self.held.push(session);
        }
    }

    /// What was held is looked at again.
    pub(super) fn release(&mut self) {
        self.ready.extend(self.held.drain(..));
    }

    /// The session's turn is over: its next one may run; a lane that is empty is forgotten.
    pub(super) fn done(&mut self, session: SessionId) {
        if let Some(lane) = self.lanes.get_mut(&session) {
            lane.running = false;
            if lane.jobs.is_empty() {
                self.lanes.remove(&session);
            } else {
                self.ready.push_back(session);
            }
        }
    }

    /// Nothing that waits will run.
    pub(super) fn clear(&mut self) {
        for lane in self.lanes.values_mut() {
            metrics().queued.sub(i64::try_from(lane.jobs.len()).unwrap_or(0));
            lane.jobs.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        SessionId::new(id).unwrap()
    }

    fn next(lanes: &mut Lanes<u8>) -> Option<u8> {
        lanes.next().map(|(_, job)| job)
    }

    #[test]
    fn a_sessions_turns_run_one_after_the_other_and_sessions_side_by_side() {
        let mut lanes = Lanes::new();
        for (id, job) in [("a", 1), ("a", 2), ("b", 3)] {
            assert!(lanes.push(session(id), 0, job));
        }
        assert_eq!(next(&mut lanes), Some(1));
        lanes.runs(&session("a"));
        assert!(!lanes.push(session("a"), 1, 4), "on another partition");
        assert_eq!((next(&mut lanes), next(&mut lanes)), (Some(3), None));
        lanes.done(session("b"));
        lanes.done(session("a"));
        assert_eq!((next(&mut lanes), next(&mut lanes)), (Some(2), None));
        lanes.done(session("a"));
        assert_eq!(next(&mut lanes), Some(4));
        lanes.done(session("a"));
        assert!(lanes.lanes.is_empty() && lanes.ready.is_empty());
    }

    #[test]
    fn a_turn_that_is_held_keeps_its_place_until_it_is_released() {
        let mut lanes = Lanes::new();
        lanes.push(session("a"), 0, 1);
        let (of, job) = lanes.next().unwrap();
        lanes.hold(of, job);
        lanes.push(session("a"), 0, 2);
        assert_eq!(next(&mut lanes), None);
        lanes.release();
        lanes.release();
        assert_eq!((next(&mut lanes), next(&mut lanes)), (Some(1), None));
        lanes.done(session("a"));
        lanes.clear();
        assert_eq!(next(&mut lanes), None);
        assert!(lanes.lanes.is_empty());
    }
}
