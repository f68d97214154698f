//! What runs now, so that nothing is dropped in the middle.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a step without a limit of its own may take, where its agent has ended beside it.
pub(super) const UNLIMITED: Duration = Duration::from_secs(60);
/// The longest that a step is waited for, where its agent has ended beside it.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// What is added to the limits of steps, for what is written before and after.
const GRACE: Duration = Duration::from_secs(5);

/// Something that is said once.
pub(super) struct Signal<T> {
    what: Mutex<Option<T>>,
    said: AtomicBool,
    heard: Notify,
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self { what: Mutex::new(None), said: AtomicBool::new(false), heard: Notify::new() }
    }
}

impl<T> Signal<T> {
    /// Says it; what was said first stays.
    pub(super) fn say(&self, what: T) {
        let mut first = self.what.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_said() {
            *first = Some(what);
            self.said.store(true, Ordering::SeqCst);
            self.heard.notify_waiters();
        }
    }

    pub(super) fn is_said(&self) -> bool {
        self.said.load(Ordering::SeqCst)
    }

    pub(super) async fn wait(&self) {
        until(&self.heard, || self.is_said()).await;
    }

    /// What was said; to the first who asks.
    pub(super) fn take(&self) -> Option<T> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Waits until something holds, which whoever changes it tells all waiters of.
async fn until(changed: &Notify, holds: impl Fn() -> bool) {
    loop {
        // It hears of every change from here on, though it is not polled yet.
        let change = changed.notified();
        if holds() {
            return;
        }
        change.await;
    }
}

/// How many steps of an agent, and of those that it has called, run now.
pub(super) struct Activity {
    count: AtomicUsize,
    changed: Notify,
    /// When everything that has begun so far must have ended, if it is polled.
    latest: Mutex<Instant>,
    caller: Option<Arc<Activity>>,
}

impl Activity {
    pub(super) fn new(caller: Option<Arc<Activity>>) -> Arc<Self> {
        let latest = Mutex::new(Instant::now());
        Arc::new(Self { count: AtomicUsize::new(0), changed: Notify::new(), latest, caller })
    }

    /// A step runs, until the guard is dropped; it takes no longer than this.
    pub(super) fn begin(self: &Arc<Self>, most: Duration) -> Arc<Active> {
        let latest = Instant::now() + most.min(LONGEST);
        let mut next = Some(&**self);
        while let Some(activity) = next {
            let mut last = activity.latest.lock().unwrap_or_else(PoisonError::into_inner);
            *last = latest.max(*last);
            next = activity.caller.as_deref();
        }
        self.change(|count| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        Arc::new(Active { activity: Arc::clone(self), counted: AtomicBool::new(true) })
    }

    fn change(&self, change: impl Fn(&AtomicUsize)) {
        let mut next = Some(self);
        while let Some(activity) = next {
            change(&activity.count);
            activity.changed.notify_waiters();
            next = activity.caller.as_deref();
        }
    }

    /// Waits until something runs.
    pub(super) async fn busy(&self) {
        until(&self.changed, || self.is_busy()).await;
    }

    pub(super) fn is_busy(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Waits until nothing runs, or what runs cannot have been polled: code that has begun a step and does not wait for it
    /// must not keep its turn for ever.
    pub(super) async fn idle_or_left(&self) {
        let begun = Instant::now();
        let over = async {
            loop {
                let latest = *self.latest.lock().unwrap_or_else(PoisonError::into_inner);
                let latest = latest.max(begun + UNLIMITED) + GRACE;
                if latest <= Instant::now() {
                    return;
                }
                tokio::time::sleep_until(latest).await;
            }
        };
        tokio::select! {
            () = self.idle() => {}
            () = over => {}
        }
    }

    /// Waits until nothing runs.
    pub(super) async fn idle(&self) {
        until(&self.changed, || !self.is_busy()).await;
    }
}

/// A step that runs.
pub(super) struct Active {
    activity: Arc<Activity>,
    counted: AtomicBool,
}

impl Active {
    /// It waits for what never comes: nobody need wait for it.
    pub(super) fn give_up(&self) {
        if self.counted.swap(false, Ordering::SeqCst) {
            self.activity.change(|count| {
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.give_up();
    }
}
