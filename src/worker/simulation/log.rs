//! The simulated events partition: appends that land late, fail or lose their acknowledgement, compaction,
//! transactions, and readers that lag.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};

use super::world::{Fate, Gate, Rule, Sim};
use crate::journal::{Entries, Entry, Error, Log, Pass, Receipt, follow_entries};
use crate::record::StepEvent;

/// A record, or the mark of a transaction's end, which has an offset and is never read.
pub(super) struct Rec {
    pub key: String,
    pub value: Vec<u8>,
    pub of: Of,
    /// Neither compacted away nor a mark.
    pub alive: bool,
}

/// Which transaction a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    None,
    Open,
    Committed,
    Aborted,
}

/// The partition: everything that was ever on it, in order.
#[derive(Default)]
pub(super) struct Partition {
    pub records: Vec<Rec>,
    /// Where the log begins: what lies before is gone.
    pub begin: usize,
}

impl Partition {
    pub(super) fn push(&mut self, key: String, value: Vec<u8>, of: Of) -> usize {
        self.records.push(Rec { key, value, of, alive: true });
        self.records.len() - 1
    }

    pub(super) fn mark(&mut self) {
        self.records.push(Rec { key: String::new(), value: Vec::new(), of: Of::None, alive: false });
    }

    /// Keeps the last record of each key below `to`. What a transaction aborted goes, and what is open stays.
    pub(super) fn compact(&mut self, to: usize, without: Option<Rule>) {
        let mut last: HashMap<String, usize> = HashMap::new();
        for (offset, record) in self.records[..to].iter_mut().enumerate() {
            if record.of == Of::Aborted {
                record.alive = false;
            }
            if record.alive && record.of != Of::Open {
                last.insert(compaction_key(&record.key, without), offset);
            }
        }
        for (offset, record) in self.records[..to].iter_mut().enumerate() {
            let kept =
                record.of == Of::Open || last.get(&compaction_key(&record.key, without)) == Some(&offset);
            record.alive &= kept;
        }
    }
}

fn compaction_key(key: &str, without: Option<Rule>) -> String {
    let scope = key.rsplit_once('@').map_or(key, |(scope, _)| scope);
    let merged = match without {
        Some(Rule::FenceInKey) => !key.starts_with("claim@"),
        Some(Rule::UniqueClaim) => key.starts_with("claim@"),
        _ => false,
    };
    if merged { scope.to_owned() } else { key.to_owned() }
}

/// An append that is on its way.
pub(super) struct Append {
    pub key: String,
    pub value: Vec<u8>,
    pub ack: oneshot::Sender<Result<i64, Error>>,
}

/// An append that landed, whose acknowledgement is on its way.
pub(super) struct Ack {
    pub process: usize,
    pub offset: i64,
    pub ack: oneshot::Sender<Result<i64, Error>>,
}

/// Claims go through the first; a turn's events through either.
const PRODUCERS: usize = 2;

/// What a process has on its way to the partition, and how far it has read.
pub(super) struct Client {
    /// Of each of its producers: only what went through the same one lands in order.
    pub appends: [VecDeque<Append>; PRODUCERS],
    /// Its tail has everything below.
    pub seen: watch::Sender<usize>,
}

impl Default for Client {
    fn default() -> Self {
        Self { appends: Default::default(), seen: watch::Sender::new(0) }
    }
}

/// The partition, as one process uses it.
pub(super) struct SimLog {
    pub sim: Sim,
    pub process: usize,
    /// The producer that appends go through.
    pub through: usize,
}

#[async_trait]
impl Log for SimLog {
    async fn append(&self, _: i32, key: String, mut value: Vec<u8>) -> Result<Receipt, Error> {
        let (ack, acknowledged) = oneshot::channel();
        let mut world = self.sim.lock();
        if world.without == Some(Rule::MadeFrom)
            && let Ok(mut event) = serde_json::from_slice::<StepEvent>(&value)
        {
            event.made_from = None;
            value = serde_json::to_vec(&event).unwrap();
        }
        if let Some(client) = world.clients.get_mut(&self.process) {
            client.appends[self.through].push_back(Append { key, value, ack });
        }
        Ok(Receipt::other(async move { acknowledged.await.unwrap_or_else(|_| Err(gone())) }))
    }

