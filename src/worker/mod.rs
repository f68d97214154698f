//! The consumer-group worker: wires intake, journal, tools and models.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | start and end of a worker |
//! | `bind` | agents bound to tools and models; what is refused |
//! | `supervisor` | partitions, drain: which turn runs when |
//! | `lanes` | a session's turns one after the other |
//! | `driver` | one turn, from its record to its end |
//! | `steps` | the steps of a turn, on one primitive: replies, calls, an agent's own |
//! | `cancels` | which turns are to be cancelled |
//! | `outbox` | results and dead letters |
//! | `status` | what tools tell of themselves |
//! | `offline` | one record and a log, without a broker |
//! | `switches` | what is turned off |
//! | `simulation` | takeovers, simulated: tests |

pub(crate) mod bind;
mod cancels;
mod driver;
mod lanes;
pub(crate) mod offline;
mod outbox;
#[cfg(test)]
mod simulation;
mod status;
mod steps;
mod supervisor;
pub(crate) mod switches;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::{Config, Delivery};
use crate::health::Health;
use crate::journal::{KafkaLog, Log, Member};
use crate::kafka::ClientConfig;
use crate::kafka::client::{self, Isolation};
use crate::kafka::consumer::{self, Command};
use crate::kafka::lag::{self, Watermarks};
use crate::kafka::paced::{Load, Paced};
use crate::kafka::producer::Producer;
use crate::kafka::scan::Scanner;
use crate::kafka::tail::Tails;
use crate::kafka::topic_id::topic_id;
use crate::kafka::topics::{self, BindError};
use crate::retry::Backoff;
use crate::tool::{Cache, Deps, Environment, Registry, StatusSink};
use crate::turn::ExternalIoMode;
use bind::BoundAgent;
use cancels::Cancels;
use driver::Shared;
use outbox::Outbox;
use status::StatusOut;
use supervisor::{Limits, OpenTransactions, Points, Supervisor, Transactional};
use switches::Switches;

/// Records that wait in memory for each turn that may run, so that one busy session does not stop the others: the client
/// fetches one partition after the other, and a few of them do not have all sessions.
const BUFFERED: usize = 16;
/// How many of them at least.
const MIN_BUFFERED: usize = 32_768;
/// Their keys and values together, in bytes.
const MAX_BUFFERED_BYTES: usize = 64 << 20;
/// Records between a partition's watermark and where it reads: what one slow turn can pile up behind it.
const MAX_SPAN: usize = 50_000;
/// Events of a partition behind its recovery point: what a restore has to read.
const MAX_EVENTS: i64 = 1_000_000;
/// How long the last records may take to be acknowledged when the worker ends.
const FLUSH: Duration = Duration::from_secs(10);

/// The same for the last status.
const FLUSH_STATUS: Duration = Duration::from_millis(500);

/// What a worker runs with.
pub(crate) struct Options {
    pub config: Config,
    pub registry: Registry,
    pub deps: Deps,
    pub cache: Cache,
    pub agents: HashMap<String, Arc<BoundAgent>>,
    /// Hears how the worker is.
    pub health: Health,
    /// What is turned off.
    pub switches: Switches,
}

/// Why a worker did not start, or ended unasked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The topics are not as they must be.
    #[error("the topics are not as they must be:\n{}", .0.join("\n"))]
    Topics(Vec<String>),
    /// The brokers refuse what a worker must do.
    #[error("a worker has to do what it may not:\n{}", .0.join("\n"))]
    Denied(Vec<String>),
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
    let topic_id = events_topic_id(&options.config).await;
    run_on(options, topic_id, shutdown).await
}

