//! `Scope`: where steps stand, whose they are, and what ends them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::activity::{Active, Activity, Signal};
use super::{Halted, Hold, Interrupt, Steps};
use crate::record::{EventType, StepEvent};
use crate::tool::Registered;
use crate::turn::{Counters, Definition, Failure, Ledger, Message, Overdrawn, Position, Used, code};
use crate::worker::bind::BoundAgent;

/// An agent that runs: the turn's own, or one that was called.
pub(super) struct Frame {
    pub(super) steps: Arc<Steps>,
    pub(super) bound: Arc<BoundAgent>,
    /// What its model is offered.
    pub(super) tools: Vec<Callee>,
    pub(super) input: Vec<Message>,
    pub(super) metadata: Arc<BTreeMap<String, String>>,
    /// Under which its steps stand; none: directly in the turn.
    pub(super) position: Option<Position>,
    /// When its time is over, in milliseconds since 1970 UTC, and why.
    pub(super) limit: Option<(i64, Failure)>,
    pub(super) account: usize,
    /// Whether the call may begin again in this run: it has an id, or is inside of one that has.
    pub(super) again: bool,
    /// Its code has waited for something that is no step: in which order its branches go on is chance from then on.
    pub(super) strayed: AtomicBool,
    pub(super) depth: usize,
    pub(super) caller: Option<Arc<Frame>>,
    pub(super) activity: Arc<Activity>,
    /// It is over: nothing that it has left behind goes on.
    pub(super) closed: CancellationToken,
    /// Why it fails, where a step says so.
    pub(super) failed: Signal<Failure>,
    /// What its tools and its code are told when their results are no longer wanted.
    pub(super) cancelled: CancellationToken,
}

/// What a call can call.
#[derive(Clone)]
pub(super) enum Callee {
    Tool(Arc<Registered>),
    Agent(Arc<BoundAgent>),
}

impl Callee {
    pub(super) fn definition(&self) -> &Arc<Definition> {
        match self {
            Self::Tool(tool) => &tool.definition,
            Self::Agent(agent) => &agent.definition,
        }
    }
}

impl Frame {
    pub(super) fn name(&self) -> &str {
        &self.bound.name
    }

    pub(super) fn callee(&self, name: &str) -> Option<&Callee> {
        self.tools.iter().find(|callee| callee.definition().name == name)
    }

    /// It is over.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.cancelled.cancel();
    }

    /// This one and those that have called it.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |frame| frame.caller.as_deref())
    }

    /// Why no step may begin that is not recorded, though nobody else is to go on with the turn.
    pub(super) fn cut_short(&self) -> Option<Interrupt> {
        let steps = &self.steps;
        if steps.stop.now.is_cancelled() {
            return None;
        }
        if steps.cancel.is_cancelled() {
            return Some(Interrupt::Turn(Failure::new(code::CANCELLED, "the turn was cancelled")));
        }
        let now = (steps.shared.clock)();
        self.chain().find_map(|frame| {
            let (_, failure) = frame.limit.as_ref().filter(|(at, _)| *at <= now)?;
            Some(Interrupt::Agent(Overdrawn { account: frame.account, failure: failure.clone() }))
        })
    }

    /// Waits until its own time is over, by the wall clock, which may be set meanwhile.
    pub(super) async fn time_is_over(&self) {
        let Some((at, _)) = self.limit else {
            return std::future::pending().await;
        };
        while let Ok(left @ 1..) = u64::try_from(at.saturating_sub((self.steps.shared.clock)())) {
            tokio::time::sleep(Duration::from_millis(left)).await;
        }
    }

    /// Waits until its time, or that of any that has called it, is over, or the turn is cancelled or given up.
    pub(super) async fn is_cut_short(&self) -> Interrupt {
        loop {
            if let Some(interrupt) = self.cut_short() {
                return interrupt;
            }
            if self.steps.stop.now.is_cancelled() {
                return Interrupt::Halted(Halted::Stopped);
            }
            let limited = self.chain().filter(|frame| frame.limit.is_some());
            let first = limited.min_by_key(|frame| frame.limit.as_ref().map(|(at, _)| *at));
            let over = async {
                match first {
                    Some(frame) => frame.time_is_over().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.steps.cancel.cancelled() => {}
                () = over => {}
            }
        }
    }

    /// Polls its code. Where that waits and no step runs, it waits for something that is no step.
    pub(super) fn watch<F: Future>(&self, code: F) -> impl Future<Output = F::Output> {
        let mut code = Box::pin(code);
        std::future::poll_fn(move |context| {
            let polled = code.as_mut().poll(context);
            if polled.is_pending() && !self.activity.is_busy() {
                self.strayed.store(true, Ordering::SeqCst);
            }
            polled
        })
    }

    /// Ends what a step has said the end of.
    pub(super) fn interrupt(&self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Over => {}
            Interrupt::Halted(why) => self.steps.halted.say(why),
            Interrupt::Turn(failure) => self.chain().last().unwrap_or(self).failed.say(failure),
            Interrupt::Agent(Overdrawn { account, failure }) => {
                let owner = self.chain().find(|frame| frame.account == account);
                owner.unwrap_or(self).failed.say(failure);
            }
        }
    }
}

