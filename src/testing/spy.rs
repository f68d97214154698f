//! What is noted of each run of a tool.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;

use crate::tool::{Output, Spec, Tool, ToolContext, ToolError};

/// One run of a tool, in the order in which they began.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// The session of its turn.
    pub session: String,
    /// Its turn.
    pub turn: String,
    /// Where its call stands in the turn.
    pub position: String,
    /// The tool.
    pub tool: String,
    /// The idempotency key of its call.
    pub key: String,
    /// Which run of the call it was, from 1.
    pub attempt: u32,
    /// What it was called with.
    pub arguments: Value,
    /// What it returned. None: it did not come to its end, because its worker died, its time was over, or it panicked.
    pub result: Option<Result<Value, ToolError>>,
}

/// All runs, over all workers.
#[derive(Clone, Default)]
pub(super) struct Runs(Arc<Mutex<Vec<Run>>>);

impl Runs {
    pub(super) fn all(&self) -> Vec<Run> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin(&self, run: Run) -> usize {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(run);
        runs.len() - 1
    }

    fn end(&self, index: usize, result: Result<Value, ToolError>) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.get_mut(index) {
            run.result = Some(result);
        }
    }
}

/// A tool, and what notes its runs.
pub(super) struct Spy {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) runs: Runs,
}

#[async_trait]
impl Tool for Spy {
    fn spec(&self) -> Spec {
        self.tool.spec()
    }

    fn name(&self) -> String {
        self.tool.name()
    }

    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError> {
        let index = self.runs.begin(Run {
            session: context.session_id().into(),
            turn: context.turn_id().into(),
            position: context.position().into(),
            tool: context.tool().into(),
            key: context.idempotency_key().into(),
            attempt: context.attempt(),
            arguments: arguments.clone(),
            result: None,
        });
        let result = self.tool.call(context, arguments).await;
        let noted = result.as_ref().map(|output| serde_json::from_str(output.as_json()).unwrap_or_default());
        self.runs.end(index, noted.map_err(Clone::clone));
        result
    }
}
