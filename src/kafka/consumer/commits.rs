//! What is finished, committed: one commit at a time, explicit offsets, a recovery point beside each (rules 8
//! and 20).

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode;

use super::poller::Poller;
use crate::kafka::commit::Commit;

/// How often finished work is committed.
pub(super) const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How long the last commit of a partition that is given up may take; a failed one is harmless, the
/// next owner skips what has ended.
pub(super) const LAST_COMMIT: Duration = Duration::from_secs(5);

/// A commit that is under way, and the epoch of each partition in it.
pub(super) struct Committing(Vec<(u64, Commit)>);

impl Poller {
    /// Commits what has finished since the last time, and the partitions that are to be taken over again, changed
    /// or not. Finished work that comes while a commit is under way waits for the next.
    pub(super) fn commit(&mut self) {
        if self.committing.is_some() {
            return;
        }
        let now = Instant::now();
        self.last_commit = now;
        let mut commits = Vec::new();
        for (&partition, state) in self.partitions.iter().filter(|(_, state)| !state.lost) {
            let offset = state.tracker.watermark();
            let due = state.restart.as_ref().is_some_and(|restart| restart.due <= now);
            if offset == state.committed.0 && !due {
                continue;
            }
            let point = (self.options.recovery)(partition, state.epoch, offset);
            // A partition whose restore failed has nothing new to say.
            let unchanged = || (due && offset == state.committed.0).then(|| state.committed.1.clone());
            if let Some(metadata) = point.or_else(unchanged) {
                commits.push((state.epoch, Commit { partition, offset, metadata }));
            }
        }
        if commits.is_empty() {
            return;
        }
        let request: Vec<Commit> = commits.iter().map(|(_, commit)| commit.clone()).collect();
        let committing = Committing(commits);
        match self.commits.request(self.consumer.client(), &self.options.topic, &request) {
            Ok(()) => self.committing = Some(committing),
            Err(code) => self.commit_failed(committing, code),
        }
    }

    /// How the commit that was under way went.
    pub(super) fn committed(&mut self, result: Result<(), RDKafkaErrorCode>) {
        let Some(committing) = self.committing.take() else {
            return;
        };
        if let Err(code) = result {
            self.commit_failed(committing, code);
            return;
        }
        for (epoch, commit) in committing.0 {
            let Some(state) = self.current(commit.partition, epoch) else {
                continue;
            };
            state.committed = (commit.offset, commit.metadata);
            if state.restart.as_ref().is_some_and(|restart| restart.due <= Instant::now()) {
                self.restarted(commit.partition);
            }
        }
    }

    /// Polling goes on; what was to be committed is tried again, and a partition that is to be taken over again
    /// waits for the proof, or for the callback that takes it away.
    fn commit_failed(&mut self, committing: Committing, code: RDKafkaErrorCode) {
        tracing::warn!(topic = self.options.topic, error = %code, "commit failed, trying again");
        for (_, commit) in committing.0 {
            self.put_off(commit.partition);
        }
    }
}
