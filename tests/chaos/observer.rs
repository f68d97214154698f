//! Reads events and results while they come, before any compaction: the whole history.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::topics::{Raw, Reader, See};
use crate::turns::Progress;

pub struct Observer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Raw>>,
}

impl Observer {
    pub fn start(brokers: &str, events: &str, results: &str, see: See, progress: Arc<Progress>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let mut reader = Reader::open(brokers, &[events, results], see);
        let events = events.to_owned();
        let thread = std::thread::spawn(move || {
            let (mut history, mut answered) = (Vec::new(), HashSet::new());
            loop {
                // Told before it looks, so that what was there then is read.
                let last = told.load(Ordering::SeqCst);
                match reader.poll() {
                    Some((topic, raw)) if topic == events => {
                        let claim = usize::from(raw.key.starts_with("claim@"));
                        progress.claims.fetch_add(claim, Ordering::SeqCst);
                        history.push(raw);
                    }
                    Some((_, raw)) => {
                        let result = raw.json();
                        answered.insert((result["session_id"].to_string(), result["turn_id"].to_string()));
                        progress.results.store(answered.len(), Ordering::SeqCst);
                    }
                    None if last => return history,
                    None => {}
                }
            }
        });
        Self { stop, thread }
    }

    /// All events, partition after partition.
    pub fn stop(self) -> Vec<Raw> {
        self.stop.store(true, Ordering::SeqCst);
        let mut history = self.thread.join().unwrap();
        history.sort_by_key(|raw| (raw.partition, raw.offset));
        history
    }
}
