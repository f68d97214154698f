//! `Store`: texts by key, for a time.

use std::time::Duration;

use async_trait::async_trait;

/// Texts by key, each for a time. It may forget anything sooner.
#[async_trait]
pub(crate) trait Store: Send + Sync + 'static {
    /// What is kept under the key.
    ///
    /// # Errors
    /// The store cannot be asked.
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Keeps a value under the key, instead of what was there.
    ///
    /// # Errors
    /// The store cannot be asked.
    async fn set(&self, key: &str, value: String, ttl: Duration) -> Result<(), StoreError>;

    /// Forgets what is kept under the key.
    ///
    /// # Errors
    /// The store cannot be asked.
    async fn remove(&self, key: &str) -> Result<(), StoreError>;
}

/// Why a store cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(pub String);
