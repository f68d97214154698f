//! Which offsets of a partition are finished: the watermark.

use std::collections::VecDeque;

/// Offsets of one partition, from the watermark up. Offsets have gaps: compaction and transaction
/// markers leave them.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Dispatched offsets in order, and whether each is finished; the first is not.
    dispatched: VecDeque<(i64, bool)>,
    /// Where the next record comes from, at the earliest.
    next: i64,
    began: bool,
    unfinished: usize,
}

impl Tracker {
    /// Nothing dispatched yet; the first record will come from `start` or later.
    pub(crate) fn new(start: i64) -> Self {
        Self { dispatched: VecDeque::new(), next: start, began: false, unfinished: 0 }
    }

    /// A record goes to the worker. False if it went before: it must not go again.
    pub(crate) fn dispatch(&mut self, offset: i64) -> bool {
        // Below where it began: the log was made anew (or its start was moved), and begins again here.
        if offset < self.next && self.began {
            return false;
        }
        self.began = true;
        self.dispatched.push_back((offset, false));
        self.unfinished += 1;
        self.next = offset + 1;
        true
    }

    /// A record is finished. An offset that is unknown or was finished before changes nothing.
    pub(crate) fn finish(&mut self, offset: i64) {
        let Ok(index) = self.dispatched.binary_search_by_key(&offset, |(offset, _)| *offset) else {
            return;
        };
        if let Some((_, done)) = self.dispatched.get_mut(index)
            && !*done
        {
            *done = true;
            self.unfinished -= 1;
        }
        while let Some((_, true)) = self.dispatched.front() {
            self.dispatched.pop_front();
        }
    }

    /// The lowest offset that is not finished: what may be committed.
    pub(crate) fn watermark(&self) -> i64 {
        self.dispatched.front().map_or(self.next, |(offset, _)| *offset)
    }

    /// Whether a record was dispatched, or it is known where the first will come from.
    pub(crate) fn has_begun(&self) -> bool {
        self.began || self.next > 0
    }

    /// How many records lie between the watermark and where the partition is read, finished ones too.
    pub(crate) fn span(&self) -> usize {
        self.dispatched.len()
    }

    /// How many records are dispatched and not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_log_that_begins_again_below_the_commit_is_read() {
        let mut tracker = Tracker::new(1000);
        assert!(tracker.dispatch(0));
        tracker.finish(0);
        assert_eq!(tracker.watermark(), 1);
        assert!(!tracker.dispatch(0));
    }

    proptest! {
        /// Against the plain definition, over any order of finishing, with gaps and repeats.
        #[test]
        fn the_watermark_is_the_lowest_unfinished_offset(
            start in 0i64..100,
            steps in prop::collection::vec((1i64..4, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut tracker = Tracker::new(start);
            let mut open = BTreeSet::new();
            let mut last = start - 1;
            for (gap, pick) in steps {
                last += gap;
                prop_assert!(tracker.dispatch(last));
                prop_assert!(!tracker.dispatch(last));
                open.insert(last);
                let all: Vec<i64> = open.iter().copied().collect();
                let done = *pick.get(&all);
                if done % 2 == 0 {
                    tracker.finish(done);
                    tracker.finish(done);
                    open.remove(&done);
                }
                prop_assert_eq!(tracker.watermark(), open.first().copied().unwrap_or(last + 1));
                prop_assert_eq!(tracker.unfinished(), open.len());
            }
            tracker.finish(last + 10);
            for offset in open {
                tracker.finish(offset);
            }
            prop_assert_eq!(tracker.watermark(), last + 1);
        }
    }
}
