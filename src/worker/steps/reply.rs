//! The step of a model's reply, and the loop that is made of it and of the calls.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::activity::UNLIMITED;
use super::call::price;
use super::scope::Scope;
use super::{Again, Hold, Interrupt, changed};
use crate::agent::Finished;
use crate::journal::{self, Content};
use crate::metrics::metrics;
use crate::model::{Listener, Request};
use crate::record::{EventType, Status, StepEvent};
use crate::tool::{Decimal, Told};
use crate::turn::{
    Call, CallPlan, Decision, Definition, Engine, Failure, Hash, Message, Next, Outcome, Position, Recorded,
    Reply, Setup, Usage, Used, code,
};
use crate::worker::driver::{Halt, elapsed_ms};
use crate::worker::outbox::short;

/// What is asked of the model.
pub(super) struct Question<'a> {
    /// The number of the reply, from 0.
    pub(super) number: u32,
    pub(super) messages: &'a [Message],
    pub(super) tools: &'a [Arc<Definition>],
    /// The hash of the transcript.
    pub(super) input: Hash,
}

impl Scope {
    /// The loop of model and tools over these messages, after the agent's instructions.
    pub(super) async fn run_loop(&self, input: Vec<Message>) -> Result<Result<Finished, Failure>, Interrupt> {
        let bound = &self.frame.bound;
        let mut engine = Engine::new(Setup {
            system: bound.system.clone(),
            input,
            tools: self.definitions(),
            on_tool_error: bound.on_tool_error,
        });
        let mut holds = Vec::new();
        loop {
            match engine.next() {
                Next::Model { input } => {
                    let number = self.counters().reply();
                    let (messages, tools) = (engine.messages(), engine.tools());
                    let question = Question { number, messages, tools, input };
                    // Apart: a loop whose calls run need not have room for it.
                    match Box::pin(self.reply(question)).await? {
                        Ok(reply) => engine.reply(number, reply),
                        Err(failure) => engine.fail(failure),
                    }
                    if let Next::Calls(calls) = engine.next() {
                        holds = self.admit(number, calls)?;
                    }
                }
                Next::Calls(calls) => {
                    let results = self.calls(calls, std::mem::take(&mut holds)).await?;
                    engine.results(results);
                }
                Next::End(Outcome::Completed { output }) => {
                    let output = output.clone();
                    return Ok(Ok(Finished { output, messages: engine.into_messages() }));
                }
                Next::End(Outcome::Failed(failure)) => return Ok(Err(failure.clone())),
            }
        }
    }

    pub(super) fn definitions(&self) -> Vec<Arc<Definition>> {
        self.frame.tools.iter().map(|callee| Arc::clone(callee.definition())).collect()
    }

    /// Counts the calls of a reply, if they may all be made, and holds what each may cost. Calls that have begun, in this
    /// run or an earlier one, were within the limits then, and whatever the limits are now, what is recorded counts.
    fn admit(&self, number: u32, calls: &[Call]) -> Result<Vec<Hold>, Interrupt> {
        let is_new = |call: &&Call| self.steps().is_new(&self.at(&call.position), self.keeps());
        let new = calls.iter().filter(is_new).count();
        let begun = new < calls.len();
        let count = u32::try_from(new).unwrap_or(u32::MAX);
        let runs = |call: &Call| matches!(call.plan, CallPlan::Run(_));
        let cost =
            |call: &Call| price(self.frame.callee(&call.name).filter(|_| runs(call))).unwrap_or_default();
        let costs: Vec<_> = calls.iter().map(cost).collect();
        let cost = costs.iter().fold(Decimal::ZERO, |sum, cost| sum.saturating_add(*cost));
        let what = format!("reply {}", self.at(&Position::reply(number)));
        let mut ledger = self.steps().ledger();
        let account = self.account(&mut ledger);
        if !begun {
            ledger.check_calls(account, &what, count, cost).map_err(Interrupt::Agent)?;
        }
        ledger.add(account, Used::calls(count));
        if self.keeps() {
            self.steps().counted().extend(calls.iter().map(|call| self.at(&call.position)));
        }
        let hold = |cost| self.hold(&mut ledger, account, Used::cost(cost));
        Ok(costs.into_iter().map(hold).collect())
    }

    /// The step of a model's reply.
    pub(super) async fn reply(&self, question: Question<'_>) -> Result<Result<Reply, Failure>, Interrupt> {
        self.goes_on()?;
        let position = self.at(&Position::reply(question.number));
        let failure = match self.steps().recall(&position, &question.input, self.keeps()) {
            Decision::Return(Content::Reply(reply)) => {
                metrics().steps_replayed.with_label_values(&["model"]).inc();
                if self.keeps() {
                    // Whoever asked for it in this run may not have waited for that.
                    self.before_calls(&reply).await?;
                }
                return Ok(reply);
            }
            Decision::Run { .. } => return self.ask(&position, question).await,
            Decision::Return(Content::Result(..)) => {
                changed(&position, "the result of a call is recorded there")
            }
            Decision::Changed { recorded } => changed(
                &position,
                &format!(
                    "the reply was recorded for another transcript, with the hash {recorded}; it is now {}: the agent's \
                     instructions or an earlier message have changed",
                    question.input
                ),
            ),
        };
        Err(Interrupt::Turn(failure))
    }

