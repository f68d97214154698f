//! A turn worker on Restate: the server consumes the turns by its Kafka ingress and calls this
//! handler, which runs each turn's steps as journaled `ctx.run`s and then publishes the result.
//! `Session` is a Virtual Object keyed by the record's key, so the turns of a session run one
//! after another, in order.
//!
//! Durability: Restate acknowledges a record, and each step, when its log server has appended it to
//! its RocksDB with an fsync of the WAL per batch, its default (see `run` for the switch). The
//! result is produced with acks=all by an idempotent producer to a broker that does not fsync each
//! write, Kafka's default. It is no journaled step itself: a crash after it repeats it.

use std::{env, time::Duration};

use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use restate_sdk::prelude::*;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Deserialize)]
struct Turn {
    turn_id: String,
    session_id: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    steps: String,
    work_ms: String,
}

impl Turn {
    /// How long each step works.
    fn steps(&self) -> HandlerResult<impl Iterator<Item = Duration> + use<>> {
        let steps: u32 = self.metadata.steps.parse()?;
        let work = Duration::from_millis(self.metadata.work_ms.parse()?);
        Ok(std::iter::repeat_n(work / steps.max(1), steps as usize))
    }
}

#[derive(Clone)]
struct Session(Worker);

#[restate_sdk::object]
impl Session {
    #[handler]
    async fn turn(&self, ctx: ObjectContext<'_>, turn: Json<Turn>) -> HandlerResult<()> {
        let turn = turn.into_inner();
        for work in turn.steps()? {
            ctx.run(move || echo("a", work)).name("echo").await?;
        }
        self.0.publish(turn).await
    }
}

#[derive(Clone)]
struct Worker {
    producer: FutureProducer,
    results: String,
}

impl Worker {
    async fn publish(&self, turn: Turn) -> HandlerResult<()> {
        let result = serde_json::json!({
            "turn_id": turn.turn_id,
            "session_id": turn.session_id,
            "status": "completed",
            "output": "done",
        });
        let payload = result.to_string();
        let record = FutureRecord::to(&self.results).key(&turn.session_id).payload(&payload);
        self.producer.send(record, Duration::from_secs(30)).await.map_err(|(error, _)| error)?;
        Ok(())
    }
}

async fn echo(text: &'static str, work: Duration) -> HandlerResult<String> {
    if !work.is_zero() {
        tokio::time::sleep(work).await;
    }
    Ok(text.into())
}

/// Returns once the consumer group has its partitions, which Restate itself does not tell.
fn await_subscription(producer: &FutureProducer, group: &str) {
    let stable = || {
        let list = producer.client().fetch_group_list(Some(group), Duration::from_secs(5));
        list.is_ok_and(|list| list.groups().iter().any(|group| group.state() == "Stable"))
    };
    while !stable() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::main]
async fn main() {
    let var = |name| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", var("KAFKA_BOOTSTRAP_SERVERS"))
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "0")
        .create()
        .unwrap();
    let worker = Worker { producer: producer.clone(), results: var("RESULTS_TOPIC") };
    let endpoint = Endpoint::builder().bind(Session(worker)).build();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("listening {}", listener.local_addr().unwrap());
    let group = var("GROUP_ID");
    std::thread::spawn(move || {
        await_subscription(&producer, &group);
        println!("ready");
    });
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    HttpServer::new(endpoint).serve_with_cancel(listener, terminate.recv()).await;
}
