//! A turn in the middle: what is left of its log, and what must not go on.

use super::*;

/// A turn in the middle.
pub(super) struct Running<'a> {
    pub(super) agent: &'a BoundAgent,
    pub(super) tools: Vec<Arc<Registered>>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) engine: Engine,
    pub(super) log: TurnLog,
    pub(super) stop: &'a Stop,
    pub(super) cancel: cancels::Running,
    /// When its time is over, in milliseconds since 1970 UTC, and why.
    pub(super) limit: Option<(i64, Failure)>,
    pub(super) clock: fn() -> i64,
}

impl Running<'_> {
    /// Why the turn must not go on, though nobody else is to go on with it.
    pub(super) fn cut_short(&self) -> Option<Failure> {
        if self.stop.now.is_cancelled() {
            return None;
        }
        if self.cancel.token().is_cancelled() {
            return Some(Failure::new(code::CANCELLED, "the turn was cancelled"));
        }
        let over = self.limit.as_ref().filter(|(at, _)| *at <= (self.clock)());
        over.map(|(_, failure)| failure.clone())
    }

    /// Why the model is not asked.
    pub(super) fn out_of_budget(&self, next: &Next) -> Option<Failure> {
        matches!(next, Next::Model { .. }).then(|| self.engine.forbids_model()).flatten()
    }

    /// Whether nothing of it would run.
    pub(super) fn is_recorded(&self, next: &Next) -> bool {
        let done = |at: &Position| matches!(self.log.steps.get(at), Some(Recorded::Done { .. }));
        match next {
            Next::Model { position, .. } => done(position),
            Next::Calls(calls) => calls.iter().all(|call| done(&call.position)),
            Next::End(_) => true,
        }
    }

    /// Whether a call of the reply that comes next has begun.
    pub(super) fn has_begun(&self, reply: &Reply) -> bool {
        let number = self.engine.used().model_calls;
        let begun = |index| self.log.steps.contains_key(&Position::call(number, index));
        (0..reply.calls.len()).any(begun)
    }

    /// What is recorded of calls that are not gone on with was paid for.
    pub(super) fn pay_for(&mut self, next: &Next) {
        let Next::Calls(calls) = next else { return };
        for call in calls {
            if let Some(Recorded::Done { content: Content::Result(_, cost), .. }) =
                self.log.steps.get(&call.position)
            {
                self.engine.pay(*cost);
            }
        }
    }

    /// By the wall clock, which may be set while this waits.
    pub(super) async fn time_is_over(&self) {
        let Some((at, _)) = self.limit else {
            return std::future::pending().await;
        };
        while let Ok(left @ 1..) = u64::try_from(at.saturating_sub((self.clock)())) {
            tokio::time::sleep(Duration::from_millis(left)).await;
        }
    }
}
