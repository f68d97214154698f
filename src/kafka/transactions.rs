//! Records that become visible together or not at all: one transactional producer of a partition, on a thread
//! of its own, because every call of it blocks.
//!
//! What several turns end with goes into one transaction: whatever has come while the one before was committed.
//! After anything but a success the producer is given up and the partition has to be taken over again, which
//! makes a new one and with it fences this one (design rule 11).

use std::sync::mpsc as sync_mpsc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{
    DeliveryResult, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::{mpsc, oneshot};

use super::Header;
use super::access::{Denied, Operation, Resource};
use super::producer::{Error, Outgoing, build, classify, size};
use super::watchdog::watch_call;
use crate::metrics::metrics;

/// How many turns one transaction ends at most.
const BATCH: usize = 500;
/// How long the coordinator may take to let us begin: it may have to end what an earlier owner left open.
const INIT: Duration = Duration::from_secs(60);
/// How long a commit or an abort may take.
const COMMIT: Duration = Duration::from_secs(30);
/// How long the brokers may take to acknowledge what a transaction holds; longer than `message.timeout.ms`.
const DELIVERY: Duration = Duration::from_secs(60);

/// A record of a transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owned {
    pub topic: String,
    /// By the key's hash where there is none.
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
}

impl Owned {
    /// The record, to send.
    pub(crate) fn outgoing(&self) -> Outgoing<'_> {
        Outgoing {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &self.headers,
        }
    }
}

/// What these producers are called where they say something.
const TRANSACTIONS: &str = "transactions";

/// What one turn ends with.
pub(crate) struct Request {
    pub records: Vec<Owned>,
    /// How the transaction went.
    pub reply: oneshot::Sender<Result<(), Error>>,
}

/// The transactions of one partition. Cheap to clone; the thread ends with the last of them.
#[derive(Clone)]
pub(crate) struct Transactions {
    requests: mpsc::UnboundedSender<Request>,
}

impl Transactions {
    /// Makes a producer under this id, and with it fences whoever used the id before (design rule 6).
    ///
    /// # Errors
    /// The client cannot be made, or the coordinator does not let it begin.
    pub(crate) async fn open(mut client: ClientConfig, id: &str) -> Result<Self, String> {
        client.set("transactional.id", id);
        let (requests, incoming) = mpsc::unbounded_channel();
        let (opened, begun) = oneshot::channel();
        let id = id.to_owned();
        std::thread::Builder::new()
            .name("turnmill-txn".into())
            .spawn(move || match open(&client) {
                Ok(producer) => {
                    let _ = opened.send(Ok(()));
                    run(&id, &producer, incoming);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            })
            .map_err(|e| format!("the thread of a transactional producer cannot be started: {e}"))?;
        begun.await.unwrap_or_else(|_| Err("the thread of a transactional producer ended".into()))?;
        Ok(Self { requests })
    }

    /// Transactions without a thread, and what is asked of them.
    #[cfg(test)]
    pub(crate) fn detached() -> (Self, mpsc::UnboundedReceiver<Request>) {
        let (requests, asked) = mpsc::unbounded_channel();
        (Self { requests }, asked)
    }

    /// Commits records in one transaction, maybe together with others'. When it returns, readers of committed
    /// records see them.
    ///
    /// # Errors
    /// A record is too large, and nothing of these is visible. Any other: nobody knows whether they are, and the
    /// producer is given up.
    pub(crate) async fn commit(&self, records: Vec<Owned>) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.requests.send(Request { records, reply }).map_err(|_| Error::Closed { of: TRANSACTIONS })?;
        done.await.unwrap_or(Err(Error::Closed { of: TRANSACTIONS }))
    }
}

/// Which request of a batch a record belongs to, and where its delivery is reported.
struct Pending {
    request: usize,
    deliveries: sync_mpsc::Sender<(usize, Result<(), Error>)>,
}

struct Context {
    config: ClientConfig,
}

impl Context {
    /// Why a call about the transaction itself failed.
    fn explain(&self, error: KafkaError) -> Error {
        let id = self.config.get("transactional.id").unwrap_or_default();
        // Those of the other partitions differ in their last part only, and every worker needs them all.
        let prefix = id.rfind('-').map_or(id, |at| &id[..=at]);
        let ids = Resource::Transactions(prefix.to_owned());
        match Denied::of(&self.config, error.rdkafka_error_code(), Operation::Write, ids) {
            Some(denied) => Error::Denied(denied),
            None => Error::Failed { topic: "(transaction)".into(), source: error },
        }
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "kafka client error");
    }
}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = Box<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Box<Pending>) {
        let result = match result {
            Ok(_) => Ok(()),
            Err((error, message)) => {
                Err(classify(&self.config, error.clone(), message.topic(), size(message)))
            }
        };
        let _ = pending.deliveries.send((pending.request, result));
    }
}

