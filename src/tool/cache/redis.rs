//! The store in Redis, or in a server that speaks its protocol: shared by the workers of a group.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};

use super::store::{Store, StoreError};

/// Where Redis is, and how it is used.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisSettings {
    /// `redis://[USER][:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://` for TLS.
    pub url: String,
    /// What all keys begin with.
    pub prefix: String,
    /// How long an answer is waited for, and a connection.
    pub timeout: Duration,
}

/// Without the URL: it may have a password.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A store in Redis. It connects when it is first asked, and again whenever the connection is lost.
pub(crate) struct Redis {
    connection: ConnectionManager,
    prefix: String,
    timeout: Duration,
}

impl Redis {
    /// A store that has not connected yet. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The URL is none.
    pub(crate) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        // As the HTTP client does: for TLS, where the program has not chosen yet.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The error's own text may quote the URL.
        let client = Client::open(settings.url.as_str())
            .map_err(|_| StoreError("not a URL such as \"redis://127.0.0.1:6379\"".into()))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(settings.timeout))
            .set_response_timeout(Some(settings.timeout))
            // A call waits for it: the next one tries again.
            .set_number_of_retries(0);
        let connection = ConnectionManager::new_lazy_with_config(client, config)
            .map_err(|error| StoreError(error.to_string()))?;
        Ok(Self { connection, prefix: settings.prefix.clone(), timeout: settings.timeout })
    }

    /// Whether it answers.
    ///
    /// # Errors
    /// It does not.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.ask(redis::cmd("PING")).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: redis::Cmd) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        let answer = async { command.query_async(&mut connection).await };
        // A connection that is being made again is waited for no longer than an answer.
        let answer: RedisResult<T> = tokio::time::timeout(self.timeout, answer).await.map_err(|_| {
            StoreError(format!("no answer within {}", humantime::format_duration(self.timeout)))
        })?;
        answer.map_err(|error| StoreError(error.to_string()))
    }

    fn key(&self, key: &str) -> String {
        format!("{}:{key}", self.prefix)
    }
}

#[async_trait]
impl Store for Redis {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(self.key(key));
        self.ask(command).await
    }

    async fn set(&self, key: &str, value: String, ttl: Duration) -> Result<(), StoreError> {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2);
        let mut command = redis::cmd("SET");
        command.arg(self.key(key)).arg(value).arg("PX").arg(millis);
        self.ask(command).await
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        let mut command = redis::cmd("DEL");
        command.arg(self.key(key));
        self.ask::<()>(command).await
    }
}
