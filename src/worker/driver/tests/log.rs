//! What a log says, and a log that loses appends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::*;

/// What the events of one turn say, but for those that a worker wrote after another had claimed the partition.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The recorded replies, in order: the position of each, and which reply of which agent it is.
    pub replies: Vec<(String, String)>,
    /// The keys of calls with a result, those that never started too.
    pub results: Vec<String>,
    /// The last attempt that started, by key.
    pub starts: BTreeMap<String, u32>,
    pub outputs: usize,
    /// The offset of the answer.
    pub output: Option<usize>,
    pub ends: usize,
    /// Positions with more than one content.
    pub twice: Vec<String>,
}

impl Facts {
    /// The replies by agent and number, in order.
    pub(super) fn said(&self) -> Vec<&str> {
        self.replies.iter().map(|(_, reply)| reply.as_str()).collect()
    }

    /// Whether what is at this key is recorded, or inside of what is.
    pub(super) fn has(&self, key: &str) -> bool {
        let inside =
            |outer: &String| key.strip_prefix(outer.as_str()).is_some_and(|rest| rest.starts_with('/'));
        let reply = |(position, _): &(String, String)| key == format!("{KEY}/{position}");
        self.results.iter().any(|result| result == key || inside(result)) || self.replies.iter().any(reply)
    }

    pub(super) fn of(events: &[StepEvent]) -> Self {
        let mut facts = Self::default();
        let mut contents = std::collections::HashSet::new();
        let mut claim = None;
        let mut made = crate::journal::Contents::default();
        for (offset, event) in events.iter().enumerate() {
            if event.kind == EventType::Claim {
                claim = Some(offset);
            } else if event.fence.and_then(|fence| usize::try_from(fence).ok()) != claim {
                continue;
            }
            if !made.admit(event) {
                continue;
            }
            let position = event.position.as_ref().map(ToString::to_string).unwrap_or_default();
            let key = event.idempotency_key.as_ref().map(ToString::to_string).unwrap_or_default();
            if !position.is_empty() {
                assert_eq!(key, format!("{KEY}/{position}"), "a key is its position's");
            }
            match event.kind {
                EventType::ModelReply => {
                    let number = position.rsplit('m').next().unwrap();
                    facts
                        .replies
                        .push((position.clone(), format!("{} {number}", event.agent.as_ref().unwrap())));
                }
                // A called agent does nothing itself.
                EventType::ToolStart if event.tool.as_ref().unwrap().starts_with("agent_") => {}
                EventType::ToolStart => {
                    facts.starts.insert(key, event.attempt.unwrap());
                }
                EventType::ToolResult => facts.results.push(key),
                EventType::Step if event.status.is_none() => {
                    facts.starts.insert(key, event.attempt.unwrap());
                }
                EventType::Step => facts.results.push(key),
                EventType::TurnOutput => {
                    facts.outputs += 1;
                    facts.output = Some(offset);
                }
                EventType::TurnEnd => facts.ends += 1,
                EventType::Claim | EventType::TurnStart => {}
            }
            let is_content = match event.kind {
                EventType::ModelReply | EventType::ToolResult => true,
                EventType::Step => event.status.is_some(),
                _ => false,
            };
            if is_content && !contents.insert(position.clone()) {
                facts.twice.push(position);
            }
        }
        facts
    }
}

/// What goes wrong with which append, counted from the claim.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// It and all later ones fail.
    From(usize),
    /// It fails and later ones do not.
    Only(usize),
    /// The worker dies when it makes it.
    Death(usize),
    /// Another worker claims the partition just before it, and completes the turn.
    Takeover(usize),
}

/// A log whose acknowledgements take a while, and whose worker has a fault.
pub(super) struct Lossy {
    inner: Arc<MemoryLog>,
    fault: Fault,
    appends: AtomicUsize,
    signal: Arc<Signal>,
}

#[derive(Default)]
struct Signal {
    dead: Notify,
    taken: Notify,
    resume: Notify,
}

impl Lossy {
    pub(super) fn new(inner: &Arc<MemoryLog>, fault: Fault) -> Self {
        Self { inner: Arc::clone(inner), fault, appends: AtomicUsize::new(0), signal: Arc::default() }
    }

    /// Delivers the record to a worker with this fault. None: it died.
    pub(super) async fn deliver(world: &World, fault: Fault) -> Option<Delivered> {
        let log = Self::new(&world.log, fault);
        let signal = Arc::clone(&log.signal);
        let began = std::cell::Cell::new(false);
        let successor = async {
            signal.taken.notified().await;
            began.set(true);
            world.finish().await;
            signal.resume.notify_one();
        };
        let delivery = async {
            tokio::select! {
                biased;
                () = signal.dead.notified() => None,
                delivered = world.deliver(Arc::new(log)) => Some(delivered),
            }
        };
        tokio::pin!(successor, delivery);
        tokio::select! {
            biased;
            delivered = &mut delivery => {
                // It may hear of the other's claim before the other has done its work.
                if began.get() {
                    successor.await;
                }
                delivered
            }
            () = &mut successor => delivery.await,
        }
    }
}

#[async_trait]
impl Log for Lossy {
    async fn append(&self, partition: i32, key: String, value: Vec<u8>) -> Result<Receipt, journal::Error> {
        let index = self.appends.fetch_add(1, Ordering::SeqCst);
        let lost = match self.fault {
            Fault::From(first) => index >= first,
            Fault::Only(one) => index == one,
            Fault::Death(last) if index >= last => {
                self.signal.dead.notify_one();
                return std::future::pending().await;
            }
            Fault::Takeover(at) if index == at => {
                self.signal.taken.notify_one();
                self.signal.resume.notified().await;
                false
            }
            Fault::Death(_) | Fault::Takeover(_) => false,
        };
        let outcome = match lost {
            true => Err(journal::Error::Log("lost".into())),
            false => self.inner.append(partition, key, value).await?.acknowledged().await,
        };
        Ok(Receipt::other(async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            outcome
        }))
    }

    async fn begin(&self, partition: i32) -> Result<i64, journal::Error> {
        self.inner.begin(partition).await
    }

    fn scan(&self, partition: i32, from: i64, to: i64) -> Box<dyn Entries> {
        self.inner.scan(partition, from, to)
    }

    fn whole(&self, partition: i32) -> Box<dyn Entries> {
        self.inner.whole(partition)
    }

    async fn follow(&self, partition: i32, from: i64, pass: Pass) -> journal::Error {
        self.inner.follow(partition, from, pass).await
    }

    fn for_a_turn(self: Arc<Self>) -> Arc<dyn Log> {
        self
    }

    fn max_record_bytes(&self) -> usize {
        self.inner.max_record_bytes()
    }
}