type Client = ThreadedProducer<Context>;

fn open(config: &ClientConfig) -> Result<Client, String> {
    let context = Context { config: config.clone() };
    let producer: Client = config.create_with_context(context).map_err(|e| super::client::explain(&e))?;
    let _watched = watch_call("init_transactions", INIT);
    (producer.init_transactions(INIT))
        .map_err(|e| format!("transactions cannot begin: {}", producer.context().explain(e)))?;
    Ok(producer)
}

fn run(id: &str, producer: &Client, mut incoming: mpsc::UnboundedReceiver<Request>) {
    let mut waiting: Vec<Request> = Vec::new();
    loop {
        if waiting.is_empty() {
            match incoming.blocking_recv() {
                Some(request) => waiting.push(request),
                None => return,
            }
        }
        while waiting.len() < BATCH
            && let Ok(request) = incoming.try_recv()
        {
            waiting.push(request);
        }
        let begun = Instant::now();
        let done = transaction(producer, &waiting);
        metrics().transaction_duration.observe(begun.elapsed().as_secs_f64());
        match done {
            Ok(()) => {
                count("committed");
                waiting.drain(..).for_each(|request| reply(request, Ok(())));
            }
            Err(Fault::TooLarge(errors)) => {
                count("aborted");
                waiting = without(waiting, errors);
            }
            Err(Fault::Over(error)) => {
                count("failed");
                tracing::warn!(id, %error, "a transaction failed: its producer is given up");
                waiting.drain(..).for_each(|request| reply(request, Err(error.clone())));
                return;
            }
        }
    }
}

fn count(outcome: &str) {
    metrics().transactions.with_label_values(&[outcome]).inc();
}

fn reply(request: Request, result: Result<(), Error>) {
    // Its turn may have been given up.
    let _ = request.reply.send(result);
}

/// Why nothing of a transaction is visible.
enum Fault {
    /// These requests have a record that is too large; the transaction was aborted.
    TooLarge(Vec<(usize, Error)>),
    /// The producer is of no use any more, and maybe the transaction was committed.
    Over(Error),
}

/// Answers the requests that can never be written, and keeps the others for the next transaction.
fn without(waiting: Vec<Request>, mut errors: Vec<(usize, Error)>) -> Vec<Request> {
    let mut kept = Vec::new();
    for (index, request) in waiting.into_iter().enumerate() {
        match errors.iter().position(|(failed, _)| *failed == index) {
            Some(at) => reply(request, Err(errors.swap_remove(at).1)),
            None => kept.push(request),
        }
    }
    kept
}

fn transaction(producer: &Client, requests: &[Request]) -> Result<(), Fault> {
    let over = |error: KafkaError| Fault::Over(producer.context().explain(error));
    let _watched = watch_call("a transaction", DELIVERY + COMMIT);
    producer.begin_transaction().map_err(over)?;
    let (deliveries, delivered) = sync_mpsc::channel();
    let mut too_large = Vec::new();
    let mut sent = 0;
    for (index, request) in requests.iter().enumerate() {
        for record in &request.records {
            let pending = Box::new(Pending { request: index, deliveries: deliveries.clone() });
            match producer.send(build(&record.outgoing(), pending)) {
                Ok(()) => sent += 1,
                Err((error, back)) => {
                    let size = back.key.map_or(0, <[u8]>::len) + back.payload.map_or(0, <[u8]>::len);
                    let error = classify(&producer.context().config, error, &record.topic, size);
                    note(error, index, &mut too_large)?;
                }
            }
        }
    }
    // Awaited before the commit, which is slow while any is outstanding.
    for _ in 0..sent {
        match delivered.recv_timeout(DELIVERY) {
            Ok((_, Ok(()))) => {}
            Ok((index, Err(error))) => note(error, index, &mut too_large)?,
            Err(_) => return Err(Fault::Over(Error::Closed { of: TRANSACTIONS })),
        }
    }
    if !too_large.is_empty() {
        producer.abort_transaction(COMMIT).map_err(over)?;
        return Err(Fault::TooLarge(too_large));
    }
    producer.commit_transaction(COMMIT).map_err(|error| {
        // An abort makes sure that readers need not wait until the coordinator gives it up.
        if matches!(&error, KafkaError::Transaction(e) if e.txn_requires_abort()) {
            let _ = producer.abort_transaction(COMMIT);
        }
        over(error)
    })
}

/// A record that is too large costs its own turn a try; anything else is the end of the producer.
fn note(error: Error, request: usize, too_large: &mut Vec<(usize, Error)>) -> Result<(), Fault> {
    match error {
        Error::TooLarge { .. } => {
            if !too_large.iter().any(|(other, _)| *other == request) {
                too_large.push((request, error));
            }
            Ok(())
        }
        other => Err(Fault::Over(other)),
    }
}
