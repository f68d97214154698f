//! A log in memory, for tests without a broker.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{Error, Log, Receipt};
use crate::record::StepEvent;

/// One partition's records; every other partition is refused.
#[derive(Default)]
pub(crate) struct MemoryLog {
    records: Mutex<Vec<(String, Vec<u8>)>>,
}

impl MemoryLog {
    /// The events so far.
    pub(crate) fn events(&self) -> Vec<StepEvent> {
        (self.records.lock().unwrap_or_else(PoisonError::into_inner).iter())
            .map(|(_, value)| serde_json::from_slice(value).unwrap())
            .collect()
    }

    /// Appends the first `count` records of another log.
    pub(crate) fn copy(&self, other: &Self, count: usize) {
        let records = other.records.lock().unwrap_or_else(PoisonError::into_inner)[..count].to_vec();
        self.records.lock().unwrap_or_else(PoisonError::into_inner).extend(records);
    }

    /// As if the worker had died after the first `count` records.
    pub(crate) fn truncate(&self, count: usize) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).truncate(count);
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn append(&self, partition: i32, key: String, value: Vec<u8>) -> Result<Receipt, Error> {
        assert_eq!(partition, 0, "a log of one partition");
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.push((key, value));
        let offset = i64::try_from(records.len()).unwrap() - 1;
        Ok(Box::pin(std::future::ready(Ok(offset))))
    }

    async fn scan(
        &self,
        _partition: i32,
        from: Option<i64>,
        to: i64,
        visit: &mut (dyn for<'r> FnMut(i64, &'r [u8]) + Send),
    ) -> Result<(), Error> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (offset, (_, value)) in (0..).zip(records) {
            if offset >= from.unwrap_or(0) && offset <= to {
                visit(offset, &value);
            }
        }
        Ok(())
    }

    fn max_record_bytes(&self) -> usize {
        100_000
    }
}
