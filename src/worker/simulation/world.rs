//! What outlives the processes: the two logs, the group, what the outside saw, and what is on its way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::check::accepted;
use super::log::{Ack, Client, Of, Partition, Rec};
use super::rng::Rng;
use crate::record::{EventType, StepEvent};

/// A rule of the protocol that a history can be run without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The fence is part of the record key (rule 1).
    FenceInKey,
    /// A claim's key is unique (rule 1).
    UniqueClaim,
    /// The commit's metadata has the highest claim before R (rule 8).
    Floor,
    /// What is made from something that never came to the log does not count (rule 13).
    MadeFrom,
    /// A step is confirmed by reading it back, not by its acknowledgement (rule 12).
    Confirmation,
    /// Nothing that was told is acted upon before it is confirmed (rules 14 and 27).
    StepBoundary,
    /// R is below the first events of finished turns too (rule 19).
    FinishedTurns,
    /// The reader of a restore sees what was committed (rule 7).
    ReadCommitted,
    /// Transactions begin by fencing whoever had the id before (rule 6).
    InitTransactions,
    /// A committed end counts whatever its fence (rule 26).
    CommittedEnd,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// The model's answer.
    Model,
    /// A tool's work.
    Tool,
    /// A restore's first record.
    Scan,
    /// A record on the results topic.
    Publish,
    /// The coordinator's leave to begin transactions.
    Init,
    /// The records of a transaction on their topics.
    Produce,
    /// The end of a transaction.
    Commit,
}

/// How what somebody waits for comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Goes,
    /// It does not happen.
    Fails,
    /// It happens, and whoever waits hears that it failed.
    Unheard,
    /// Whoever waits was killed.
    Gone,
}

pub(super) struct Waiting {
    pub gate: Gate,
    pub process: usize,
    pub tell: oneshot::Sender<Fate>,
}

/// The consumer group, as its coordinator sees it.
#[derive(Default)]
pub(super) struct Group {
    pub owner: Option<usize>,
    /// Another one with every owner: requests of an earlier one are refused.
    pub generation: u64,
    /// The owner is asked to give the partition up.
    pub revoking: bool,
    pub committed: Option<(i64, String)>,
}

/// The transactional id of the partition.
#[derive(Default)]
pub(super) struct Transactional {
    /// Another one with every producer that begins.
    pub epoch: u64,
    /// The results that become visible with the open transaction.
    pub open: Option<Vec<Published>>,
}

/// A record of the turns topic.
pub(super) struct Sent {
    pub session: String,
    pub turn: String,
    pub value: String,
}

/// A record of the results topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Published {
    pub turn: String,
    pub session: String,
    /// The answer, or why there is none.
    pub answer: String,
}

/// The state of a history.
pub(super) struct World {
    pub rng: Rng,
    pub exactly_once: bool,
    pub without: Option<Rule>,
    pub events: Partition,
    /// The turns partition.
    pub turns: Vec<Sent>,
    pub turns_begin: usize,
    pub group: Group,
    pub transactional: Transactional,
    pub clients: BTreeMap<usize, Client>,
    /// The claims of processes that still restore. Compaction leaves alone what is younger: `min.compaction.lag.ms` is
    /// longer than any restore.
    pub restoring: BTreeMap<usize, usize>,
    pub acks: Vec<Ack>,
    pub waiting: Vec<Waiting>,
    pub results: Vec<Published>,
    /// Idempotency keys that tools ran under, the arguments, and how often.
    pub ran: HashMap<String, (String, u32)>,
    /// The turns whose model or tools are busy, by process and session.
    pub busy: HashMap<(usize, String), (String, u32)>,
    pub nonces: u64,
    /// The first promise that was broken.
    pub broken: Option<String>,
}

/// The world, shared by everything in it.
#[derive(Clone)]
pub(super) struct Sim(Arc<Mutex<World>>);

