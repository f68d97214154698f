//! What is finished, committed: one commit at a time, explicit offsets, a recovery point beside each (rules 8
//! and 20).

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::poller::Poller;
use crate::kafka::access::is_denial;
use crate::kafka::commit::Commit;
use crate::kafka::tracker::Tracker;
use crate::metrics::metrics;

/// How often finished work is committed.
pub(super) const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How often a recovery point that has moved on is committed beside a watermark that has not, the first time at once: the
/// one that is committed must not become older than what retention leaves.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// How long the last commit of a partition that is given up may take; a failed one is harmless, the
/// next owner skips what has ended.
pub(super) const LAST_COMMIT: Duration = Duration::from_secs(5);

/// How long nothing is committed after a commit was refused.
const REFUSED: Duration = Duration::from_secs(5);

/// A commit that is under way.
pub(super) struct Committing(Vec<Part>);

/// One partition of a commit.
struct Part {
    epoch: u64,
    commit: Commit,
    /// It is to prove the membership: asked for after the partition's journal was over.
    proof: bool,
}

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
        let partitions: Vec<i32> =
            self.partitions.iter().filter(|(_, state)| !state.lost).map(|(number, _)| *number).collect();
        for partition in partitions {
            commits.extend(self.part(partition, now));
        }
        if commits.is_empty() {
            return;
        }
        let request: Vec<Commit> = commits.iter().map(|part| part.commit.clone()).collect();
        let committing = Committing(commits);
        match self.commits.request(self.consumer.client(), &self.options.topic, &request) {
            Ok(()) => self.committing = Some(committing),
            Err(code) => self.commit_failed(committing, code),
        }
    }

    /// What there is to commit of a partition, if anything.
    fn part(&mut self, partition: i32, now: Instant) -> Option<Part> {
        let state = self.partitions.get(&partition)?;
        let proof = state.restart.as_ref().is_some_and(|restart| restart.due <= now);
        if proof && !state.tracker.has_begun() {
            let begin = self.begin_of(partition);
            self.options.health.polled();
            let state = self.partitions.get_mut(&partition)?;
            match begin {
                Ok(begin) => state.tracker = Tracker::new(begin),
                Err(error) => {
                    tracing::warn!(partition, %error, "a partition cannot be taken over again, trying again");
                    self.put_off(partition);
                    return None;
                }
            }
        }
        let state = self.partitions.get_mut(&partition)?;
        let (epoch, offset) = (state.epoch, state.tracker.watermark());
        let point = (self.options.recovery)(partition, epoch, offset);
        state.events = point.as_ref().map_or(0, |point| point.events);
        let due = self.closing || state.committed_at.is_none_or(|at| at.elapsed() >= REFRESH_EVERY);
        let moved = point.as_ref().is_some_and(|point| point.metadata != state.committed.1);
        let refresh = due && moved && state.tracker.has_begun();
        if offset == state.committed.0 && !proof && !refresh {
            return None;
        }
        // A partition whose restore failed has nothing new to say.
        let unchanged = || (proof && offset == state.committed.0).then(|| state.committed.1.clone());
        let metadata = point.map(|point| point.metadata).or_else(unchanged).or(proof.then(String::new))?;
        Some(Part { epoch, commit: Commit { partition, offset, metadata }, proof })
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
        for Part { epoch, commit, proof } in committing.0 {
            let Some(state) = self.current(commit.partition, epoch) else {
                continue;
            };
            state.committed = (commit.offset, commit.metadata.clone());
            state.committed_at = Some(Instant::now());
            // A revocation that came meanwhile waits for the epoch that is: there is nothing to take over again.
            if proof && state.restart.is_some() {
                self.restarted(commit);
            }
        }
    }

    /// Polling goes on; what was to be committed is tried again, and a partition that is to be taken over again
    /// waits for the proof, or for the callback that takes it away.
    fn commit_failed(&mut self, committing: Committing, code: RDKafkaErrorCode) {
        let error = self.explain(&KafkaError::ConsumerCommit(code));
        tracing::warn!(topic = self.options.topic, error, "commit failed, trying again");
        if is_denial(code) {
            self.last_commit = Instant::now() + REFUSED;
        }
        metrics().commits_failed.inc();
        for part in committing.0 {
            self.put_off(part.commit.partition);
        }
    }
}
