//! What calls leave for other calls: results, and whatever a tool keeps itself.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | `Cache`: a store, and what is made of its failures |
//! | `result` | results of calls, each made once for all that ask at one time |
//! | `key` | under which key a result is kept: canonical arguments, defaults spelled out |
//! | `own` | `ToolCache`: what a tool keeps itself |
//! | `store`, `memory`, `redis` | where it is kept |
//!
//! A store may lose what it holds at any time and be gone: a call then runs as if there were none.

mod key;
mod memory;
mod own;
mod redis;
mod result;
mod store;

pub use own::ToolCache;
pub(crate) use redis::{Redis, RedisSettings};
pub(super) use result::Lookup;
pub(crate) use store::{Store, StoreError};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::metrics::metrics;
use memory::Memory;
use result::Flights;

/// The cache of a process. Cheap to clone.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    flights: Flights,
    /// Whether the store failed when it was last asked.
    is_down: AtomicBool,
}

impl Default for Cache {
    /// In memory, as large as it is where nothing is configured.
    fn default() -> Self {
        Self::memory(Self::DEFAULT_MEMORY)
    }
}

impl Cache {
    /// Bytes that are kept in memory at most.
    pub const DEFAULT_MEMORY: u64 = 64 << 20;

    /// In the memory of the process: keys and values of at most so many bytes.
    pub fn memory(max_bytes: u64) -> Self {
        Self::new(Arc::new(Memory::new(max_bytes)))
    }

    /// In a store that others may share.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner { store, flights: Flights::default(), is_down: AtomicBool::new(false) }))
    }

    /// What a store that fails holds cannot be told: `Err` is nothing, and not asked for again at once.
    async fn get(&self, key: &str) -> Result<Option<String>, Unavailable> {
        self.heard("get", self.0.store.get(key).await)
    }

    async fn set(&self, key: &str, value: String, ttl: Duration) {
        let _ = self.heard("set", self.0.store.set(key, value, ttl).await);
    }

    async fn remove(&self, key: &str) {
        let _ = self.heard("remove", self.0.store.remove(key).await);
    }

    /// What the store does not do is counted each time, and logged when that begins and when it is over.
    fn heard<T>(&self, operation: &'static str, answer: Result<T, StoreError>) -> Result<T, Unavailable> {
        let was_down = self.0.is_down.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Err(error) => {
                metrics().cache_errors.with_label_values(&[operation]).inc();
                if !was_down {
                    tracing::warn!(operation, %error, "the cache is unavailable; calls run as if there were none");
                }
            }
            Ok(_) if was_down => tracing::info!("the cache is available again"),
            Ok(_) => {}
        }
        answer.map_err(|_| Unavailable)
    }
}

/// The store did not do what it was asked to.
struct Unavailable;

#[cfg(test)]
mod tests;
