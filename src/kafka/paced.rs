//! Two producers of the same records: one sends at once, the other together what comes within some milliseconds.
//!
//! The fewer requests, the less each record costs the client and the brokers; the longer a record waits for others, the
//! longer its turn takes. A worker with little to do sends at once; one with much to do sends together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rdkafka::error::KafkaError;

use super::producer::{Error, Outgoing, Producer, Written};

/// From how many turns in flight on there is much to do.
const MUCH: usize = 64;

/// How many turns are in flight. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Load(Arc<AtomicUsize>);

impl Load {
    /// So many are in flight from now on.
    pub(crate) fn set(&self, turns: usize) {
        self.0.store(turns, Ordering::Relaxed);
    }

    fn is_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MUCH
    }
}

/// A pair of idempotent producers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Paced {
    at_once: Producer,
    together: Producer,
    load: Load,
}

impl Paced {
    /// Without a second one, the first is used for everything.
    pub(crate) fn new(at_once: Producer, together: Option<Producer>, load: Load) -> Self {
        Self { together: together.unwrap_or_else(|| at_once.clone()), at_once, load }
    }

    /// The one to use now. Only records that go through the same one are written in the order in which they are sent.
    pub(crate) fn now(&self) -> &Producer {
        if self.load.is_much() { &self.together } else { &self.at_once }
    }

    /// Sends a record and waits until it is acknowledged by all replicas in sync.
    pub(crate) async fn send(&self, record: Outgoing<'_>) -> Result<Written, Error> {
        self.now().send(record).await?.wait().await
    }

    /// Why one of them can never send again, if that is so.
    pub(crate) fn fatal(&self) -> Option<String> {
        self.at_once.fatal().or_else(|| self.together.fatal())
    }

    /// Waits until everything that was handed over is acknowledged or has failed. Blocks.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<(), KafkaError> {
        std::thread::scope(|scope| {
            let together = scope.spawn(|| self.together.flush(timeout));
            let at_once = self.at_once.flush(timeout);
            at_once.and(together.join().unwrap_or(Ok(())))
        })
    }
}
