//! The steps of an agent's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::activity::{Active, UNLIMITED};
use super::scope::{INSIDE, Scope};
use super::{Again, Interrupt, changed};
use crate::agent::{StepContext, StepEffect, StepKind, StepRun};
use crate::journal::Content;
use crate::metrics::metrics;
use crate::record::{EventType, Status, StepEvent};
use crate::tool::{ErrorKind, Output, ToolError};
use crate::turn::{Decision, Failure, Hash, Position, Recorded, Used, code, step_input};
use crate::worker::driver::elapsed_ms;
use crate::worker::outbox::short;

impl Scope {
    /// Where a step of this kind stands, in its agent; none where a step with its id has stood there before.
    pub(super) fn place(&self, kind: &StepKind) -> Option<Position> {
        match kind {
            StepKind::Step(id, _) => self.counters().step(id),
            StepKind::Once(id) => Some(Position::once(id)),
            StepKind::Value(what) => Some(self.counters().value(what)),
        }
    }

    /// A step of the agent's own.
    pub(super) async fn own_step(
        &self,
        kind: StepKind,
        place: Option<Position>,
        unsettled: bool,
        run: StepRun<'_>,
    ) -> Result<Result<Output, Failure>, Interrupt> {
        self.goes_on()?;
        let Some(place) = place else { return Err(Interrupt::Turn(comes_twice(&kind))) };
        let position = self.at(&place);
        let keep = matches!(kind, StepKind::Once(_)) || self.keeps();
        let _held = match keep {
            true => Some(self.steps().hold(&position, self.attempt).await?),
            false => None,
        };
        if self.is_decided() {
            // Meanwhile.
            return Err(Interrupt::Over);
        }
        let input = step_input(&place);
        let attempt = match self.steps().recall(&position, &input, keep) {
            Decision::Run { attempt } => attempt,
            Decision::Return(Content::Result(result, _)) => {
                metrics().steps_replayed.with_label_values(&["step"]).inc();
                // As when it ran: others that were begun beside it begin before it ends.
                let _active = self.frame.activity.begin(Duration::ZERO);
                tokio::task::yield_now().await;
                return Ok(read(result));
            }
            Decision::Return(Content::Reply(_)) => {
                return Err(Interrupt::Turn(changed(&position, "a reply of the model is recorded there")));
            }
            Decision::Changed { recorded } => {
                let how = format!("another step is recorded there (recorded {recorded}, now {input})");
                return Err(Interrupt::Turn(changed(&position, &how)));
            }
        };
        self.may_begin()?;
        let active = self.frame.activity.begin(UNLIMITED);
        let effect = kind.effect();
        self.before_effect(effect != StepEffect::Pure).await?;
        if keep {
            let record = Recorded::Started { input: input.clone(), attempt };
            self.steps().remember(&position, record, Again::default());
        }
        let pinned = unsettled && self.steps().shared.step_boundary_durability;
        let begun =
            Begun { kind: &kind, position: &position, input: &input, attempt, pinned, active: &active };
        let result = self.run_own(begun, run).await?;
        active.give_up();
        if keep {
            let content = Content::Result(result.clone().map(Output::into_json), Used::default());
            let record = Recorded::Done { input, content };
            self.steps().remember(&position, record, Again::default());
        }
        Ok(result)
    }

    async fn run_own(
        &self,
        begun: Begun<'_>,
        run: StepRun<'_>,
    ) -> Result<Result<Output, Failure>, Interrupt> {
        let Begun { kind, position, input, attempt, pinned, active } = begun;
        let (steps, effect) = (self.steps(), kind.effect());
        let mut start = self.event(EventType::Step, position);
        start.input_hash = Some(input.clone());
        start.effect = Some(effect);
        start.started_at_ms = Some((steps.shared.clock)());
        let mut end = start.clone();
        start.attempt = Some(attempt);
        metrics().steps.with_label_values(&["step"]).inc();
        let clock = Instant::now();
        let once = matches!(kind, StepKind::Once(_));
        let result = if once && attempt > 1 {
            let message = format!(
                "the step at {position} had started when its worker died: whether it took effect is unknown, and it \
                 was not run again"
            );
            Err(Failure::new(code::UNKNOWN_OUTCOME, message))
        } else {
            if !matches!(kind, StepKind::Value(_)) {
                self.start(start, once || pinned).await?;
            }
            end.attempts = Some(attempt);
            let context = StepContext {
                key: Arc::new(steps.key(position)),
                attempt,
                external_io_mode: steps.shared.environment.external_io_mode,
            };
            INSIDE.scope(Arc::clone(active), run(context)).await.map_err(|error| failure_of(position, &error))
        };
        let result = result.map_err(|failure| short(&failure));
        end.latency_ms = Some(elapsed_ms(clock));
        fill(&mut end, &result);
        let what = format!("the step at {position}");
        let recorded = self.end(end, result.map(Output::into_json), &what).await?;
        Ok(read(recorded))
    }
}

/// A step that begins.
struct Begun<'a> {
    kind: &'a StepKind,
    position: &'a Position,
    input: &'a Hash,
    attempt: u32,
    /// Whether its start is confirmed before it runs.
    pinned: bool,
    active: &'a Arc<Active>,
}

fn comes_twice(kind: &StepKind) -> Failure {
    let id = match kind {
        StepKind::Step(id, _) | StepKind::Once(id) => id.chars().take(64).collect(),
        StepKind::Value(what) => (*what).to_owned(),
    };
    let message = format!(
        "the step {id:?} comes twice in one turn; give each step an id of its own, or use `once` for what is to be done \
         once"
    );
    Failure::new(code::DUPLICATE_STEP_ID, message)
}

impl StepKind {
    fn effect(&self) -> StepEffect {
        match self {
            Self::Step(_, effect) => *effect,
            Self::Once(_) => StepEffect::Write,
            Self::Value(_) => StepEffect::Pure,
        }
    }
}

fn failure_of(position: &Position, error: &ToolError) -> Failure {
    let code = match error.kind() {
        ErrorKind::Poison => code::POISON,
        ErrorKind::InvalidResult => code::INVALID_RESULT,
        _ => code::STEP_ERROR,
    };
    let text = error.model_message().unwrap_or(error.message());
    let mut failure = Failure::new(code, format!("the step at {position}: {text}"));
    failure.detail = error.model_message().map(|_| error.message().to_owned());
    failure
}

fn fill(event: &mut StepEvent, result: &Result<Output, Failure>) {
    event.status = Some(if result.is_ok() { Status::Ok } else { Status::Error });
    event.output = result.as_ref().ok().and_then(Output::to_raw);
    event.error = result.as_ref().err().cloned();
}

/// What is recorded, as a value again.
pub(super) fn read(recorded: Result<String, Failure>) -> Result<Output, Failure> {
    let json = recorded?;
    Output::from_json(&json).map_err(|error| {
        Failure::new(code::INVALID_RESULT, format!("what is recorded cannot be read as JSON: {error}"))
    })
}