impl Sim {
    pub(super) fn new(seed: u64, exactly_once: bool, without: Option<Rule>) -> Self {
        Self(Arc::new(Mutex::new(World {
            rng: Rng::new(seed),
            exactly_once,
            without,
            events: Partition::default(),
            turns: Vec::new(),
            turns_begin: 0,
            group: Group::default(),
            transactional: Transactional::default(),
            clients: BTreeMap::new(),
            restoring: BTreeMap::new(),
            acks: Vec::new(),
            waiting: Vec::new(),
            results: Vec::new(),
            ran: HashMap::new(),
            busy: HashMap::new(),
            nonces: 0,
            broken: None,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the history lets this happen.
    pub(super) async fn gate(&self, gate: Gate, process: usize) -> Fate {
        let (tell, told) = oneshot::channel();
        self.lock().waiting.push(Waiting { gate, process, tell });
        told.await.unwrap_or(Fate::Gone)
    }
}

impl World {
    pub(super) fn broken(&mut self, what: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(what);
    }

    pub(super) fn nonce(&mut self) -> u64 {
        self.nonces += 1;
        self.nonces
    }

    /// A process is gone: what it waits for never comes, and what it had sent may still land. So may the commit of its
    /// transaction.
    pub(super) fn forget(&mut self, process: usize) {
        for index in (0..self.waiting.len()).rev() {
            if self.waiting[index].process == process {
                let waiting = self.waiting.swap_remove(index);
                if waiting.gate == Gate::Commit && self.rng.once_in(2) {
                    let _ = waiting.tell.send(Fate::Unheard);
                }
            }
        }
        self.acks.retain(|ack| ack.process != process);
        self.restoring.remove(&process);
        self.busy.retain(|(owner, _), _| *owner != process);
    }

    /// Ends the open transaction, if there is one.
    pub(super) fn end_transaction(&mut self, commit: bool) {
        let Some(results) = self.transactional.open.take() else {
            return;
        };
        for record in self.events.records.iter_mut().filter(|record| record.of == Of::Open) {
            record.of = if commit { Of::Committed } else { Of::Aborted };
        }
        self.events.mark();
        if commit {
            self.results.extend(results);
        }
    }

    /// A turn without a result that can be seen.
    pub(super) fn unanswered(&self) -> Option<&Sent> {
        let answered: HashSet<(&str, &str)> =
            self.results.iter().map(|result| (result.session.as_str(), result.turn.as_str())).collect();
        self.turns.iter().find(|sent| !answered.contains(&(sent.session.as_str(), sent.turn.as_str())))
    }

    /// The events partition as it was written, for people.
    pub(super) fn print(&self) {
        for (offset, record) in self.events.records.iter().enumerate() {
            let Rec { key, value, of, alive } = record;
            let value = String::from_utf8_lossy(value);
            println!("{offset} alive {alive}, {of:?}: {key} {value}");
        }
    }

    /// The turns that have events, void ones too: the offset of the turn's last record, its first event, and whether it
    /// has ended.
    fn first_events(&self) -> Vec<(usize, usize, bool)> {
        let ended: HashSet<usize> = accepted(self)
            .into_iter()
            .filter(|(_, event)| event.kind == EventType::TurnEnd)
            .map(|(offset, _)| offset)
            .collect();
        let mut turns: HashMap<(String, String), (usize, usize, bool)> = HashMap::new();
        for (offset, record) in self.events.records.iter().enumerate() {
            let Ok(event) = serde_json::from_slice::<StepEvent>(&record.value) else {
                continue;
            };
            if let (Some(session), Some(turn)) = (event.session_id, event.turn_id) {
                let key = (session.as_str().to_owned(), turn.as_str().to_owned());
                let sent = |sent: &Sent| sent.session == key.0 && sent.turn == key.1;
                let input = self.turns.iter().rposition(sent).unwrap_or(0);
                let known = turns.entry(key).or_insert((input, offset, false));
                known.2 |= ended.contains(&offset);
            }
        }
        turns.into_values().collect()
    }

    /// Retention: finished records of the turns go, and then what only they needed of the events.
    pub(super) fn retain(&mut self) {
        let Some((watermark, metadata)) = &self.group.committed else {
            return;
        };
        let (watermark, point) = (*watermark, field(metadata, "r"));
        let kept = (self.turns_begin..=watermark as usize).count();
        self.turns_begin += self.rng.below(kept);
        let begin = self.turns_begin;
        let needed = self.first_events().into_iter().filter(|(input, ..)| *input >= begin);
        let end = self.events.records.len();
        let bound = needed.map(|(_, first, _)| first).fold(end, usize::min);
        // Retention is days and a late write minutes: what makes the first of them void is there too.
        // Nor is a recovery point that old: it moves on with the log.
        let bound = self.claim_below(bound).unwrap_or(bound).min(point.unwrap_or(bound));
        let behind = bound.saturating_sub(self.events.begin);
        self.events.begin += self.rng.below(behind + 1);
    }

    fn claim_below(&self, offset: usize) -> Option<usize> {
        let mut before = self.events.records[..offset.min(self.events.records.len())].iter();
        before.rposition(|record| record.key.starts_with("claim@"))
    }

    /// The metadata of a commit, as it would be without a rule.
    pub(super) fn point_without(&self, process: usize, metadata: &str) -> String {
        let (Some(watermark), Some(from)) = (field(metadata, "w"), field(metadata, "r")) else {
            return metadata.to_owned();
        };
        let (from, floor) = match self.without {
            Some(Rule::Floor) => (from, None),
            Some(Rule::FinishedTurns) => {
                let open =
                    self.first_events().into_iter().filter(|(input, _, ended)| !ended && *input >= watermark);
                let seen = self.clients.get(&process).map_or(from, |client| *client.seen.borrow());
                let from = open.map(|(_, first, _)| first).fold(seen, usize::min);
                (from, self.claim_below(from))
            }
            _ => return metadata.to_owned(),
        };
        let floor = floor.map_or_else(|| "-".to_owned(), |floor| floor.to_string());
        let topic = metadata.rsplit(' ').next().unwrap_or_default();
        format!("turnmill/1 w={watermark} r={from} floor={floor} {topic}")
    }
}

/// A number of a commit's metadata.
fn field(metadata: &str, name: &str) -> Option<usize> {
    let value = metadata.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok())
}
