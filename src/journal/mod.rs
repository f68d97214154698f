//! The journal: every step of a turn, recorded before anything depends on it.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | `Journal`, the writer of one partition, and `restore` |
//! | `table` | events merged per turn and position: what a rerun reads |
//! | `kafka` | the events topic |
//! | `memory` | a log in memory, for tests without a broker |

mod kafka;
#[cfg(test)]
pub(crate) mod memory;
mod table;

pub(crate) use kafka::KafkaLog;
pub(crate) use table::{Content, End, Table, TurnLog};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::record::{Claim, EventType, StepEvent};

/// Why the journal does not have what it should.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Error {
    /// The event is larger than a record may be; it was not appended.
    #[error("an event of {size} bytes is larger than a record may be ({max} bytes)")]
    TooLarge {
        /// The event, in bytes.
        size: usize,
        /// The bound, in bytes.
        max: usize,
    },
    /// The log did not take the event, or cannot be read.
    #[error("{0}")]
    Log(String),
}

/// The acknowledgement of an append that is on its way: the offset, once the event is on the log.
pub(crate) type Receipt = Pin<Box<dyn Future<Output = Result<i64, Error>> + Send>>;

/// A partitioned log of keyed records.
#[async_trait]
pub(crate) trait Log: Send + Sync + 'static {
    /// Hands a record over. What one task hands over one after the other is written in that order.
    async fn append(&self, partition: i32, key: String, value: Vec<u8>) -> Result<Receipt, Error>;

    /// Shows every record of the partition from `from`, or from its beginning, up to and with the one at
    /// `to`, in order.
    async fn scan(
        &self,
        partition: i32,
        from: Option<i64>,
        to: i64,
        visit: &mut (dyn for<'r> FnMut(i64, &'r [u8]) + Send),
    ) -> Result<(), Error>;

    /// How large a record may be, in bytes.
    fn max_record_bytes(&self) -> usize;
}

/// Who takes a partition over.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The consumer group.
    pub group: String,
    /// The topic whose turns are recorded.
    pub turns_topic: String,
    /// The worker, for people.
    pub name: String,
}

/// The writer of one partition's events, since its claim. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Journal {
    log: Arc<dyn Log>,
    partition: i32,
    fence: i64,
}

impl Journal {
    /// The partition, of the turns and of the events.
    pub(crate) fn partition(&self) -> i32 {
        self.partition
    }

    /// Hands an event over; its fence is ours. Events that one task hands over one after the other are
    /// written in that order.
    pub(crate) async fn append(&self, mut event: StepEvent) -> Result<Receipt, Error> {
        event.fence = Some(self.fence);
        let (key, value) = encode(&event)?;
        let (size, max) = (key.len() + value.len(), self.log.max_record_bytes());
        if size > max {
            return Err(Error::TooLarge { size, max });
        }
        self.log.append(self.partition, key, value).await
    }
}

fn encode(event: &StepEvent) -> Result<(String, Vec<u8>), Error> {
    let value = serde_json::to_vec(event)
        .map_err(|e| Error::Log(format!("an event cannot be written as JSON: {e}")))?;
    Ok((event.record_key(), value))
}

/// Takes a partition over: appends a claim, reads from `from` (or from the beginning of the log) up to it,
/// and merges what it read. The claim is the barrier: everything written before it is in the table.
///
/// `watermark` is the lowest offset of the turns topic that may come again.
pub(crate) async fn restore(
    log: Arc<dyn Log>,
    member: &Member,
    partition: i32,
    from: Option<i64>,
    watermark: i64,
) -> Result<(Journal, Table), Error> {
    let mut claim = StepEvent::new(EventType::Claim);
    claim.claim = Some(Claim {
        nonce: uuid::Uuid::new_v4().to_string(),
        group: member.group.clone(),
        turns_topic: member.turns_topic.clone(),
        member: member.name.clone(),
    });
    let (key, value) = encode(&claim)?;
    let fence = log.append(partition, key, value).await?.await?;
    let mut table = Table::new(watermark);
    log.scan(partition, from, fence, &mut |offset, value| {
        match serde_json::from_slice::<StepEvent>(value) {
            Ok(event) => table.apply(offset, event),
            // Not ours, or from a later version: it cannot be a step of a turn that this version runs.
            Err(error) => tracing::warn!(partition, offset, %error, "an event cannot be read, skipped"),
        }
    })
    .await?;
    Ok((Journal { log, partition, fence }, table))
}
