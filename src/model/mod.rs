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
    /// Who hears the text while it is made.
    pub listener: Listener<'a>,
}

/// Hears the number of an attempt, and the next piece of its text.
type Hear<'a> = dyn Fn(u32, &str) + Send + Sync + 'a;

/// Who hears a reply's text while it is made, if anybody does. Nothing depends on it.
#[derive(Clone, Copy, Default)]
pub struct Listener<'a>(Option<&'a Hear<'a>>);

impl<'a> Listener<'a> {
    /// One that is told the number of the attempt, from 1, and the next piece of its text.
    pub fn new(hear: &'a (dyn Fn(u32, &str) + Send + Sync + 'a)) -> Self {
        Self(Some(hear))
    }

    /// Tells the next piece. What was told of an earlier attempt is void.
    pub fn tell(&self, attempt: u32, text: &str) {
        if let Some(hear) = self.0.filter(|_| !text.is_empty()) {
            hear(attempt, text);
        }
    }
}

impl std::fmt::Debug for Listener<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.0.is_some()).finish()
    }
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
