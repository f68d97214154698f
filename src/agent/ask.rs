//! A question to the agent's model, and what the loop comes to.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Host;
use crate::turn::{Failure, Message, Reply};

/// A question to the agent's model, begun by [`AgentContext::ask`](super::AgentContext::ask); it is asked when this is
/// awaited.
#[must_use = "the model is asked when this is awaited"]
pub struct Ask {
    pub(super) host: Arc<dyn Host>,
    pub(super) messages: Vec<Message>,
    pub(super) tools: bool,
}

impl Ask {
    /// The model is told of the agent's tools. The calls in its reply are the code's to make, by
    /// [`AgentContext::call`](super::AgentContext::call).
    pub fn with_tools(mut self) -> Self {
        self.tools = true;
        self
    }
}

impl IntoFuture for Ask {
    type Output = Result<Reply, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.host.ask(self.messages, self.tools)
    }
}

/// How the loop of model and tools ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The model's last word.
    pub output: String,
    /// The whole transcript, from the agent's instructions to the last word.
    pub messages: Vec<Message>,
}
