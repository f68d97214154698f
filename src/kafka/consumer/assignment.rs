//! Partitions that come, go, and are taken over again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rdkafka::consumer::{Consumer as _, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::commits::LAST_COMMIT;
use super::poller::{Partition, Poller};
use super::{Event, Rebalance};
use crate::kafka::commit::{self, Commit, Committed};
use crate::kafka::watchdog::watch_call;

/// How long one try to fetch the committed offsets may take.
const FETCH_COMMITTED: Duration = Duration::from_secs(5);
/// How long a seek may take.
const SEEK: Duration = Duration::from_secs(5);
/// The shortest and the longest wait between tries to take a partition over again.
const RESTART: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// An assignment that is being begun.
pub(super) struct Assigning {
    list: TopicPartitionList,
    next_try: Instant,
}

/// Partitions that are being given up.
pub(super) struct Revoking {
    list: TopicPartitionList,
    waiting: HashSet<i32>,
    lost: bool,
    commit_sent: bool,
    commit_by: Option<Instant>,
}

/// A partition whose journal is to be taken over again.
pub(super) struct Restart {
    pub due: Instant,
    pub wait: Duration,
}

impl Poller {
    pub(super) fn callbacks(&mut self) {
        for rebalance in self.consumer.context().take() {
            match rebalance {
                Rebalance::Assign(list) => {
                    self.assigning = Some(Assigning { list, next_try: Instant::now() });
                }
                Rebalance::Revoke(list) => self.revoke(list),
            }
        }
        while let Some(result) = self.commits.answer() {
            self.committed(result);
        }
    }

    /// Watermark and metadata of each partition come from one fetch; a failed fetch is tried again, never taken
    /// as "nothing committed" (rule 5).
    pub(super) fn go_on_assigning(&mut self) {
        let Some(assigning) = self.assigning.take() else {
            return;
        };
        if assigning.next_try > Instant::now() {
            self.assigning = Some(assigning);
            return;
        }
        let _watched = watch_call("fetching committed offsets", FETCH_COMMITTED);
        let partitions: Vec<i32> = assigning.list.elements().iter().map(|e| e.partition()).collect();
        let fetched = match partitions.is_empty() {
            true => Ok(Vec::new()),
            false => commit::fetch(
                self.consumer.client(),
                &self.options.topic,
                partitions.into_iter(),
                FETCH_COMMITTED,
            )
            .map_err(KafkaError::OffsetFetch),
        };
        match fetched.and_then(|committed| self.assign(&committed).map(|()| committed)) {
            Ok(committed) => {
                committed.into_iter().for_each(|committed| self.assigned(committed));
                self.options.health.joined();
            }
            Err(error) => {
                let (topic, error) = (&self.options.topic, self.explain(&error));
                tracing::warn!(topic, error, "committed offsets cannot be read, trying again");
                let next_try = Instant::now() + Duration::from_millis(500);
                self.assigning = Some(Assigning { list: assigning.list, next_try });
            }
        }
    }

