//! Turns per second of a worker, beside a bare loop that consumes and produces with the same client library
//! on the same broker: as ratios, in turn, in one run.
//!
//! What is measured is the time between the first and the last result on the results topic, so that joining a
//! group and starting a process are not.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use crate::run::{Result, Run, SESSIONS, Work, client};

const PARTITIONS: i32 = 8;
const ROUNDS: usize = 3;

/// A worker's rate, as its release binary, with its defaults.
fn worker(run: &Run) -> Result<f64> {
    let worker = run.worker("worker")?;
    let rate = run.measure();
    worker.stop()?;
    rate
}

/// The limit: a loop that reads a record, writes a result of about a turn's size, and commits now and then.
/// The same acknowledgements as a worker's. Its rate is taken inside, from its first record to its last
/// acknowledgement: it may be over before a reader of the results has begun.
fn bare(run: &Run) -> Result<f64> {
    let consumer: BaseConsumer = client(&run.brokers)
        .set("group.id", &run.name)
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "20")
        .create()?;
    let producer: ThreadedProducer<DefaultProducerContext> = client(&run.brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    let (topic, turns, results) = (run.name.clone(), run.topic("turns"), run.topic("results"));
    let total = run.turns;
    let copier = std::thread::spawn(move || -> std::result::Result<f64, String> {
        consumer.subscribe(&[&turns]).map_err(|e| format!("{topic}: {e}"))?;
        let result = "x".repeat(260);
        let mut first = None;
        for n in 0..total {
            let message = loop {
                if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                    break message.map_err(|e| e.to_string())?;
                }
            };
            first.get_or_insert_with(Instant::now);
            let record = BaseRecord::to(&results).key(message.key().unwrap_or_default()).payload(&result);
            producer.send(record).map_err(|(e, _)| e.to_string())?;
            if n % 2000 == 1999 {
                producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())?;
                consumer.commit_consumer_state(CommitMode::Async).map_err(|e| e.to_string())?;
            }
        }
        producer.flush(Duration::from_secs(30)).map_err(|e| e.to_string())?;
        let took = first.map_or(f64::MAX, |first| first.elapsed().as_secs_f64());
        Ok(total as f64 / took)
    });
    Ok(copier.join().map_err(|_| "the bare loop panicked")??)
}

/// Runs worker and bare loop in turn, and prints the rates and their ratio.
fn compare(brokers: &str, name: &str, work: Work, turns: usize) -> Result<f64> {
    println!("\n{name}: {turns} turns over {SESSIONS} sessions on {PARTITIONS} partitions");
    let mut ratios = Vec::new();
    // The broker gets warm.
    worker(&Run::new(brokers, "warm", PARTITIONS)?.filled(work, turns)?)?;
    for round in 1..=ROUNDS {
        let ours = worker(&Run::new(brokers, "worker", PARTITIONS)?.filled(work, turns)?)?;
        let limit = bare(&Run::new(brokers, "bare", PARTITIONS)?.filled(work, turns)?)?;
        ratios.push(ours / limit);
        println!("  round {round}: worker {ours:7.0}/s, bare loop {limit:7.0}/s, ratio {:.3}", ours / limit);
        std::io::stdout().flush()?;
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2])
}

/// Both kinds of work.
pub fn run(brokers: &str) -> Result<()> {
    let none = compare(brokers, "no tools", Work::NoTools, 20_000)?;
    let three = compare(brokers, "three tools", Work::ThreeTools, 5_000)?;
    println!("\nmedian ratios to the bare loop: no tools {none:.3}, three tools {three:.3}");
    Ok(())
}
