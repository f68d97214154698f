//! The steps of a turn: the one primitive that the loop, direct calls, an agent's own steps and sub-agents are made of.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | `Steps`: what all steps of one run of a turn share; how one begins |
//! | `scope` | `Scope`: where steps stand, whose they are, and what ends them |
//! | `activity` | what runs now, so that nothing is dropped in the middle |
//! | `writer` | what is appended, acknowledged and confirmed |
//! | `reply` | the step of a model's reply, and the loop |
//! | `call` | the step of a call: of a reply, or direct |
//! | `tool` | what runs where a call calls a tool |
//! | `record` | the events of calls |
//! | `sub_agent` | the step of a call of another agent |
//! | `own` | the steps of an agent's own |
//! | `host` | what agents and tools see of it |
//! | `conduct` | an agent from its beginning to its end |

mod activity;
mod call;
mod conduct;
mod host;
mod own;
mod record;
mod reply;
mod scope;
mod sub_agent;
mod tool;
mod writer;

pub(super) use conduct::{Conducted, Root};
pub(super) use sub_agent::definition;
pub(super) use writer::{Weight, Writer};

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::driver::{Halt, Shared, Stop, event};
use crate::journal::{self, Content, TurnLog};
use crate::record::{EventType, Identity, StepEvent};
use crate::turn::{
    Call, Decision, Failure, Hash, IdempotencyKey, Ledger, Overdrawn, Position, Recorded, Used, code, decide,
};
use activity::Signal;

/// How many calls and agents may stand inside one another.
const MAX_DEPTH: usize = 8;

/// What all steps of one run of a turn share.
pub(super) struct Steps {
    pub(super) shared: Arc<Shared>,
    pub(super) identity: Identity,
    pub(super) writer: Arc<Writer>,
    pub(super) stop: Stop,
    /// Cancelled when the turn is, or when it is given up.
    pub(super) cancel: CancellationToken,
    log: Mutex<Box<TurnLog>>,
    /// What this run has come to, where the same step may come again.
    seen: Mutex<HashMap<Position, (Recorded<Content>, Again)>>,
    ledger: Mutex<Ledger>,
    /// The calls that may come again and are counted.
    counted: Mutex<HashSet<Position>>,
    /// The direct calls and steps that run, by position, and for which attempt of the code that makes them.
    running: Mutex<HashMap<Position, u64>>,
    /// One of them has ended.
    ended: Notify,
    /// The turn goes on elsewhere, or nobody can know.
    halted: Signal<Halted>,
}

/// Why a turn does not go on here.
#[derive(Debug)]
enum Halted {
    /// It was stopped at a step boundary.
    Stopped,
    Halt(Halt),
}

/// Why a step does not return.
#[derive(Debug)]
enum Interrupt {
    Halted(Halted),
    /// The turn fails.
    Turn(Failure),
    /// The agent whose account this is fails.
    Agent(Overdrawn),
    /// What the step is inside of is over, or its end is decided.
    Over,
}

impl From<Halt> for Interrupt {
    fn from(halt: Halt) -> Self {
        Self::Halted(Halted::Halt(halt))
    }
}

impl From<crate::journal::Error> for Interrupt {
    fn from(error: crate::journal::Error) -> Self {
        Halt::from(error).into()
    }
}

impl Steps {
    pub(super) fn new(
        shared: Arc<Shared>,
        identity: Identity,
        writer: Arc<Writer>,
        stop: Stop,
        cancel: CancellationToken,
        log: Box<TurnLog>,
        mut ledger: Ledger,
    ) -> Arc<Self> {
        count_recorded(&log, &mut ledger);
        Arc::new(Self {
            shared,
            identity,
            writer,
            stop,
            cancel,
            log: Mutex::new(log),
            seen: Mutex::default(),
            ledger: Mutex::new(ledger),
            counted: Mutex::default(),
            running: Mutex::default(),
            ended: Notify::new(),
            halted: Signal::default(),
        })
    }

