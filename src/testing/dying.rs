//! A log whose worker dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::journal::memory::MemoryLog;
use crate::journal::{Entries, Error, Log, Pass, Receipt};
use crate::record::StepEvent;

/// Which append a worker does not live to make.
#[derive(Debug, Clone)]
pub(super) enum Death {
    /// The one after so many.
    After(usize),
    /// The same, but it goes on until it waits for one that came to nothing: what it had handed over was lost with it.
    Unwritten(usize),
    /// The first event of this type, as it is on the wire, at this position.
    Before(String, Option<String>),
}

/// A log in memory, and the death of the worker that writes to it.
pub(super) struct Dying {
    pub(super) log: Arc<MemoryLog>,
    pub(super) death: Death,
    pub(super) appended: AtomicUsize,
    /// Cancelled when it dies.
    pub(super) dead: CancellationToken,
}

impl Dying {
    fn dies(&self, value: &[u8]) -> bool {
        let before = self.appended.fetch_add(1, Ordering::SeqCst);
        match &self.death {
            Death::After(count) | Death::Unwritten(count) => before >= *count,
            Death::Before(kind, position) => serde_json::from_slice::<StepEvent>(value).is_ok_and(|event| {
                let at = event.position.as_ref().map(|position| position.as_str());
                event.kind.as_str() == kind && (position.is_none() || at == position.as_deref())
            }),
        }
    }
}

#[async_trait]
impl Log for Dying {
    async fn append(&self, partition: i32, key: String, value: Vec<u8>) -> Result<Receipt, Error> {
        if self.dead.is_cancelled() || self.dies(&value) {
            let dead = self.dead.clone();
            if matches!(self.death, Death::Unwritten(_)) {
                return Ok(Receipt::other(async move {
                    dead.cancel();
                    std::future::pending().await
                }));
            }
            dead.cancel();
            return std::future::pending().await;
        }
        self.log.append(partition, key, value).await
    }

    async fn begin(&self, partition: i32) -> Result<i64, Error> {
        self.log.begin(partition).await
    }

    fn scan(&self, partition: i32, from: i64, to: i64) -> Box<dyn Entries> {
        self.log.scan(partition, from, to)
    }

    fn whole(&self, partition: i32) -> Box<dyn Entries> {
        self.log.whole(partition)
    }

    async fn follow(&self, partition: i32, from: i64, pass: Pass) -> Error {
        self.log.follow(partition, from, pass).await
    }

    fn for_a_turn(self: Arc<Self>) -> Arc<dyn Log> {
        self
    }

    fn max_record_bytes(&self) -> usize {
        self.log.max_record_bytes()
    }
}
