//! An agent from its beginning to its end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::activity::{Activity, Signal};
use super::scope::{Callee, Frame, Scope};
use super::{Halted, Steps, changed};
use crate::agent::AgentContext;
use crate::tool::Registered;
use crate::turn::{Failure, Message, Position, code};
use crate::worker::bind::BoundAgent;
use crate::worker::driver::Halt;

/// What a turn's own agent is given.
pub(in crate::worker) struct Root {
    pub agent: Arc<BoundAgent>,
    /// What its model is offered of tools.
    pub tools: Vec<Arc<Registered>>,
    /// What its model is offered of agents.
    pub agents: Vec<Arc<BoundAgent>>,
    pub input: Vec<Message>,
    pub metadata: BTreeMap<String, String>,
    /// When the turn's time is over, in milliseconds since 1970 UTC, and why.
    pub limit: Option<(i64, Failure)>,
}

/// How a turn's agent ended.
#[derive(Debug)]
pub(in crate::worker) enum Conducted {
    /// With its answer.
    Ended(Result<String, Failure>),
    /// It was stopped at a step boundary.
    Stopped,
}

impl Root {
    /// Runs the turn's own agent.
    pub(in crate::worker) async fn conduct(self, steps: &Arc<Steps>) -> Result<Conducted, Halt> {
        let cancelled = steps.cancel.token().child_token();
        let frame = Arc::new(Frame {
            steps: Arc::clone(steps),
            bound: self.agent,
            tools: offered(self.tools, self.agents),
            input: self.input,
            metadata: Arc::new(self.metadata),
            position: None,
            limit: self.limit,
            account: 0,
            depth: 0,
            caller: None,
            activity: Activity::new(None),
            closed: tokio_util::sync::CancellationToken::new(),
            failed: Signal::default(),
            cancelled,
        });
        let halted = async {
            steps.halted.wait().await;
            match steps.halted.take() {
                Some(Halted::Halt(halt)) => Err(halt),
                Some(Halted::Stopped) | None => {
                    frame.activity.idle().await;
                    Ok(Conducted::Stopped)
                }
            }
        };
        tokio::select! {
            biased;
            halted = halted => halted,
            () = steps.stop.now.cancelled() => Ok(Conducted::Stopped),
            ended = conduct(&frame) => Ok(Conducted::Ended(ended)),
        }
    }
}

/// What a model is offered: tools, then agents.
pub(super) fn offered(tools: Vec<Arc<Registered>>, agents: Vec<Arc<BoundAgent>>) -> Vec<Callee> {
    tools.into_iter().map(Callee::Tool).chain(agents.into_iter().map(Callee::Agent)).collect()
}

/// Closes an agent when it is dropped, too.
struct Closing<'a>(&'a Frame);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs an agent's code until it has an answer, or a step or the time has one. What runs is not dropped in the middle,
/// unless nothing can be known any more.
pub(super) async fn conduct(frame: &Arc<Frame>) -> Result<String, Failure> {
    let _closing = Closing(frame);
    let context = AgentContext::new(Arc::new(Scope::new(Arc::clone(frame), None)));
    let code = AssertUnwindSafe(frame.bound.code.run(&context)).catch_unwind();
    let failed = async {
        frame.failed.wait().await;
        frame.activity.idle().await;
    };
    let overdue = async {
        let own = frame.caller.is_none();
        tokio::select! {
            () = frame.steps.cancel.token().cancelled(), if own => {}
            () = frame.time_is_over() => {}
        }
        // At the next step boundary, or where the code waits for something that is no step.
        frame.activity.idle().await;
        if let Some(interrupt) = frame.cut_short() {
            frame.interrupt(interrupt);
        }
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        biased;
        () = failed => None,
        ended = code => Some(ended),
        () = overdue => None,
    };
    // Whatever the code has made of it.
    if let Some(failure) = frame.failed.take() {
        return Err(failure);
    }
    match ended {
        None => Err(Failure::new(code::CANCELLED, "the agent was stopped")),
        Some(Err(_)) => {
            let message = format!("the code of agent {:?} failed unexpectedly (it panicked)", frame.name());
            Err(Failure::new(code::AGENT_PANICKED, message))
        }
        Some(Ok(answer)) => match frame.left_over() {
            Some(position) => Err(changed(
                &position,
                "a step is recorded there, and the agent's code ended without it; its steps differ from those that it \
                 made before",
            )),
            None => answer.map_err(crate::agent::AgentError::into_failure),
        },
    }
}

impl Frame {
    /// A recorded step of the agent's that its code has not come to.
    fn left_over(&self) -> Option<Position> {
        let parent = self.position.as_ref().map(Position::as_str);
        self.steps.left_over(parent)
    }
}
