//! The consumer-group worker: wires intake, journal, tools and models.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | start and end of a worker |
//! | `bind` | agents bound to tools and models; what is refused |
//! | `supervisor` | lanes, partitions, drain: which turn runs when |
//! | `driver` | one turn, from its record to its end |
//! | `call` | the calls of one reply |
//! | `outbox` | results and dead letters |

pub(crate) mod bind;
mod call;
mod driver;
mod outbox;
mod supervisor;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::journal::{KafkaLog, Log, Member};
use crate::kafka::client::{self, Isolation};
use crate::kafka::consumer::{self, Command};
use crate::kafka::producer::Producer;
use crate::kafka::scan::Scanner;
use crate::kafka::topics::{self, BindError};
use crate::retry::Backoff;
use crate::tool::{Deps, Registry};
use bind::BoundAgent;
use driver::Shared;
use outbox::Outbox;
use supervisor::{Limits, Supervisor};

/// Records that wait in memory beyond those that run, so that one busy session does not stop the others.
const MIN_BUFFERED: usize = 4096;
/// Their keys and values together, in bytes.
const MAX_BUFFERED_BYTES: usize = 64 << 20;
/// How long the last records may take to be acknowledged when the worker ends.
const FLUSH: Duration = Duration::from_secs(10);

/// What a worker runs with.
pub(crate) struct Options {
    pub config: Config,
    pub registry: Registry,
    pub deps: Deps,
    pub agents: HashMap<String, Arc<BoundAgent>>,
}

/// Why a worker did not start, or ended unasked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The topics are not as they must be.
    #[error("the topics are not as they must be:\n{}", .0.join("\n"))]
    Topics(Vec<String>),
    /// A client cannot be made of the settings.
    #[error("{0}")]
    Client(String),
    /// The worker stopped rather than lose something.
    #[error("the worker stopped: {0}; what was not finished comes again")]
    Stopped(#[from] supervisor::Error),
}

/// Works until `shutdown`, then drains, commits and leaves the group.
///
/// # Errors
/// The topics or the settings are wrong, or something failed that no turn can go on without.
pub(crate) async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    if !wait_for_topics(&options.config, &shutdown).await? {
        return Ok(());
    }
    run_unchecked(options, shutdown).await
}

/// As [`run`], on topics that are known to be as they must be.
///
/// # Errors
/// The settings are wrong, or something failed that no turn can go on without.
pub(crate) async fn run_unchecked(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    let Options { config, registry, deps, agents } = options;
    let kafka = &config.kafka;
    let refused = |e| Error::Client(client::explain(&e));
    let steps = Producer::new(&client::step_producer(kafka)).map_err(refused)?;
    let out = Producer::new(&client::producer(kafka)).map_err(refused)?;
    let log: Arc<dyn Log> = Arc::new(KafkaLog::new(
        steps.clone(),
        Scanner::new(client::reader(kafka, Isolation::ReadUncommitted)),
        &config.topics.events,
        client::max_record_bytes(kafka),
    ));
    let max_in_flight = config.worker.max_in_flight.get();
    let (consumer, events) = consumer::spawn(consumer::Options {
        client: client::turns_consumer(kafka),
        topic: config.topics.turns.clone(),
        max_records: max_in_flight.saturating_mul(4).max(MIN_BUFFERED),
        max_bytes: MAX_BUFFERED_BYTES,
    })
    .map_err(Error::Client)?;
    let member = Member {
        group: kafka.group_id.clone(),
        turns_topic: config.topics.turns.clone(),
        name: member_name(),
    };
    let shared = Arc::new(Shared {
        agents,
        registry,
        deps,
        outbox: Outbox::new(Arc::new(out.clone()), &config.topics),
        turns_topic: config.topics.turns.clone(),
    });
    let limits = Limits { max_in_flight, drain_timeout: config.worker.drain_timeout };
    tracing::info!(
        brokers = kafka.brokers,
        group = kafka.group_id,
        topic = config.topics.turns,
        "worker started"
    );
    let supervisor = Supervisor::new(shared, limits, consumer, log, member);
    let (consumer, result) = supervisor.run(events, shutdown).await;

    let flushed = tokio::task::spawn_blocking(move || steps.flush(FLUSH).and(out.flush(FLUSH))).await;
    if let Ok(Err(error)) = flushed {
        tracing::warn!(%error, "some records were not acknowledged before the end");
    }
    consumer.send(Command::Close);
    consumer.join().await;
    tracing::info!("worker ended");
    Ok(result?)
}

/// Waits for the brokers, and checks the topics once they answer. False: it was asked to end first.
async fn wait_for_topics(config: &Config, shutdown: &CancellationToken) -> Result<bool, Error> {
    let mut backoff = Backoff::forever();
    loop {
        let error = tokio::select! {
            checked = topics::bind_check(config) => match checked {
                Ok(_) => return Ok(true),
                Err(error) => error,
            },
            () = shutdown.cancelled() => return Ok(false),
        };
        match error {
            BindError::Problems(problems) => return Err(Error::Topics(problems)),
            BindError::Unreachable { .. } => tracing::warn!(%error, "waiting for the brokers"),
        }
        tokio::select! {
            () = backoff.wait() => {}
            () = shutdown.cancelled() => return Ok(false),
        }
    }
}

/// Names this process to people: its pod or host, and its process id.
fn member_name() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "turnmill".into());
    format!("{host}-{}", std::process::id())
}