    fn log(&self) -> MutexGuard<'_, Box<TurnLog>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was used so far.
    pub(super) fn used(&self) -> Used {
        self.ledger().used(0)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Position, (Recorded<Content>, Again)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is recorded at a position, and what to do about it. With `keep` it stays: the same step may come again.
    fn recall(&self, position: &Position, input: &Hash, keep: bool) -> Decision<Content> {
        let mut log = self.log();
        if !keep {
            return decide(log.steps.remove(position), input);
        }
        let mut seen = self.seen();
        if let Some((record, _)) = seen.get(position) {
            return decide(Some(record.clone()), input);
        }
        let record = log.steps.remove(position);
        if let Some(record) = &record {
            seen.insert(position.clone(), (record.clone(), called_with(&log, position)));
        }
        decide(record, input)
    }

    /// What is now recorded at a position, where the same step may come again.
    fn remember(&self, position: &Position, record: Recorded<Content>, with: Again) {
        self.seen().insert(position.clone(), (record, with));
    }

    /// Whether the call at a position is to be counted: it is not recorded, and with `keep` it has not come before.
    fn is_new(&self, position: &Position, keep: bool) -> bool {
        if self.has_begun(position) {
            return false;
        }
        !keep || !(self.counted().contains(position) || self.seen().contains_key(position))
    }

    fn counted(&self) -> MutexGuard<'_, HashSet<Position>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the arguments of the call that is recorded at a position.
    fn called_with(&self, position: &Position) -> Again {
        let seen = self.seen().get(position).map(|(_, with)| with.clone());
        seen.unwrap_or_else(|| called_with(&self.log(), position))
    }

    /// A step that is recorded directly under a position, or directly in the turn, and that this run has not come to.
    fn left_over(&self, parent: Option<&str>) -> Option<Position> {
        let log = self.log();
        let done = log.steps.iter().filter(|(_, record)| matches!(record, Recorded::Done { .. }));
        done.map(|(position, _)| position).filter(|position| position.parent() == parent).min().cloned()
    }

    /// When a call began that is recorded without a result, in milliseconds since 1970 UTC.
    fn began_at(&self, position: &Position) -> Option<i64> {
        self.log().began_at.get(position).copied()
    }

    fn has_begun(&self, position: &Position) -> bool {
        self.log().steps.contains_key(position)
    }

    /// An event of this agent's at a position.
    fn event(&self, kind: EventType, agent: &str, position: &Position) -> Box<StepEvent> {
        let mut event = event(kind, &self.identity, Some(agent));
        event.idempotency_key = Some(self.key(position));
        event.position = Some(position.clone());
        event
    }

    fn key(&self, position: &Position) -> IdempotencyKey {
        IdempotencyKey::new(&self.identity.session, &self.identity.turn, position)
    }

    /// Takes a position for a step that may be begun twice. What an earlier attempt of the code still runs there is
    /// waited for.
    ///
    /// # Errors
    /// The same attempt runs one there already.
    async fn hold(self: &Arc<Self>, position: &Position, attempt: u64) -> Result<Held, Interrupt> {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Before the look: an end between the two would be missed.
            ended.as_mut().enable();
            {
                let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                match running.get(position) {
                    None => {
                        running.insert(position.clone(), attempt);
                        return Ok(Held { steps: Arc::clone(self), position: position.clone() });
                    }
                    Some(other) if *other == attempt => {
                        let message = format!(
                            "position {position}: it is begun while it runs; calls that run together need different ids"
                        );
                        return Err(Interrupt::Turn(Failure::new(code::CONCURRENT_CALL_ID, message)));
                    }
                    Some(_) => {}
                }
            }
            ended.await;
        }
    }
}

/// Counts everything that is recorded, whether or not the code comes to it: a call's result says what was used inside it.
fn count_recorded(log: &TurnLog, ledger: &mut Ledger) {
    let is_done = |position: &Position| matches!(log.steps.get(position), Some(Recorded::Done { .. }));
    for (position, record) in &log.steps {
        if position.ancestors().any(|call| is_done(&call)) {
            continue;
        }
        let mut used = match record {
            Recorded::Done { content: Content::Reply(Ok(reply)), .. } => {
                Used::reply(reply.usage).at(reply.cost())
            }
            Recorded::Done { content: Content::Reply(Err(_)), .. } => Used::default(),
            Recorded::Done { content: Content::Result(_, used), .. } => *used,
            Recorded::Started { .. } => Used::default(),
        };
        let is_reply = matches!(record, Recorded::Done { content: Content::Reply(_), .. });
        if !is_reply && !position.is_own_step() {
            used += Used::calls(1);
        }
        ledger.count_recorded(position, used);
    }
}

/// What is known of the arguments of a recorded call.
#[derive(Debug, Clone, Default)]
struct Again {
    hash: Option<Hash>,
    /// The beginning of them, for a person.
    shown: Option<String>,
}

impl Again {
    fn of(call: &Call) -> Self {
        Self { hash: call.arguments_hash(), shown: Some(journal::shown(call.arguments())) }
    }
}

fn called_with(log: &TurnLog, position: &Position) -> Again {
    Again { hash: log.arguments.get(position).cloned(), shown: log.shown.get(position).cloned() }
}

/// What a step that runs may use.
struct Hold {
    steps: Arc<Steps>,
    account: usize,
    held: Used,
    /// Whether the code whose step it is is over: what has been used inside it is recorded without this.
    closed: CancellationToken,
}

impl Hold {
    /// What is held of calls is used: they are on the log from now on. False: what they are inside of is over.
    fn count_calls(&mut self) -> bool {
        let mut ledger = self.steps.ledger();
        let calls = Used::calls(std::mem::take(&mut self.held.tool_calls));
        ledger.release(self.account, calls);
        let open = !self.closed.is_cancelled();
        if open {
            ledger.add(self.account, calls);
        }
        open
    }

    /// The step has used so much.
    fn spend(mut self, used: Used) {
        let mut ledger = self.steps.ledger();
        ledger.release(self.account, std::mem::take(&mut self.held));
        if !self.closed.is_cancelled() {
            ledger.add(self.account, used);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.held != Used::default() {
            self.steps.ledger().release(self.account, self.held);
        }
    }
}

/// A position that is held by a step that runs.
struct Held {
    steps: Arc<Steps>,
    position: Position,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.steps.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.position);
        self.steps.ended.notify_waiters();
    }
}

/// What is told of a record that a rerun does not come to again.
fn changed(position: &Position, how: &str) -> Failure {
    Failure::new(code::REPLAY_INPUT_CHANGED, format!("position {position}: {how}"))
}
