//! A log in memory: a turn without a broker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Entries, Entry, Error, Log, Pass, Receipt, follow_entries};
use crate::record::StepEvent;

type Records = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// The records of the one partition that it has.
pub(crate) struct MemoryLog {
    records: Records,
    written: watch::Sender<usize>,
    max_record_bytes: usize,
}

#[cfg(test)]
impl Default for MemoryLog {
    fn default() -> Self {
        Self::new(100_000)
    }
}

impl MemoryLog {
    /// Empty; a record has at most so many bytes.
    pub(crate) fn new(max_record_bytes: usize) -> Self {
        Self { records: Arc::default(), written: watch::Sender::new(0), max_record_bytes }
    }

    fn records(&self) -> MutexGuard<'_, Vec<(String, Vec<u8>)>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<StepEvent> {
        self.records().iter().filter_map(|(_, value)| serde_json::from_slice(value).ok()).collect()
    }

    /// Appends the first `count` records of another log.
    #[cfg(test)]
    pub(crate) fn copy(&self, other: &Self, count: usize) {
        let records: Vec<_> = other.records().iter().take(count).cloned().collect();
        self.records().extend(records);
    }

    /// As if the worker had died after the first `count` records.
    #[cfg(test)]
    pub(crate) fn truncate(&self, count: usize) {
        self.records().truncate(count);
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn append(&self, _: i32, key: String, value: Vec<u8>) -> Result<Receipt, Error> {
        let mut records = self.records();
        records.push((key, value));
        self.written.send_replace(records.len());
        Ok(Receipt::other(std::future::ready(Ok(last(&records)))))
    }

    async fn begin(&self, _: i32) -> Result<i64, Error> {
        Ok(0)
    }

    fn scan(&self, _: i32, from: i64, to: i64) -> Box<dyn Entries> {
        Box::new(self.read(from, Some(to)))
    }

    fn whole(&self, _: i32) -> Box<dyn Entries> {
        let last = last(&self.records());
        Box::new(self.read(0, Some(last)))
    }

    async fn follow(&self, _: i32, from: i64, pass: Pass) -> Error {
        follow_entries(self.read(from, None), pass).await
    }

    fn for_a_turn(self: Arc<Self>) -> Arc<dyn Log> {
        self
    }

    fn max_record_bytes(&self) -> usize {
        self.max_record_bytes
    }
}

impl MemoryLog {
    fn read(&self, next: i64, to: Option<i64>) -> Read {
        Read { records: Arc::clone(&self.records), written: self.written.subscribe(), next, to }
    }
}

/// The offset of the last record.
fn last(records: &[(String, Vec<u8>)]) -> i64 {
    i64::try_from(records.len()).unwrap_or(i64::MAX) - 1
}

struct Read {
    records: Records,
    written: watch::Receiver<usize>,
    next: i64,
    to: Option<i64>,
}

#[async_trait]
impl Entries for Read {
    async fn next(&mut self) -> Option<Result<Entry, Error>> {
        if self.to.is_some_and(|to| self.next > to) {
            return None;
        }
        loop {
            let index = usize::try_from(self.next).unwrap_or_default();
            let found = self.records.lock().unwrap_or_else(PoisonError::into_inner).get(index).cloned();
            if let Some((key, value)) = found {
                let entry = Entry { offset: self.next, timestamp: None, key: key.into_bytes(), value };
                self.next += 1;
                return Some(Ok(entry));
            }
            self.written.changed().await.ok()?;
        }
    }
}
