//! The store in the memory of the process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use moka::Expiry;
use moka::sync::Cache;

use super::store::{Store, StoreError};

/// What is not asked for goes first when it is full.
pub(super) struct Memory(Cache<String, Entry>);

#[derive(Clone)]
struct Entry {
    value: Arc<str>,
    ttl: Duration,
}

struct Ttl;

impl Expiry<String, Entry> for Ttl {
    fn expire_after_create(&self, _: &String, entry: &Entry, _: Instant) -> Option<Duration> {
        Some(entry.ttl)
    }

    fn expire_after_update(
        &self,
        _: &String,
        entry: &Entry,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(entry.ttl)
    }
}

impl Memory {
    pub(super) fn new(max_bytes: u64) -> Self {
        let weight = |key: &String, entry: &Entry| {
            u32::try_from(key.len().saturating_add(entry.value.len())).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(max_bytes).weigher(weight).expire_after(Ttl).build())
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.0.get(key).map(|entry| entry.value.as_ref().to_owned()))
    }

    async fn set(&self, key: &str, value: String, ttl: Duration) -> Result<(), StoreError> {
        self.0.insert(key.to_owned(), Entry { value: value.into(), ttl });
        Ok(())
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.0.invalidate(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_keeps_no_more_than_it_may() {
        let memory = Memory::new(10_000);
        for n in 0..100 {
            memory.set(&format!("{n:04}"), "x".repeat(996), Duration::from_secs(60)).await.unwrap();
        }
        memory.set("huge", "x".repeat(20_000), Duration::from_secs(60)).await.unwrap();
        memory.0.run_pending_tasks();
        assert!(memory.0.weighted_size() <= 10_000, "{}", memory.0.weighted_size());
        assert!(memory.0.entry_count() > 0);
        assert_eq!(memory.get("huge").await, Ok(None));
    }
}
