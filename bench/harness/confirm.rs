//! What it costs to read a record back, over its bare acknowledgement: the price of a confirmed step.

use std::time::{Duration, Instant};

use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use tokio::sync::oneshot;

use crate::bare::Acknowledged;
use crate::run::{Result, Run, client, median};

const RECORDS: usize = 2_000;

/// One record after the other: how long until it is acknowledged, and until it is read back, in milliseconds: medians.
pub fn run(brokers: &str) -> Result<(f64, f64)> {
    let run = Run::new(brokers, "confirm", 1, 1)?;
    let topic = run.topic("events");
    let producer: ThreadedProducer<Acknowledged> = client(brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .create_with_context(Acknowledged)?;
    let reader = run.reader("events")?;
    let value = "x".repeat(400);
    let (mut acknowledged, mut read) = (Vec::new(), Vec::new());
    for _ in 0..RECORDS {
        let (sender, receiver) = oneshot::channel();
        let begun = Instant::now();
        let record =
            BaseRecord::with_opaque_to(&topic, Box::new(sender)).partition(0).key("k").payload(&value);
        producer.send(record).map_err(|(error, _)| error)?;
        let offset = receiver.blocking_recv()?;
        acknowledged.push(begun.elapsed());
        while reader.poll(Duration::from_secs(30)).ok_or("nothing came")??.offset() < offset {}
        read.push(begun.elapsed());
    }
    producer.flush(Duration::from_secs(10))?;
    let ms =
        |times: Vec<Duration>| median(&times.iter().map(|time| time.as_secs_f64() * 1e3).collect::<Vec<_>>());
    Ok((ms(acknowledged), ms(read)))
}