    async fn begin(&self, _: i32) -> Result<i64, Error> {
        Ok(self.sim.lock().events.begin as i64)
    }

    fn scan(&self, _: i32, from: i64, to: i64) -> Box<dyn Entries> {
        Box::new(self.read(Some(from), Some(to)))
    }

    fn whole(&self, _: i32) -> Box<dyn Entries> {
        let end = self.sim.lock().events.records.len() as i64;
        Box::new(self.read(None, Some(end - 1)))
    }

    async fn follow(&self, _: i32, from: i64, pass: Pass) -> Error {
        follow_entries(self.read(Some(from), None), pass).await
    }

    fn for_a_turn(self: Arc<Self>) -> Arc<dyn Log> {
        let through = self.sim.lock().rng.below(PRODUCERS);
        Arc::new(Self { sim: self.sim.clone(), process: self.process, through })
    }

    fn max_record_bytes(&self) -> usize {
        100_000
    }
}

impl SimLog {
    fn read(&self, from: Option<i64>, to: Option<i64>) -> Read {
        let mut world = self.sim.lock();
        let seen = world.clients.entry(self.process).or_default().seen.subscribe();
        let next = from.map_or(world.events.begin, |from| from as usize);
        let to = to.map(|to| (to + 1) as usize);
        Read { sim: self.sim.clone(), process: self.process, next, to, asked: false, seen }
    }
}

struct Read {
    sim: Sim,
    process: usize,
    next: usize,
    /// Where a scan ends; a tail does not.
    to: Option<usize>,
    asked: bool,
    seen: watch::Receiver<usize>,
}

enum Found {
    Entry(Entry),
    /// What it was to read next is gone.
    OutOfRange,
    /// The reader of committed records has met an open transaction.
    Blocked,
    Nothing,
}

impl Read {
    fn look(&mut self) -> Found {
        let world = self.sim.lock();
        let unconfirmed = world.without == Some(Rule::Confirmation);
        let end = match self.to {
            Some(to) => to,
            None if unconfirmed => world.events.records.len(),
            None => *self.seen.borrow(),
        };
        let committed = self.to.is_some() && world.exactly_once && world.without != Some(Rule::ReadCommitted);
        if self.next < world.events.begin {
            return Found::OutOfRange;
        }
        while self.next < end {
            let record = &world.events.records[self.next];
            if committed && record.of == Of::Open {
                return Found::Blocked;
            }
            let offset = self.next as i64;
            self.next += 1;
            let hidden = unconfirmed && self.to.is_none() && record.key.starts_with("claim@");
            if record.alive && !(committed && record.of == Of::Aborted) && !hidden {
                let (key, value) = (record.key.clone().into_bytes(), record.value.clone());
                return Found::Entry(Entry { offset, timestamp: None, key, value });
            }
        }
        Found::Nothing
    }
}

#[async_trait]
impl Entries for Read {
    async fn next(&mut self) -> Option<Result<Entry, Error>> {
        loop {
            if self.to.is_some() && !self.asked {
                if self.sim.gate(Gate::Scan, self.process).await != Fate::Goes {
                    return Some(Err(gone()));
                }
                self.asked = true;
            }
            self.seen.borrow_and_update();
            match self.look() {
                Found::Entry(entry) => return Some(Ok(entry)),
                Found::OutOfRange => return Some(Err(gone())),
                Found::Blocked => self.asked = false,
                Found::Nothing if self.to.is_some() => return None,
                Found::Nothing => {
                    if self.seen.changed().await.is_err() {
                        return None;
                    }
                }
            }
        }
    }
}

fn gone() -> Error {
    Error::Log("the simulated log is gone".into())
}
