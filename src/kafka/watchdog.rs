//! Ends the process when a call into librdkafka does not come back.
//!
//! Every blocking call has a timeout of its own, which librdkafka has been seen to overrun, for ever in the worst
//! case. A worker that hangs holds its partitions; one that has ended gives them to another, and loses nothing.

use std::collections::BTreeMap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is granted beyond a call's own timeout.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Calls {
    running: Mutex<Running>,
    changed: Condvar,
}

#[derive(Default)]
struct Running {
    next: u64,
    calls: BTreeMap<u64, (Instant, &'static str)>,
}

static CALLS: LazyLock<&'static Calls> = LazyLock::new(|| {
    let calls: &'static Calls = Box::leak(Box::default());
    // Without the thread nothing is watched, and everything works as before.
    let _ = std::thread::Builder::new().name("turnmill-watch".into()).spawn(|| watch(calls));
    calls
});

fn lock(calls: &Calls) -> MutexGuard<'_, Running> {
    calls.running.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(calls: &Calls) {
    let mut running = lock(calls);
    loop {
        let now = Instant::now();
        if let Some((_, what)) = running.calls.values().find(|(deadline, _)| *deadline <= now) {
            tracing::error!(call = what, "a call into librdkafka does not come back: the process ends");
            std::process::abort();
        }
        let next = running.calls.values().map(|(deadline, _)| *deadline).min();
        let wait = next.map_or(Duration::from_secs(3600), |deadline| deadline.saturating_duration_since(now));
        running = calls.changed.wait_timeout(running, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// A call that is watched until this is dropped.
pub(crate) struct Watched(u64);

/// Watches a call whose own timeout is `timeout`.
pub(crate) fn watch_call(what: &'static str, timeout: Duration) -> Watched {
    let mut running = lock(&CALLS);
    running.next += 1;
    let id = running.next;
    running.calls.insert(id, (Instant::now() + timeout + GRACE, what));
    drop(running);
    CALLS.changed.notify_one();
    Watched(id)
}

impl Drop for Watched {
    fn drop(&mut self) {
        lock(&CALLS).calls.remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_watched_while_it_runs() {
        let watched = watch_call("a test", Duration::ZERO);
        let id = watched.0;
        let left =
            |id: u64| lock(&CALLS).calls.get(&id).map(|(at, _)| at.saturating_duration_since(Instant::now()));
        assert!(left(id).is_some_and(|left| left > Duration::from_secs(10) && left <= GRACE));
        drop(watched);
        assert!(left(id).is_none());
    }
}