/// As [`run`], on topics that are known to be as they must be; the events topic has this id.
///
/// # Errors
/// The settings are wrong, or something failed that no turn can go on without.
pub(crate) async fn run_on(
    options: Options,
    topic_id: String,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Options { config, registry, deps, cache, agents, health, switches } = options;
    let kafka = &config.kafka;
    let cancels = Cancels::default();
    tokio::select! {
        read = cancels.read(&config) => read.map_err(|e| Error::Client(e.to_string()))?,
        () = shutdown.cancelled() => return Ok(()),
    }
    let refused = |e| Error::Client(client::explain(&e));
    let load = Load::default();
    let paced = |client: ClientConfig, name, together| {
        let second = client::together(kafka, &client).map(|client| Producer::new(&client, together));
        Ok(Paced::new(Producer::new(&client, name)?, second.transpose()?, load.clone()))
    };
    let steps = paced(client::step_producer(kafka), "events", "events_together").map_err(refused)?;
    let out = paced(client::producer(kafka), "results", "results_together").map_err(refused)?;
    let status = Arc::new(StatusOut::new(&config));
    let exactly_once = config.worker.delivery == Delivery::ExactlyOnce;
    // What a transaction left open or undone is no end of a turn (rule 7).
    let isolation = if exactly_once { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let scanner = Scanner::new(client::reader(kafka, isolation));
    let transactional = exactly_once.then(|| {
        let id = format!("{}-{}", kafka.group_id, config.topics.turns);
        Arc::new(Transactional { client: client::transactional(kafka), id }) as Arc<dyn OpenTransactions>
    });
    let tails = Tails::start(&client::tail(kafka), &config.topics.events).map_err(Error::Client)?;
    let log: Arc<dyn Log> = Arc::new(KafkaLog::new(
        steps.clone(),
        scanner,
        tails,
        &config.topics.events,
        client::max_record_bytes(kafka),
    ));
    let watermarks = Watermarks::default();
    let points = Arc::new(Points::default());
    let recovery = Arc::clone(&points);
    let max_in_flight = config.worker.max_in_flight.get();
    let (consumer, events) = consumer::spawn(consumer::Options {
        client: client::turns_consumer(kafka),
        topic: config.topics.turns.clone(),
        max_records: max_in_flight.saturating_mul(BUFFERED).max(MIN_BUFFERED),
        max_bytes: MAX_BUFFERED_BYTES,
        max_span: MAX_SPAN,
        max_events: MAX_EVENTS,
        health: health.clone(),
        watermarks: watermarks.clone(),
        recovery: Arc::new(move |partition, epoch, watermark| recovery.of(partition, epoch, watermark)),
    })
    .map_err(Error::Client)?;
    let member = Member {
        group: kafka.group_id.clone(),
        turns_topic: config.topics.turns.clone(),
        name: member_name(),
        topic_id,
        exactly_once,
    };
    let shared = Arc::new(Shared {
        agents,
        registry,
        environment: Environment {
            deps,
            cache,
            status: Some(Arc::clone(&status) as Arc<dyn StatusSink>),
            external_io_mode: ExternalIoMode::RuntimeRecorded,
        },
        outbox: Outbox::new(Arc::new(out.clone()), &config.topics),
        cancels: cancels.clone(),
        turns_topic: config.topics.turns.clone(),
        health,
        switches: switches.clone(),
        max_redeliveries: config.worker.max_redeliveries.get(),
        step_boundary_durability: config.worker.step_boundary_durability,
        clock: driver::now_ms,
        load,
    });
    if !config.worker.step_boundary_durability {
        tracing::warn!(
            "step_boundary_durability is off: after a crash an idempotency key may carry another input; let tools go by \
             a business key"
        );
    }
    let limits = Limits { max_in_flight, drain_timeout: config.worker.drain_timeout };
    tracing::info!(
        brokers = kafka.brokers,
        group = kafka.group_id,
        topic = config.topics.turns,
        "worker started"
    );
    let supervisor = Supervisor::new(shared, limits, consumer, log, member, points, transactional);
    let lag = lag::follow(kafka.clone(), config.topics.turns.clone(), watermarks);
    let _lag = AbortOnDropHandle::new(tokio::spawn(lag));
    let (consumer, result) = tokio::select! {
        ended = supervisor.run(events, shutdown) => ended,
        never = cancels.follow(&config) => match never {},
    };

    let flush = move || {
        status.flush(FLUSH_STATUS);
        steps.flush(FLUSH).and(out.flush(FLUSH))
    };
    let flushed = tokio::task::spawn_blocking(flush).await;
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
            BindError::Denied(denied) => return Err(Error::Denied(denied)),
            BindError::Config(why) => return Err(Error::Client(why)),
            BindError::Unreachable { .. } => tracing::warn!(%error, "waiting for the brokers"),
        }
        tokio::select! {
            () = backoff.wait() => {}
            () = shutdown.cancelled() => return Ok(false),
        }
    }
}

/// The id of the events topic. Where the brokers do not tell, a topic that was made anew under the same name
/// cannot be told from the old one.
async fn events_topic_id(config: &Config) -> String {
    let (client, topic) = (client::admin(&config.kafka), config.topics.events.clone());
    let asked = tokio::task::spawn_blocking(move || topic_id(&client, &topic)).await;
    match asked.map_err(|e| e.to_string()).and_then(|id| id) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(
                topic = config.topics.events,
                error,
                "the brokers do not tell the id of the topic"
            );
            "unknown".into()
        }
    }
}

/// Names this process to people: its pod or host, and its process id.
fn member_name() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "turnmill".into());
    format!("{host}-{}", std::process::id())
}
