//! The journal: every step of a turn, recorded before anything depends on it.
//!
//! The rules by number are those of the recovery protocol in `docs/guarantees.md`.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | `Log`, and `Journal`, the writer of one partition |
//! | `restore` | taking a partition over: claim, read, merge |
//! | `live` | a claimed partition while it is ours: what is confirmed |
//! | `claims` | which events count: fences and claims |
//! | `contents` | which events count: what they were made from |
//! | `point` | where a restore begins |
//! | `table` | events merged per turn and position: what a rerun reads |
//! | `peek` | what a record is, from its key |
//! | `kafka` | the events topic |
//! | `memory` | a log in memory, for tests without a broker |

mod claims;
mod contents;
mod kafka;
mod live;
pub(crate) mod memory;
mod peek;
mod point;
mod restore;
mod table;

pub(crate) use contents::Contents;
pub(crate) use kafka::KafkaLog;
pub(crate) use restore::{Member, Restored, TakeOver, restore};
pub(crate) use table::{Content, End, Output, Table, TurnLog, shown};

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use crate::kafka::producer;
use crate::record::StepEvent;
use live::Live;

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
    /// Another worker has claimed the partition: what we wrote since is void.
    #[error("another worker has claimed the partition (at offset {claim} of the events)")]
    Superseded {
        /// The offset of its claim.
        claim: i64,
    },
    /// The events topic belongs to somebody else; going on would mix two journals.
    #[error(
        "the events partition has claims of group {group:?} for turns topic {turns_topic:?}: \
             an events topic belongs to one group and one turns topic; configure another one"
    )]
    Foreign {
        /// The group that claims it.
        group: String,
        /// The turns topic that it is claimed for.
        turns_topic: String,
    },
    /// The log did not take the event, or cannot be read.
    #[error("{0}")]
    Log(String),
}

/// The acknowledgement of an append that is on its way: the offset, once the event is on the log. It is not
/// yet confirmed. Cheap to clone: several may wait for it.
#[derive(Clone)]
pub(crate) enum Receipt {
    /// On its way to the brokers.
    Kafka(producer::Receipt),
    /// On its way to another log.
    Other(Shared<BoxFuture<'static, Result<i64, Error>>>),
}

impl Receipt {
    /// Of an append that is acknowledged by a future.
    pub(crate) fn other(acknowledged: impl Future<Output = Result<i64, Error>> + Send + 'static) -> Self {
        Self::Other(acknowledged.boxed().shared())
    }

    /// Waits until it is acknowledged. Cancel safe.
    pub(crate) async fn acknowledged(&self) -> Result<i64, Error> {
        match self {
            Self::Kafka(receipt) => Ok(receipt.wait().await?.offset),
            Self::Other(acknowledged) => acknowledged.clone().await,
        }
    }

    /// The same, if that is known now.
    pub(crate) fn now(&self) -> Option<Result<i64, Error>> {
        match self {
            Self::Kafka(receipt) => {
                Some(receipt.now()?.clone().map(|written| written.offset).map_err(Into::into))
            }
            Self::Other(acknowledged) => acknowledged.clone().now_or_never(),
        }
    }
}

/// A record of a log.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub offset: i64,
    /// Milliseconds since 1970 UTC, where the record has a timestamp.
    pub timestamp: Option<i64>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Takes in a record that is read on: its offset, key and value. False: no more of them. It does not wait.
pub(crate) type Pass = Box<dyn FnMut(i64, &[u8], &[u8]) -> bool + Send>;

/// Records in the order of the log; ends with an error, or when nothing more can come.
#[async_trait]
pub(crate) trait Entries: Send {
    /// The next one. Cancel safe.
    async fn next(&mut self) -> Option<Result<Entry, Error>>;
}

/// A partitioned log of keyed records.
#[async_trait]
pub(crate) trait Log: Send + Sync + 'static {
    /// Hands a record over. What one task hands over one after the other is written in that order.
    async fn append(&self, partition: i32, key: String, value: Vec<u8>) -> Result<Receipt, Error>;

    /// The offset where the partition's log begins.
    async fn begin(&self, partition: i32) -> Result<i64, Error>;