    /// Asks the model, and records what it says before anything depends on it. A reply that is on the log without the
    /// results that it was made from does not count (rule 13).
    async fn ask(
        &self,
        position: &Position,
        question: Question<'_>,
    ) -> Result<Result<Reply, Failure>, Interrupt> {
        self.may_begin()?;
        let (steps, frame) = (self.steps(), &self.frame);
        let hold = {
            let mut ledger = steps.ledger();
            let account = self.account(&mut ledger);
            ledger.check_reply(account).map_err(Interrupt::Agent)?;
            self.hold(&mut ledger, account, Used::reply(Usage::default()))
        };
        let _active = frame.activity.begin(UNLIMITED);
        let agent = frame.name();
        let hear = |attempt: u32, text: &str| {
            if let Some(status) = &steps.shared.environment.status {
                let (session, turn, key) =
                    (&steps.identity.session, &steps.identity.turn, steps.key(position));
                status.emit(Told { session, turn, agent, position, key: &key, tool: None, attempt, text });
            }
        };
        let request = Request {
            agent,
            reply: question.number,
            messages: question.messages,
            tools: question.tools,
            metadata: &frame.metadata,
            listener: if frame.bound.stream_text { Listener::new(&hear) } else { Listener::default() },
        };
        let (started_at_ms, clock) = ((steps.shared.clock)(), Instant::now());
        let asked = AssertUnwindSafe(frame.bound.model.complete(request)).catch_unwind();
        let reply = tokio::select! {
            biased;
            reply = asked => reply,
            why = frame.is_cut_short() => {
                measure(agent, clock, "cut_short");
                return Err(why);
            }
        };
        let mut reply = reply.unwrap_or_else(|_| {
            Err(Failure::new(code::MODEL_ERROR, "the model failed unexpectedly (it panicked)"))
        });
        reply = reply.map_err(|failure| short(&failure));
        measure(agent, clock, if reply.is_ok() { "ok" } else { "error" });
        if let Ok(Reply { usage, .. }) = &reply {
            for (direction, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
                metrics().model_tokens.with_label_values(&[agent, direction]).inc_by(tokens);
            }
        }
        let mut event = self.event(EventType::ModelReply, position);
        event.input_hash = Some(question.input.clone());
        event.started_at_ms = Some(started_at_ms);
        event.latency_ms = Some(elapsed_ms(clock));
        fill_reply(&mut event, &reply);
        if !steps.shared.step_boundary_durability {
            // Its tools start without knowing that it counts: at least everything that it was made from is there.
            steps.writer.settle().await?;
        }
        match steps.writer.append_made(&mut event).await {
            Err(Halt::Journal(journal::Error::TooLarge { size, max })) => {
                reply = Err(Failure::new(
                    code::RECORD_TOO_LARGE,
                    format!("the model's reply makes an event of {size} bytes; the events topic takes {max}"),
                ));
                fill_reply(&mut event, &reply);
                steps.writer.append_made(&mut event).await?;
            }
            appended => appended?,
        }
        if let Ok(reply) = &reply {
            hold.spend(Used::reply(reply.usage).at(reply.cost()));
        }
        if self.keeps() {
            // At once: whoever waits for it may be dropped, and ask again.
            let content = Content::Reply(reply.clone());
            let record = Recorded::Done { input: question.input, content };
            steps.remember(position, record, Again::default());
        }
        self.before_calls(&reply).await?;
        Ok(reply)
    }

    /// The tools of a reply start only after it is confirmed (rule 14). What an agent's code makes of a last word waits for it
    /// itself.
    async fn before_calls(&self, reply: &Result<Reply, Failure>) -> Result<(), Halt> {
        let calls = reply.as_ref().is_ok_and(|reply| !reply.calls.is_empty());
        match calls && self.steps().shared.step_boundary_durability {
            true => self.steps().writer.confirm().await,
            false => Ok(()),
        }
    }
}

fn measure(agent: &str, clock: Instant, status: &str) {
    let metrics = metrics();
    metrics.steps.with_label_values(&["model"]).inc();
    metrics.model_calls.with_label_values(&[agent, status]).inc();
    metrics.model_duration.with_label_values(&[agent]).observe(clock.elapsed().as_secs_f64());
}

fn fill_reply(event: &mut StepEvent, reply: &Result<Reply, Failure>) {
    event.status = Some(if reply.is_ok() { Status::Ok } else { Status::Error });
    event.reply = reply.as_ref().ok().cloned();
    event.error = reply.as_ref().err().cloned();
}
