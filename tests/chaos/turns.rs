//! The turns that are sent all along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use serde_json::json;

use crate::rng::Rng;

const SESSIONS: u64 = 20;
/// No more than so many turns wait for their results: the workers are to be busy, not buried.
const WAITING: usize = 150;

/// How many turns were sent, how many have a result, and how often a partition was taken over.
#[derive(Default)]
pub struct Progress {
    pub sent: AtomicUsize,
    pub results: AtomicUsize,
    pub claims: AtomicUsize,
}

impl Progress {
    pub fn waiting(&self) -> usize {
        self.sent.load(Ordering::SeqCst).saturating_sub(self.results.load(Ordering::SeqCst))
    }
}

/// A thread that sends turns, until it is told to stop.
pub struct Turns {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Turns {
    pub fn start(brokers: &str, topic: &str, mut rng: Rng, progress: Arc<Progress>) -> Self {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", brokers)
            .set("partitioner", "murmur2_random")
            .set("enable.idempotence", "true")
            // A broker that restarts is waited for.
            .set("message.timeout.ms", "120000")
            .set("reconnect.backoff.max.ms", "500");
        let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (told, topic) = (Arc::clone(&stop), topic.to_owned());
        let thread = std::thread::spawn(move || {
            let mut counts = [0; SESSIONS as usize];
            while !told.load(Ordering::SeqCst) {
                sleep(rng.millis(10..55));
                if progress.waiting() >= WAITING {
                    continue;
                }
                let number = rng.index(counts.len());
                let (session, turn) = (session(number), format!("t{}", counts[number]));
                counts[number] += 1;
                let value = turn_json(&session, &turn, &mut rng);
                let record = BaseRecord::to(&topic).key(&session).payload(&value);
                producer.send(record).map_err(|(error, _)| error).unwrap();
                progress.sent.fetch_add(1, Ordering::SeqCst);
            }
            producer.flush(Duration::from_secs(120)).unwrap();
        });
        Self { stop, thread }
    }

    /// Everything that was sent is on the log when it returns.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// One of them has to be percent-encoded in its keys.
fn session(number: usize) -> String {
    match number {
        0 => "séance/7 %".into(),
        number => format!("s{number:02}"),
    }
}

fn turn_json(session: &str, turn: &str, rng: &mut Rng) -> String {
    let replies = rng.below(4);
    let calls: Vec<String> = (0..replies).map(|_| (1 + rng.below(3)).to_string()).collect();
    // Two of three are a model's, the others an agent's in code.
    let agent = if rng.below(3) == 0 { "coder" } else { "chaos" };
    let turn = json!({
        "turn_id": turn,
        "session_id": session,
        "agent": agent,
        "input": format!("go {}", rng.next()),
        "metadata": {"calls": calls.join(",")},
    });
    turn.to_string()
}