/// A call of a tool that runs: what the tool calls stands inside it.
pub(super) struct Around {
    pub(super) position: Position,
    pub(super) active: Arc<Active>,
    /// The one that it is inside of itself.
    pub(super) around: Option<Arc<Around>>,
    pub(super) depth: usize,
    /// It is over.
    pub(super) closed: CancellationToken,
    /// A step of it has ended the turn, or an agent: whatever the tool makes of that does not count.
    ended: AtomicBool,
    /// It has made calls of its own.
    called: AtomicBool,
}

impl Around {
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |around| around.around.as_deref())
    }

    /// The account of the calls inside it; `outer` is that of its agent.
    fn account(&self, outer: usize, ledger: &mut Ledger) -> usize {
        let caller = self.around.as_ref().map_or(outer, |around| around.account(outer, ledger));
        ledger.open(caller, &self.position)
    }

    /// Whether it has made calls of its own.
    pub(super) fn has_called(&self) -> bool {
        self.called.load(Ordering::SeqCst)
    }

    /// Whether a step of it has ended the turn, or an agent.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

tokio::task_local! {
    /// Around the code of a step of an agent's own.
    pub(super) static INSIDE: Arc<Active>;
}

/// The code of an agent, or one attempt of a tool: where its steps stand. Cheap to clone.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) frame: Arc<Frame>,
    /// The call whose code it is, where it is a tool's.
    pub(super) around: Option<Arc<Around>>,
    counters: Arc<Mutex<Counters>>,
    /// No other attempt has it.
    pub(super) attempt: u64,
}

impl Scope {
    pub(super) fn new(frame: Arc<Frame>, around: Option<Arc<Around>>) -> Self {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        Self { frame, around, counters: Arc::default(), attempt }
    }

    /// The call of a tool at this position, which runs from now on.
    pub(super) fn around(&self, position: &Position, active: &Arc<Active>) -> Arc<Around> {
        Arc::new(Around {
            position: position.clone(),
            active: Arc::clone(active),
            around: self.around.clone(),
            depth: self.depth() + 1,
            closed: self.closed().child_token(),
            ended: AtomicBool::new(false),
            called: AtomicBool::new(false),
        })
    }

    pub(super) fn steps(&self) -> &Arc<Steps> {
        &self.frame.steps
    }

    pub(super) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls and agents it stands inside of.
    pub(super) fn depth(&self) -> usize {
        self.around.as_ref().map_or(self.frame.depth, |around| around.depth)
    }

    /// Where a step of it stands in the turn.
    pub(super) fn at(&self, position: &Position) -> Position {
        let parent = self.around.as_ref().map(|around| &around.position).or(self.frame.position.as_ref());
        parent.map_or_else(|| position.clone(), |parent| parent.child(position))
    }

