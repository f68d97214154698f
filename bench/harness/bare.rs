//! Bare clients: what the client library and the brokers can do at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{
    BaseRecord, DefaultProducerContext, DeliveryResult, NoCustomPartitioner, Producer, ProducerContext,
    ThreadedProducer,
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use crate::contestant::{RoundTrips, Running};
use crate::run::{Result, Run, client};

/// A loop that reads a record, writes so many events, which it reads on as a worker does, and a result, and waits for none of
/// them. The same acknowledgements as a worker's.
pub fn repeat(run: &Run, linger_ms: &str, events: usize) -> Result<Running> {
    let consumer: BaseConsumer = client(&run.brokers)
        .set("group.id", &run.name)
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "20")
        .create()?;
    let producer: ThreadedProducer<DefaultProducerContext> = client(&run.brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", linger_ms)
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    consumer.subscribe(&[&run.topic("turns")])?;
    let over = Arc::new(AtomicBool::new(false));
    if events > 0 {
        let (tail, over) = (run.reader("events")?, Arc::clone(&over));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                drop(tail.poll(Duration::from_millis(50)));
            }
        });
    }
    let (topic, results, stop) = (run.topic("events"), run.topic("results"), Arc::clone(&over));
    let thread = std::thread::spawn(move || {
        // As large as events of Turnmill's.
        let event = "x".repeat(400);
        let result = format!("{{\"status\":\"completed\",\"output\":\"{}\"}}", "x".repeat(220));
        let mut since = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(message) = consumer.poll(Duration::from_millis(50)) else { continue };
            let message = message.map_err(|e| e.to_string())?;
            for _ in 0..events {
                let record = BaseRecord::to(&topic).partition(message.partition()).key("k").payload(&event);
                producer.send(record).map_err(|(e, _)| e.to_string())?;
            }
            // As large as a result of Turnmill's.
            let record = BaseRecord::to(&results).key(message.key().unwrap_or_default()).payload(&result);
            producer.send(record).map_err(|(e, _)| e.to_string())?;
            since += 1;
            // Seldom: while it waits, nothing goes on.
            if since == 20_000 {
                since = 0;
                producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())?;
                consumer.commit_consumer_state(CommitMode::Async).map_err(|e| e.to_string())?;
            }
        }
        producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())
    });
    Ok(Running::Bare(over, Some(thread)))
}

/// Hands the offset of each record over when it is acknowledged.
pub struct Acknowledged;

impl ClientContext for Acknowledged {}

impl ProducerContext<NoCustomPartitioner> for Acknowledged {
    type DeliveryOpaque = Box<oneshot::Sender<i64>>;

    fn delivery(&self, result: &DeliveryResult<'_>, acknowledged: Box<oneshot::Sender<i64>>) {
        if let Ok(message) = result {
            let _ = acknowledged.send(message.offset());
        }
    }
}

/// How far a partition was read back, and who waits for more.
#[derive(Default)]
struct ReadBack {
    position: i64,
    waiting: Vec<(i64, oneshot::Sender<()>)>,
}

impl ReadBack {
    fn pass(&mut self, offset: i64) {
        self.position = offset + 1;
        for (_, waiter) in self.waiting.extract_if(.., |(at, _)| *at <= offset) {
            let _ = waiter.send(());
        }
    }

    /// None: it was read back already.
    fn wait(&mut self, offset: i64) -> Option<oneshot::Receiver<()>> {
        let (waiter, passed) = oneshot::channel();
        (self.position <= offset).then(|| self.waiting.push((offset, waiter)))?;
        Some(passed)
    }
}

/// What the turns of a run share.
struct Chain {
    producer: ThreadedProducer<Acknowledged>,
    events: String,
    results: String,
    read_back: Vec<Mutex<ReadBack>>,
    trips: RoundTrips,
}

impl Chain {
    async fn turn(&self, partition: i32, key: Vec<u8>, value: Vec<u8>) -> Option<()> {
        let turn: Value = serde_json::from_slice(&value).ok()?;
        self.events(partition, &key, self.trips.before).await?;
        // As large as a result of Turnmill's.
        let result = json!({"turn_id": turn["turn_id"], "status": "completed", "output": "x".repeat(200)});
        self.write(&self.results, None, &key, &result.to_string())?.await.ok()?;
        self.events(partition, &key, self.trips.after).await
    }

    async fn events(&self, partition: i32, key: &[u8], trips: &[usize]) -> Option<()> {
        // As large as an event of Turnmill's.
        let event = "x".repeat(400);
        for events in trips {
            let mut last = None;
            for _ in 0..*events {
                last = Some(self.write(&self.events, Some(partition), key, &event)?);
            }
            let last = last?.await.ok()?;
            let passed = self.read_back(partition).wait(last);
            if let Some(passed) = passed {
                passed.await.ok()?;
            }
        }
        Some(())
    }

    fn read_back(&self, partition: i32) -> MutexGuard<'_, ReadBack> {
        self.read_back[partition as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(
        &self,
        topic: &str,
        partition: Option<i32>,
        key: &[u8],
        value: &str,
    ) -> Option<oneshot::Receiver<i64>> {
        let (acknowledged, offset) = oneshot::channel();
        let mut record = BaseRecord::with_opaque_to(topic, Box::new(acknowledged)).key(key).payload(value);
        record.partition = partition;
        self.producer.send(record).ok()?;
        Some(offset)
    }
}

/// What a durable turn has to wait for, and nothing else. The same acknowledgements as a worker's.
pub fn round_trips(run: &Run, trips: &RoundTrips) -> Result<Running> {
    let turns: BaseConsumer = client(&run.brokers)
        .set("group.id", &run.name)
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "100")
        .create()?;
    let tail = run.reader("events")?;
    let producer = client(&run.brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", trips.linger_ms)
        .create_with_context(Acknowledged)?;
    let (events, results) = (run.topic("events"), run.topic("results"));
    turns.subscribe(&[&run.topic("turns")])?;
    let read_back = (0..run.partitions).map(|_| Mutex::default()).collect();
    let chain = Arc::new(Chain { producer, events, results, read_back, trips: trips.clone() });
    let over = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let (chain, over) = (Arc::clone(&chain), Arc::clone(&over));
        move || {
            while !over.load(Ordering::Relaxed) {
                if let Some(Ok(message)) = tail.poll(Duration::from_millis(50)) {
                    chain.read_back(message.partition()).pass(message.offset());
                }
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let (stop, room) = (Arc::clone(&over), Arc::new(Semaphore::new(trips.in_flight)));
    let thread = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let Some(message) = turns.poll(Duration::from_millis(50)) else { continue };
            let message = message.map_err(|e| e.to_string())?;
            let (key, value) = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
            let (partition, key, value, chain) =
                (message.partition(), key.to_vec(), value.to_vec(), Arc::clone(&chain));
            let room = runtime.block_on(Arc::clone(&room).acquire_owned()).map_err(|e| e.to_string())?;
            runtime.spawn(async move {
                let _room = room;
                chain.turn(partition, key, value).await
            });
        }
        Ok(())
    });
    Ok(Running::Bare(over, Some(thread)))
}
