//! `ToolCache`: what a tool keeps itself, by keys of its own.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Cache;
use crate::tool::{Output, ToolError};

/// What a tool keeps for its next calls, in the store of the worker, under keys that no other tool sees (specification
/// P, "ToolContext"). It may be gone at any time.
#[derive(Clone)]
pub struct ToolCache {
    cache: Cache,
    tool: String,
}

impl ToolCache {
    pub(in crate::tool) fn new(cache: Cache, tool: &str) -> Self {
        Self { cache, tool: tool.into() }
    }

    /// The value under the key. None: there is none, its time is over, it is of another type, or the store is
    /// unavailable.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let text = self.cache.get(&self.key(key)).await.ok()??;
        serde_json::from_str(&text).ok()
    }

    /// Keeps a value under the key for a time, instead of what was there. A store that is unavailable keeps nothing.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub async fn set<T: Serialize>(&self, key: &str, value: &T, ttl: Duration) -> Result<(), ToolError> {
        self.cache.set(&self.key(key), Output::of(value)?.into_json(), ttl).await;
        Ok(())
    }

    /// Forgets the value under the key.
    pub async fn remove(&self, key: &str) {
        self.cache.remove(&self.key(key)).await;
    }

    /// A tool's name has no colon.
    fn key(&self, key: &str) -> String {
        format!("tool:{}:{key}", self.tool)
    }
}