    /// Assigns exactly at the watermarks, paused until the journals are restored.
    fn assign(&self, committed: &[Committed]) -> KafkaResult<()> {
        let mut exact = TopicPartitionList::new();
        for Committed { partition, offset, .. } in committed {
            // With no commit, auto.offset.reset decides where to begin.
            let start = offset.map_or(Offset::Stored, Offset::Offset);
            exact.add_partition_offset(&self.options.topic, *partition, start)?;
        }
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_assign(&exact)?,
            _ => self.consumer.assign(&exact)?,
        }
        if exact.count() > 0 {
            self.consumer.pause(&exact)?;
        }
        Ok(())
    }

    fn assigned(&mut self, committed: Committed) {
        let Committed { partition, offset: from, metadata } = committed;
        self.epoch += 1;
        let epoch = self.epoch;
        self.partitions.insert(partition, Partition::new(epoch, from, metadata.clone()));
        self.options.health.restoring(partition);
        tracing::info!(topic = self.options.topic, partition, epoch, from, "partition assigned");
        self.tell(Event::Assigned { partition, epoch, from, metadata });
    }

    /// Leaves the partitions assigned until their turns have stopped: polling goes on meanwhile.
    fn revoke(&mut self, list: TopicPartitionList) {
        let lost = self.consumer.assignment_lost();
        if lost {
            self.options.health.left();
        }
        // An assignment that had not begun ends here.
        self.assigning = None;
        let mut waiting = HashSet::new();
        for element in list.elements() {
            let partition = element.partition();
            if let Some(state) = self.partitions.get_mut(&partition) {
                state.revoked = true;
                state.lost = lost;
                state.restart = None;
                waiting.insert(partition);
                let epoch = state.epoch;
                tracing::info!(topic = self.options.topic, partition, epoch, lost, "partition revoked");
                self.tell(Event::Revoked { partition, epoch });
            }
        }
        self.revoking = Some(Revoking { list, waiting, lost, commit_sent: false, commit_by: None });
    }

    pub(super) fn drained(&mut self, partition: i32, epoch: u64) {
        if self.current(partition, epoch).is_some()
            && let Some(revoking) = &mut self.revoking
        {
            revoking.waiting.remove(&partition);
        }
    }

    pub(super) fn go_on_revoking(&mut self) {
        let (give_up, last_commit) = match &mut self.revoking {
            Some(revoking) if revoking.waiting.is_empty() => {
                let by = *revoking.commit_by.get_or_insert_with(|| Instant::now() + LAST_COMMIT);
                let give_up = revoking.lost || Instant::now() >= by;
                let first = self.committing.is_none() && !revoking.commit_sent;
                revoking.commit_sent |= first;
                (give_up, first)
            }
            _ => return,
        };
        if last_commit && !give_up {
            self.commit();
        }
        if give_up || self.committing.is_none() {
            self.unassign();
        }
    }

    /// Answers a rebalance that is under way: while one waits, the consumer cannot be closed.
    pub(super) fn answer_rebalance(&mut self) {
        if let Some(Assigning { list, .. }) = self.assigning.take()
            && let Err(error) =
                self.consumer.incremental_assign(&list).or_else(|_| self.consumer.assign(&list))
        {
            tracing::debug!(%error, "an assignment while leaving");
        }
        self.unassign();
    }

    fn unassign(&mut self) {
        let Some(revoking) = self.revoking.take() else {
            return;
        };
        let done = match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_unassign(&revoking.list),
            _ => self.consumer.unassign(),
        };
        if let Err(error) = done {
            tracing::warn!(topic = self.options.topic, %error, "partitions cannot be given back");
        }
        for element in revoking.list.elements() {
            if let Some(state) = self.partitions.remove(&element.partition()) {
                self.bytes = self.bytes.saturating_sub(state.bytes());
            }
            self.options.health.settled(element.partition());
            self.options.watermarks.forget(element.partition());
        }
    }

    /// No turn of the partition runs any more; what was dispatched comes again after the restart.
    pub(super) fn restart(&mut self, partition: i32, epoch: u64) {
        let health = self.options.health.clone();
        if let Some(state) = self.current(partition, epoch).filter(|state| !state.revoked) {
            state.ready = false;
            health.restoring(partition);
            let wait = (state.restarts.map_or(RESTART.0, |last| last * 2)).min(RESTART.1);
            state.restart = Some(Restart { due: Instant::now() + wait, wait });
        }
    }

    /// Where a partition begins that nothing was ever committed for, and nothing was read of: a commit that is to
    /// prove the membership needs an offset, and must not move where reading begins.
    pub(super) fn begin_of(&self, partition: i32) -> KafkaResult<i64> {
        let _watched = watch_call("fetching the bounds of a partition", SEEK);
        let (low, high) = self.consumer.fetch_watermarks(&self.options.topic, partition, SEEK)?;
        let latest =
            matches!(self.options.client.get("auto.offset.reset"), Some("latest" | "largest" | "end"));
        Ok(if latest { high } else { low })
    }

    pub(super) fn restart_is_due(&self) -> bool {
        let now = Instant::now();
        self.partitions.values().any(|p| p.restart.as_ref().is_some_and(|r| r.due <= now))
    }

    /// A commit has proven that we are a member: takes the partition over again, from its watermark.
    pub(super) fn restarted(&mut self, commit: Commit) {
        let Commit { partition, offset: watermark, metadata } = commit;
        let Some(state) = self.partitions.get(&partition) else {
            return;
        };
        let _watched = watch_call("a seek", SEEK);
        let mut list = TopicPartitionList::new();
        let sought = list
            .add_partition_offset(&self.options.topic, partition, Offset::Offset(watermark))
            .and_then(|()| self.consumer.seek_partitions(list, SEEK))
            .and_then(|list| list.elements().iter().try_for_each(|element| element.error()));
        if let Err(error) = sought {
            tracing::warn!(partition, watermark, %error, "the partition cannot be read again, trying again");
            self.put_off(partition);
            return;
        }
        self.bytes = self.bytes.saturating_sub(state.bytes());
        self.epoch += 1;
        let epoch = self.epoch;
        let restarts = state.restart.as_ref().map(|restart| restart.wait);
        let mut state = Partition::new(epoch, Some(watermark), metadata.clone());
        state.restarts = restarts;
        self.partitions.insert(partition, state);
        self.options.health.restoring(partition);
        tracing::info!(topic = self.options.topic, partition, epoch, from = watermark, "partition restarted");
        self.tell(Event::Assigned { partition, epoch, from: Some(watermark), metadata });
    }

    /// The restart is tried again later, each time twice as late.
    pub(super) fn put_off(&mut self, partition: i32) {
        if let Some(restart) = self.partitions.get_mut(&partition).and_then(|state| state.restart.as_mut()) {
            restart.wait = (restart.wait * 2).min(RESTART.1);
            restart.due = Instant::now() + restart.wait;
        }
    }
}
