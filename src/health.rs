//! How the worker is, for whoever asks: alive, and ready for work.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A poll thread that has not gone round for this long hangs: its longest calls give up after some seconds.
const POLL_AGE: Duration = Duration::from_secs(60);

/// What is known of a worker. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Health(Arc<State>);

#[derive(Default)]
struct State {
    changing: Mutex<Changing>,
    joined: AtomicBool,
    draining: AtomicBool,
}

#[derive(Default)]
struct Changing {
    polled: Option<Instant>,
    fatal: Option<String>,
    /// Partitions that are ours and not restored.
    restoring: BTreeSet<i32>,
}

impl Health {
    fn changing(&self) -> MutexGuard<'_, Changing> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The poll thread goes round.
    pub(crate) fn polled(&self) {
        self.changing().polled = Some(Instant::now());
    }

    /// How long ago the poll thread went round, once it has begun.
    pub(crate) fn poll_age(&self) -> Option<Duration> {
        self.changing().polled.map(|at| at.elapsed())
    }

    /// The group has given this worker its partitions, be it none.
    pub(crate) fn joined(&self) {
        self.0.joined.store(true, Ordering::Relaxed);
    }

    /// The group goes on without this worker, which will join it again.
    pub(crate) fn left(&self) {
        self.0.joined.store(false, Ordering::Relaxed);
    }

    /// A partition is ours and waits for its restore.
    pub(crate) fn restoring(&self, partition: i32) {
        self.changing().restoring.insert(partition);
    }

    /// A partition is restored, or not ours any more.
    pub(crate) fn settled(&self, partition: i32) {
        self.changing().restoring.remove(&partition);
    }

    /// The worker takes no more work.
    pub(crate) fn draining(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Nothing can go on in this process.
    pub(crate) fn fatal(&self, why: &str) {
        self.changing().fatal.get_or_insert_with(|| why.to_owned());
    }

    /// Whether the process works as it should. A broker that is down changes nothing: a restart mends that least.
    ///
    /// # Errors
    /// Why it must be started again.
    pub(crate) fn alive(&self) -> Result<(), String> {
        let changing = self.changing();
        if let Some(why) = &changing.fatal {
            return Err(format!("a fatal error: {why}"));
        }
        match changing.polled.map(|at| at.elapsed()) {
            Some(age) if age > POLL_AGE => Err(format!("the poll thread hangs since {} s", age.as_secs())),
            _ => Ok(()),
        }
    }

    /// Whether the worker has joined its group and restored its partitions.
    ///
    /// # Errors
    /// What it waits for.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.alive()?;
        if self.0.draining.load(Ordering::Relaxed) {
            return Err("draining".into());
        }
        if !self.0.joined.load(Ordering::Relaxed) {
            return Err("has not joined its group yet".into());
        }
        let restoring = &self.changing().restoring;
        match restoring.is_empty() {
            true => Ok(()),
            false => Err(format!("restores partitions {restoring:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_ready_once_it_has_joined_and_restored_what_it_was_given() {
        let health = Health::default();
        assert_eq!(health.alive(), Ok(()));
        assert!(health.ready().unwrap_err().contains("not joined"));
        health.restoring(3);
        health.joined();
        assert_eq!(health.ready().unwrap_err(), "restores partitions {3}");
        health.settled(3);
        assert_eq!(health.ready(), Ok(()));
        health.draining();
        assert_eq!((health.ready().unwrap_err().as_str(), health.alive()), ("draining", Ok(())));
        health.fatal("a");
        health.fatal("b");
        assert_eq!(health.alive().unwrap_err(), "a fatal error: a");
    }
}
