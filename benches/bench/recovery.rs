//! What a restore takes after a crash, with much and with little in the log, and the same work in flight.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::run::{Result, Run, Work, Worker, client};

const PARTITIONS: i32 = 4;
/// Turns that run when the worker is killed.
const IN_FLIGHT: usize = 20;
/// Events of a turn without tools.
const EVENTS: usize = 4;
const ROUNDS: usize = 5;

/// A log with this many events, a worker killed over work in flight, and the restores of those that follow.
fn restores(brokers: &str, events: usize) -> Result<Vec<f64>> {
    let mut run = Run::new(brokers, "recovery", PARTITIONS)?.filled(Work::NoTools, events / EVENTS)?;
    let worker = run.worker("first")?;
    run.measure()?;
    let starts = Starts::after_the_end_of(&run)?;
    run.fill(Work::Sleep, IN_FLIGHT)?;
    starts.wait(IN_FLIGHT)?;
    drop(worker);
    let mut seconds = Vec::new();
    for round in 0..ROUNDS {
        let next = run.worker(&format!("round-{round}"))?;
        seconds.push(ready(&next)?);
    }
    println!(
        "  {events} events: restores of {:?} ms",
        seconds.iter().map(|s| (s * 1e3).round()).collect::<Vec<_>>()
    );
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// The longest restore of a worker's partitions, as its log tells.
fn ready(worker: &Worker) -> Result<f64> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let log = std::fs::read_to_string(&worker.log)?;
        let took: Vec<f64> = (log.lines())
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|line| line["message"] == "partition ready")
            .filter_map(|line| line["took_ms"].as_f64())
            .collect();
        if took.len() >= usize::try_from(PARTITIONS)? {
            return Ok(took.into_iter().fold(0.0, f64::max) / 1e3);
        }
        assert!(Instant::now() < deadline, "the partitions were not restored:\n{log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads the events from where they end now.
struct Starts(BaseConsumer);

impl Starts {
    fn after_the_end_of(run: &Run) -> Result<Self> {
        let reader: BaseConsumer = client(&run.brokers).set("group.id", "bench").create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..run.partitions {
            let (_, end) =
                reader.fetch_watermarks(&run.topic("events"), partition, Duration::from_secs(10))?;
            list.add_partition_offset(&run.topic("events"), partition, Offset::Offset(end))?;
        }
        reader.assign(&list)?;
        Ok(Self(reader))
    }

    /// Waits until this many tools have started.
    fn wait(&self, count: usize) -> Result<()> {
        let (mut seen, deadline) = (0, Instant::now() + Duration::from_secs(60));
        while seen < count {
            assert!(Instant::now() < deadline, "{seen} of {count} tools started");
            if let Some(message) = self.0.poll(Duration::from_millis(100)) {
                let message = message?;
                let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
                seen += usize::from(value.contains("\"type\":\"tool:start\""));
            }
        }
        Ok(())
    }
}

/// A small log and a large one.
pub fn run(brokers: &str) -> Result<()> {
    println!("\nrestore after a crash, {IN_FLIGHT} turns in flight on {PARTITIONS} partitions:");
    let small = restores(brokers, 10_000)?;
    let large = restores(brokers, 1_000_000)?;
    let median = |seconds: &[f64]| seconds[seconds.len() / 2];
    println!(
        "\nmedian restore: 10,000 events {:.0} ms, 1,000,000 events {:.0} ms, ratio {:.2}",
        median(&small) * 1e3,
        median(&large) * 1e3,
        median(&large) / median(&small)
    );
    Ok(())
}
