//! An agent from its beginning to its end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt as _;

use super::activity::{Activity, Signal};
use super::scope::{Callee, Frame, Scope};
use super::{Halted, Interrupt, Steps, changed};
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
    pub(in crate::worker) fn conduct(
        self,
        steps: &Arc<Steps>,
    ) -> impl Future<Output = Result<Conducted, Halt>> + Send {
        let frame = Arc::new(Frame {
            steps: Arc::clone(steps),
            bound: self.agent,
            tools: offered(self.tools, self.agents),
            input: self.input,
            metadata: Arc::new(self.metadata),
            position: None,
            limit: self.limit,
            account: 0,
            again: false,
            strayed: AtomicBool::new(false),
            depth: 0,
            caller: None,
            activity: Activity::new(None),
            closed: tokio_util::sync::CancellationToken::new(),
            failed: Signal::default(),
            cancelled: steps.cancel.child_token(),
        });
        conduct_root(frame)
    }
}

async fn conduct_root(frame: Arc<Frame>) -> Result<Conducted, Halt> {
    let steps = &frame.steps;
    // What is rare is apart: a turn that runs need not have room for it.
    let idle = || Box::pin(frame.activity.idle());
    let halted = async {
        steps.halted.wait().await;
        match steps.halted.take() {
            Some(Halted::Halt(halt)) => Err(halt),
            Some(Halted::Stopped) | None => {
                idle().await;
                Ok(Conducted::Stopped)
            }
        }
    };
    // Where the code waits for something that is no step, it is between two of them.
    let between = async {
        steps.stop.boundary.cancelled().await;
        idle().await;
    };
    tokio::select! {
        biased;
        halted = halted => halted,
        () = steps.stop.now.cancelled() => Ok(Conducted::Stopped),
        ended = conduct(&frame) => Ok(Conducted::Ended(match ended {
            Ok(answer) => answer,
            Err(Diverged(failure)) => Err(failure),
        })),
        () = between => Ok(Conducted::Stopped),
    }
}

/// The code of an agent has ended without a step that is recorded.
pub(super) struct Diverged(Failure);

impl From<Diverged> for Interrupt {
    fn from(Diverged(failure): Diverged) -> Self {
        Self::Turn(failure)
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
///
/// # Errors
/// The code has ended without a step that is recorded: the turn fails, whatever its caller makes of it.
pub(super) async fn conduct(frame: &Arc<Frame>) -> Result<Result<String, Failure>, Diverged> {
    let _closing = Closing(frame);
    let context = AgentContext::new(Arc::new(Scope::new(Arc::clone(frame), None)));
    let code = frame.watch(AssertUnwindSafe(frame.bound.code.run(&context)).catch_unwind());
    let failed = async {
        frame.failed.wait().await;
        // Rare, as in `overdue`.
        Box::pin(frame.activity.idle_or_left()).await;
    };
    let ended = tokio::select! {
        biased;
        () = failed => None,
        ended = code => Some(ended),
        () = frame.overdue() => None,
    };
    if frame.steps.stop.now.is_cancelled() {
        // It has ended because it was told that nobody waits: no answer. The turn hears of the stop.
        return std::future::pending().await;
    }
    // Whatever the code has made of it.
    if let Some(failure) = frame.failed.take() {
        return Ok(Err(failure));
    }
    Ok(match ended {
        None => Err(Failure::new(code::CANCELLED, "the agent was stopped")),
        Some(Err(_)) => {
            let message = format!("the code of agent {:?} failed unexpectedly (it panicked)", frame.name());
            Err(Failure::new(code::AGENT_PANICKED, message))
        }
        Some(Ok(answer)) => match frame.left_over() {
            Some(position) => {
                let how = "a step is recorded there, and the agent's code ended without it; its steps differ from those \
                           that it made before";
                return Err(Diverged(changed(&position, how)));
            }
            None => answer.map_err(crate::agent::AgentError::into_failure),
        },
    })
}

impl Frame {
    /// Its time is over, or the turn is cancelled, and its code waits for something that is no step; a step that begins
    /// finds out itself. What is recorded is read back first, whatever the time is, for as long as the turn may take
    /// again: code that no longer comes to it must not wait for ever.
    async fn overdue(&self) {
        let cancel = &self.steps.cancel;
        loop {
            tokio::select! {
                () = cancel.cancelled(), if self.caller.is_none() => {}
                () = self.time_is_over() => {}
            }
            Box::pin(async {
                let most = tokio::time::sleep(self.bound.max_duration);
                tokio::select! {
                    () = self.read_back() => {}
                    () = cancel.cancelled() => self.activity.idle_or_left().await,
                    () = most => {}
                }
            })
            .await;
            match self.cut_short() {
                Some(interrupt) => self.interrupt(interrupt),
                // The clock was set back.
                None if !cancel.is_cancelled() => continue,
                None => {}
            }
            return std::future::pending().await;
        }
    }

    /// Waits until nothing runs, and nothing is recorded that its code has not come to.
    async fn read_back(&self) {
        loop {
            self.activity.idle_or_left().await;
            if self.left_over().is_none() {
                return;
            }
            self.activity.busy().await;
        }
    }

    /// A recorded step of the agent's that its code has not come to.
    fn left_over(&self) -> Option<Position> {
        let parent = self.position.as_ref().map(Position::as_str);
        self.steps.left_over(parent)
    }
}
