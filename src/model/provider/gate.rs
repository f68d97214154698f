//! How much a provider is asked at one time, by all turns of a worker together.
//!
//! As a rule there is no bound. Once the provider has said that it is too much, requests wait for as long as it asks, and
//! then for each other: half as many at one time, and one more for each round of answers, until it has said nothing for
//! a minute. Whoever cannot wait so long is told at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// One provider's gate. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    inside: u32,
    /// How many may be inside; none: any number.
    most: Option<f64>,
    /// When somebody was last told that it is too much.
    told: Option<Instant>,
    /// Until when nobody goes in.
    closed_until: Option<Instant>,
}

/// Who has it is inside.
#[derive(Debug)]
pub(super) struct Inside(Gate);

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another request may be made, but no longer than until then. Cancel safe.
    ///
    /// # Errors
    /// It would be longer; how long the provider is known to ask for, where it does.
    pub(super) async fn enter(&self, patience: Instant) -> Result<Inside, Option<Duration>> {
        match tokio::time::timeout_at(patience, self.go_in(patience)).await {
            Ok(inside) => inside.map_err(Some),
            Err(_) => Err(None),
        }
    }

    async fn go_in(&self, patience: Instant) -> Result<Inside, Duration> {
        loop {
            let left = self.0.left.notified();
            tokio::pin!(left);
            // Before the look: who leaves between the two would be missed.
            left.as_mut().enable();
            let until = {
                let (mut state, now) = (self.state(), Instant::now());
                state.closed_until.take_if(|until| *until <= now);
                if state.told.is_some_and(|told| now.duration_since(told) >= QUIET) {
                    (state.told, state.most) = (None, None);
                }
                if state.closed_until.is_none()
                    && state.most.is_none_or(|most| f64::from(state.inside) < most)
                {
                    state.inside += 1;
                    return Ok(Inside(self.clone()));
                }
                if let Some(until) = state.closed_until.filter(|until| *until > patience) {
                    return Err(until.duration_since(now));
                }
                state.closed_until
            };
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => left.await,
            }
        }
    }

    /// Whether nobody has said that it is too much.
    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        self.state().closed_until.is_none()
    }

    /// How many may be inside now, where that is bounded.
    #[cfg(test)]
    fn most(&self) -> Option<f64> {
        self.state().most
    }
}

impl Inside {
    /// It was too much: nobody goes in for so long, and then half as many.
    pub(super) fn too_much(self, pause: Duration) {
        let (mut state, now) = (self.0.state(), Instant::now());
        state.closed_until.take_if(|until| *until <= now);
        // Those that were refused together have said it once.
        if state.closed_until.is_none() {
            state.most = Some((f64::from(state.inside) / 2.0).max(1.0));
        }
        state.told = Some(now);
        state.closed_until = state.closed_until.max(Some(now + pause.min(LONGEST)));
    }

    /// It was answered.
    pub(super) fn answered(self) {
        let mut state = self.0.state();
        if let Some(most) = state.most {
            state.most = Some(most + 1.0 / most);
        }
    }
}

/// Without a word for so long, there is no bound any more.
const QUIET: Duration = Duration::from_secs(60);

/// No word counts for longer.
const LONGEST: Duration = Duration::from_secs(60 * 60);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.0.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, poll};

    use super::*;

    fn patience() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_is_told_holds_for_all() {
        let gate = Gate::default();
        let mut inside = Vec::new();
        for _ in 0..8 {
            inside.push(gate.enter(patience()).now_or_never().unwrap().unwrap());
        }
        inside.pop().unwrap().too_much(Duration::from_secs(3));
        // The others of the same burst say nothing new.
        inside.pop().unwrap().too_much(Duration::from_secs(1));
        assert_eq!(gate.most(), Some(4.0));
        inside.truncate(3);
        let before = Instant::now();
        let next = gate.enter(patience()).await.unwrap();
        assert_eq!(before.elapsed().as_millis() / 100, 30);
        let more = gate.enter(patience());
        tokio::pin!(more);
        assert!(poll!(&mut more).is_pending(), "four are inside");
        next.answered();
        assert_eq!(gate.most(), Some(4.25));
        more.now_or_never().unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_so_after_a_pause_says_something_new() {
        let gate = Gate::default();
        let mut inside = Vec::new();
        for _ in 0..8 {
            inside.push(gate.enter(patience()).await.unwrap());
        }
        inside.pop().unwrap().too_much(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Nobody has gone in since.
        inside.truncate(2);
        inside.pop().unwrap().too_much(Duration::from_secs(1));
        assert_eq!(gate.most(), Some(1.0));
        assert!(!gate.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn at_least_one_goes_in_and_answers_open_it() {
        let gate = Gate::default();
        for _ in 0..5 {
            gate.enter(patience()).await.unwrap().too_much(Duration::from_millis(1));
        }
        assert_eq!(gate.most(), Some(1.0));
        let first = gate.enter(patience()).await.unwrap();
        let second = gate.enter(patience());
        tokio::pin!(second);
        assert!(poll!(&mut second).is_pending());
        first.answered();
        second.await.unwrap().answered();
        assert!(gate.most().unwrap() > 2.0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_wait_is_told_at_once_and_the_bound_does_not_stay() {
        let gate = Gate::default();
        gate.enter(patience()).await.unwrap().too_much(Duration::from_secs(3600));
        let before = Instant::now();
        assert_eq!(gate.enter(patience()).await.unwrap_err(), Some(Duration::from_secs(3600)));
        assert_eq!(before.elapsed(), Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let _all = [gate.enter(patience()).await.unwrap(), gate.enter(patience()).await.unwrap()];
        assert_eq!(gate.most(), None);

        let gate = Gate::default();
        gate.enter(patience()).await.unwrap().too_much(Duration::from_millis(1));
        let _one = gate.enter(patience()).await.unwrap();
        assert_eq!(gate.enter(patience()).await.unwrap_err(), None, "there is no room");
    }
}
