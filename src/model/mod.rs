//! Models: what answers a transcript with a reply.
//!
//! | file | holds |
//! | --- | --- |
//! | `scripted` | the model that plays a script: for `dev`, tests and benchmarks |
//! | `provider` | models of providers, over HTTP |

mod provider;
mod scripted;

pub use provider::Api;
pub(crate) use provider::{Candidate, Endpoint, Options, Price, RESERVED, Remote, Settings, url};

pub(crate) use scripted::SCRIPT;
pub use scripted::{Script, Scripted};

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::turn::{Definition, Failure, Message, Reply};

/// What is asked of a model.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The agent that asks.
    pub agent: &'a str,
    /// The number of the reply in its turn, from 0.
    pub reply: u32,
    /// The transcript, the agent's instructions first.
    pub messages: &'a [Message],
    /// The tools on offer, in the order of their registration.
    pub tools: &'a [Arc<Definition>],
    /// The turn's metadata.
    pub metadata: &'a BTreeMap<String, String>,
}

/// Something that answers a transcript with a reply.
///
/// What it returns is recorded before anything depends on it. After a crash before that, it is asked
/// again, and may answer differently.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The reply, as it came: calls are judged by the caller.
    ///
    /// Cancel safety: the future is dropped when the worker gives the turn up.
    ///
    /// # Errors
    /// The turn fails with this code and text.
    async fn complete(&self, request: Request<'_>) -> Result<Reply, Failure>;
}
