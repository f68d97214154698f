//! What runs now, so that nothing is dropped in the middle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a step without a limit of its own may take, where its agent has ended beside it.
pub(super) const UNLIMITED: Duration = Duration::from_secs(60);
/// The longest that a step is waited for, where its agent has ended beside it.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// What is added to the limits of steps, for what is written before and after.
const GRACE: Duration = Duration::from_secs(5);

/// Something that is said once.
pub(super) struct Signal<T> {
    said: Mutex<Option<T>>,
    token: CancellationToken,
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self { said: Mutex::new(None), token: CancellationToken::new() }
    }
}

impl<T> Signal<T> {
    /// Says it; what was said first stays.
    pub(super) fn say(&self, what: T) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.token.is_cancelled() {
            *said = Some(what);
            self.token.cancel();
        }
    }

    pub(super) fn is_said(&self) -> bool {
        self.token.is_cancelled()
    }

    pub(super) async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// What was said; to the first who asks.
    pub(super) fn take(&self) -> Option<T> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How many steps of an agent, and of those that it has called, run now.
pub(super) struct Activity {
    count: watch::Sender<usize>,
    /// When everything that has begun so far must have ended, if it is polled.
    latest: Mutex<Instant>,
    caller: Option<Arc<Activity>>,
}

impl Activity {
    pub(super) fn new(caller: Option<Arc<Activity>>) -> Arc<Self> {
        Arc::new(Self { count: watch::Sender::new(0), latest: Mutex::new(Instant::now()), caller })
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
        self.add(1);
        Arc::new(Active { activity: Arc::clone(self), counted: AtomicBool::new(true) })
    }

    fn add(&self, change: isize) {
        let mut next = Some(self);
        while let Some(activity) = next {
            activity.count.send_modify(|count| *count = count.saturating_add_signed(change));
            next = activity.caller.as_deref();
        }
    }

    /// Waits until something runs.
    pub(super) async fn busy(&self) {
        let _ = self.count.subscribe().wait_for(|count| *count > 0).await;
    }

    pub(super) fn is_busy(&self) -> bool {
        *self.count.borrow() > 0
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
        // The sender is ours: the channel is not closed.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
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
            self.activity.add(-1);
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.give_up();
    }
}