    /// Every record of the partition from `from` up to and with the one at `to`; an error if what was to be read
    /// is gone.
    fn scan(&self, partition: i32, from: i64, to: i64) -> Box<dyn Entries>;

    /// Every record that the partition has now.
    fn whole(&self, partition: i32) -> Box<dyn Entries>;

    /// Hands every record of the partition from `from` on over, for as long as this is waited for; says why there are no
    /// more.
    async fn follow(&self, partition: i32, from: i64, pass: Pass) -> Error;

    /// How large a record may be, in bytes.
    fn max_record_bytes(&self) -> usize;

    /// The log, for the appends of one turn: what they are handed over through is chosen once.
    fn for_a_turn(self: Arc<Self>) -> Arc<dyn Log>;

    /// Why nothing can ever be appended again, or read on, if that is so.
    fn fatal(&self) -> Option<String> {
        None
    }
}

/// The writer of one partition's events, since its claim. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Journal {
    log: Arc<dyn Log>,
    partition: i32,
    live: Arc<Live>,
}

impl Journal {
    /// The same, for the appends of one turn.
    pub(crate) fn for_a_turn(&self) -> Self {
        Self { log: Arc::clone(&self.log).for_a_turn(), ..self.clone() }
    }

    /// The partition, of the turns and of the events.
    pub(crate) fn partition(&self) -> i32 {
        self.partition
    }

    /// Hands an event over; its fence is ours (rule 1). Events that one task hands over one after the other are
    /// written in that order.
    pub(crate) async fn append(&self, event: &mut StepEvent) -> Result<Receipt, Error> {
        let (partition, key, value) = self.record(event)?;
        self.log.append(partition, key, value).await
    }

    /// An event as a record of ours: partition, key and value.
    pub(crate) fn record(&self, event: &mut StepEvent) -> Result<(i32, String, Vec<u8>), Error> {
        event.fence = Some(self.live.fence());
        let (key, value) = encode(event)?;
        let (size, max) = (key.len() + value.len(), self.log.max_record_bytes());
        if size > max {
            return Err(Error::TooLarge { size, max });
        }
        Ok((self.partition, key, value))
    }

    /// Waits until everything of ours up to the acknowledged `offset` is confirmed: read back without another
    /// claim before it (rule 12).
    ///
    /// # Errors
    /// It is void, or nobody can know: the partition has to be taken over again.
    pub(crate) async fn confirmed(&self, offset: i64) -> Result<(), Error> {
        self.live.confirmed(offset).await
    }

    /// What to commit beside this watermark, so that the next restore begins there (rule 8), and how many offsets a
    /// restore would read.
    pub(crate) fn recovery_point(&self, watermark: i64) -> (String, i64) {
        let (point, events) = self.live.point(watermark);
        (point.to_string(), events)
    }

    /// Where the log has lost events: the record of the turns at `offset` and those after it are of later.
    pub(crate) fn whole_from(&self, offset: i64) {
        self.live.whole_from(offset);
    }

    /// Reads the tail until the journal is over, and says why. Until then, everything that waits for a
    /// confirmation depends on it.
    pub(crate) async fn follow(&self) -> Error {
        let live = Arc::clone(&self.live);
        let pass = move |offset, key: &[u8], value: &[u8]| live.pass(offset, key, value).is_ok();
        let error = self.log.follow(self.partition, self.live.fence(), Box::new(pass)).await;
        self.live.end(error)
    }
}

/// Follows what is read record by record.
pub(crate) async fn follow_entries(mut entries: impl Entries, mut pass: Pass) -> Error {
    loop {
        match entries.next().await {
            Some(Ok(entry)) if pass(entry.offset, &entry.key, &entry.value) => {}
            Some(Ok(_)) | None => return Error::Log("the tail of the events partition has ended".into()),
            Some(Err(error)) => return error,
        }
    }
}

fn encode(event: &StepEvent) -> Result<(String, Vec<u8>), Error> {
    let value = serde_json::to_vec(event)
        .map_err(|e| Error::Log(format!("an event cannot be written as JSON: {e}")))?;
    Ok((event.record_key(), value))
}