    pub(super) fn closed(&self) -> &CancellationToken {
        self.around.as_ref().map_or(&self.frame.closed, |around| &around.closed)
    }

    /// The account that its steps are counted on.
    pub(super) fn account(&self, ledger: &mut Ledger) -> usize {
        let own = self.frame.account;
        self.around.as_ref().map_or(own, |around| around.account(own, ledger))
    }

    /// Whether a step of it may begin again in this run, under an id or not: it is a tool's, which is tried again, or that
    /// of an agent whose call may begin again.
    pub(super) fn keeps(&self) -> bool {
        self.around.is_some() || self.frame.again
    }

    /// Whether chance may have a part in which of the code's branches begins a step now: what it is made from must not
    /// be taken for another's.
    pub(super) fn is_unsettled(&self) -> bool {
        self.around.is_some() || self.frame.strayed.load(Ordering::SeqCst) || self.frame.activity.is_busy()
    }

    /// Holds what a step may use, until the hold is dropped.
    pub(super) fn hold(&self, ledger: &mut Ledger, account: usize, held: Used) -> Hold {
        ledger.hold(account, held);
        Hold { steps: Arc::clone(self.steps()), account, held, closed: self.closed().clone() }
    }

    pub(super) fn event(&self, kind: EventType, position: &Position) -> Box<StepEvent> {
        self.steps().event(kind, self.frame.name(), position)
    }

    /// A step that is not recorded is about to begin.
    ///
    /// # Errors
    /// It must not.
    pub(super) fn may_begin(&self) -> Result<(), Interrupt> {
        self.goes_on()?;
        // A tool that runs goes on, and so does what it calls.
        if self.around.is_none() {
            self.frame.cut_short().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// A step is about to be looked at, recorded or not.
    ///
    /// # Errors
    /// The turn is stopped, or its end is decided.
    pub(super) fn goes_on(&self) -> Result<(), Interrupt> {
        if self.around.is_none() && self.steps().stop.boundary.is_cancelled() {
            return Err(Interrupt::Halted(Halted::Stopped));
        }
        if let Some(around) = &self.around {
            around.called.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether the end of it, or of what it is inside of, is decided.
    pub(super) fn is_decided(&self) -> bool {
        self.steps().halted.is_said() || self.frame.chain().any(|frame| frame.failed.is_said())
    }

    /// The result of a step; one that ends the turn, or the agent, does not return.
    ///
    /// # Errors
    /// What the code that has made it may see, and that the turn is over: it has outlived it.
    pub(super) async fn step<T>(
        &self,
        step: Pin<Box<impl Future<Output = Result<Result<T, Failure>, Interrupt>>>>,
    ) -> Result<T, Failure> {
        let step = async {
            if let Ok(outer) = INSIDE.try_with(Arc::clone) {
                // Whoever waits until nothing runs need not wait for the step that this one is inside of.
                outer.give_up();
                let message =
                    "a step's own code has begun a step; it would be missing once the outer one is recorded";
                let nested = Failure::new(code::NESTED_STEP, message);
                self.frame.interrupt(Interrupt::Turn(nested));
                return None;
            }
            if self.is_decided() {
                return None;
            }
            match step.await {
                Ok(result) => Some(result),
                Err(interrupt) => {
                    self.frame.interrupt(interrupt);
                    None
                }
            }
        };
        let over = self.closed();
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            result = step => match result {
                Some(result) => return result,
                None => {
                    // Whoever waits until nothing runs need not wait for the calls that this one is inside of.
                    for around in self.around.iter().flat_map(|around| around.chain()) {
                        around.ended.store(true, Ordering::SeqCst);
                        around.active.give_up();
                    }
                    over.cancelled().await;
                }
            },
        }
        Err(Failure::new(code::CANCELLED, "the turn, or the call whose step this is, is over"))
    }
}
