//! One record and a log, without a broker: what a supervisor does for a record, and nothing of the rest.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bind::BoundAgent;
use super::cancels::Cancels;
use super::driver::{Done, Halt, Job, Refusal, Shared, Stop, Writers, refuse, run};
use super::outbox::{Outbox, Sink};
use super::switches::Switches;
use crate::config::{self, Topics};
use crate::health::Health;
use crate::journal::{self, End, Log, Member, Restored, TakeOver};
use crate::kafka::consumer::Record;
use crate::kafka::paced::Load;
use crate::kafka::producer::{Error, Outgoing};
use crate::record::{Identity, TurnResult, dead_letter, read_turn};
use crate::tool::{Environment, Registry};

/// A worker for one record at a time, whose log is given to it.
pub(crate) struct Offline(Arc<Shared>);

/// What went out, over all workers.
#[derive(Default)]
pub(crate) struct Sent(Mutex<Out>);

#[derive(Default)]
struct Out {
    results: Vec<TurnResult>,
    /// The codes of dead letters.
    dead_letters: Vec<String>,
}

impl Sent {
    /// The results, in their order.
    pub(crate) fn results(&self) -> Vec<TurnResult> {
        self.lock().results.clone()
    }

    /// The codes of the dead letters, in their order.
    pub(crate) fn dead_letters(&self) -> Vec<String> {
        self.lock().dead_letters.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sink for Sent {
    async fn send(&self, record: Outgoing<'_>) -> Result<(), Error> {
        let mut out = self.lock();
        if record.topic == Topics::default().results {
            out.results.extend(record.value.and_then(|value| serde_json::from_slice(value).ok()));
        } else {
            let code = record.headers.iter().rfind(|(name, _)| name == dead_letter::CODE);
            let code = code.and_then(|(_, value)| value.as_deref()).unwrap_or_default();
            out.dead_letters.push(String::from_utf8_lossy(code).into_owned());
        }
        Ok(())
    }
}

impl Offline {
    /// A worker with these agents and tools.
    pub(crate) fn new(
        agents: HashMap<String, Arc<BoundAgent>>,
        registry: Registry,
        environment: Environment,
        sent: Arc<Sent>,
    ) -> Self {
        let topics = Topics::default();
        Self(Arc::new(Shared {
            agents,
            registry,
            environment,
            outbox: Outbox::new(sent, &topics),
            cancels: Cancels::default(),
            turns_topic: topics.turns,
            health: Health::default(),
            switches: Switches::new(&config::Switches::default()),
            max_redeliveries: config::Worker::default().max_redeliveries.get(),
            step_boundary_durability: true,
            clock: now_ms,
            load: Load::default(),
        }))
    }

    /// Handles the record with this value at this offset, until it is finished.
    ///
    /// # Errors
    /// Something outside the turn failed.
    pub(crate) async fn handle(
        &self,
        log: Arc<dyn Log>,
        offset: i64,
        timestamp: i64,
        value: Vec<u8>,
    ) -> Result<Identity, String> {
        let (identity, turn) = match read_turn(&self.0.turns_topic, 0, offset, None, Some(&value)) {
            Ok((identity, turn)) => (identity, Ok(Box::new(turn))),
            Err(unreadable) => (unreadable.identity.clone(), Err(unreadable)),
        };
        let record = Record {
            partition: 0,
            epoch: 1,
            offset,
            timestamp: Some(timestamp),
            key: None,
            value: Some(value),
            headers: Vec::new(),
        };
        let known = identity.clone();
        let job = Job { record, identity, turn, expired: false };
        let stop = Stop { boundary: CancellationToken::new(), now: CancellationToken::new() };
        match deliver(&self.0, log, 0, job, &stop).await {
            Delivered::Halted(why) => Err(why.to_string()),
            Delivered::Stopped => Err("the turn was stopped".into()),
            Delivered::Skipped | Delivered::Finished(_) => Ok(known),
        }
    }
}

/// Milliseconds since 1970 UTC by the runtime's clock, which stands still where a test pauses it.
pub(crate) fn now_ms() -> i64 {
    static BEGAN: LazyLock<(i64, Instant)> = LazyLock::new(|| (super::driver::now_ms(), Instant::now()));
    let (at, began) = *BEGAN;
    let since = Instant::now().saturating_duration_since(began);
    at.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// What a delivery of a record came to.
#[derive(Debug)]
pub(super) enum Delivered {
    /// Its turn has ended before.
    Skipped,
    /// It was handled to its end: that of its turn, where it was one.
    #[cfg_attr(not(test), expect(dead_code, reason = "for who wants to know"))]
    Finished(Option<End>),
    /// It was stopped at a step boundary.
    Stopped,
    /// Something outside the turn failed.
    Halted(Halt),
}

/// A worker comes up, restores the partition from a log and is given a record.
pub(super) async fn deliver(
    shared: &Arc<Shared>,
    log: Arc<dyn Log>,
    watermark: i64,
    job: Job,
    stop: &Stop,
) -> Delivered {
    let member = Member {
        group: "g".into(),
        turns_topic: shared.turns_topic.clone(),
        name: "w".into(),
        topic_id: "t".into(),
        exactly_once: false,
    };
    let what = TakeOver { partition: 0, watermark: Some(watermark), metadata: String::new() };
    let Restored { journal, mut table, .. } = match journal::restore(log, &member, &what).await {
        Ok(restored) => restored,
        Err(error) => return Delivered::Halted(error.into()),
    };
    let tail = journal.clone();
    let to = Writers { journal, transactions: None };
    // Nobody stops the turn of a worker that has lost the partition: it has to find that out itself.
    let reading = async {
        tail.follow().await;
        std::future::pending().await
    };
    let Identity { session, turn, input } = job.identity.clone();
    let work = async {
        let outcome = match table.ended(&session, &turn) {
            _ if table.is_dead(job.record.offset, &job.identity.input) => return Delivered::Skipped,
            Some(end) if end.input == input => return Delivered::Skipped,
            Some(_) => refuse(shared, to, job, Refusal::Reused, false, stop).await,
            None => run(shared, to, Box::new(job), table.take(&session, &turn), stop).await,
        };
        match outcome {
            Ok(Done::Ended(end, last)) => {
                last.confirmed().await.map_or_else(Delivered::Halted, |()| Delivered::Finished(end))
            }
            Ok(Done::Stopped) => Delivered::Stopped,
            Err(halt) => Delivered::Halted(halt),
        }
    };
    tokio::select! {
        biased;
        delivered = work => delivered,
        delivered = reading => delivered,
    }
}
