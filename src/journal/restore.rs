//! Taking a partition over: claim, read, merge (rules 7 to 9).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::claims::Claims;
use super::live::{Live, Lost};
use super::point::{FirstEvents, Point, Unusable};
use super::table::Table;
use super::{Entry, Error, Journal, Log, encode, peek};
use crate::metrics::metrics;
use crate::record::{Claim, EventType, StepEvent};

/// How many offsets before the recovery point are read for the ends of turns alone, so that a second copy of a turn is
/// recognised after a takeover too; and for how long: what comes after it is what a takeover waits for.
const ENDS_BEFORE: i64 = 2_000;
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How far the clocks of producers and workers may be apart, in milliseconds, where it is judged whether a turn is older
/// than events that are gone.
const CLOCKS: i64 = 60_000;

/// Who takes a partition over.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The consumer group.
    pub group: String,
    /// The topic whose turns are recorded.
    pub turns_topic: String,
    /// The worker, for people.
    pub name: String,
    /// The id of the events topic.
    pub topic_id: String,
    /// Whether ends of turns are written in transactions: a committed one counts whatever its fence (rule 26).
    pub exactly_once: bool,
}

impl Member {
    /// # Errors
    /// The claim is another group's, or for another turns topic.
    fn recognise(&self, claim: &Claim) -> Result<(), Error> {
        let ours = claim.group == self.group && claim.turns_topic == self.turns_topic;
        let foreign =
            || Error::Foreign { group: claim.group.clone(), turns_topic: claim.turns_topic.clone() };
        if ours { Ok(()) } else { Err(foreign()) }
    }
}

/// What is taken over, and from where.
#[derive(Debug, Clone)]
pub(crate) struct TakeOver {
    /// The partition.
    pub partition: i32,
    /// The lowest offset of the turns that is not finished; none where nothing was committed.
    pub watermark: Option<i64>,
    /// What was committed beside it.
    pub metadata: String,
}

/// A partition that was taken over.
pub(crate) struct Restored {
    /// Its writer.
    pub journal: Journal,
    /// What was recorded before the claim.
    pub table: Table,
    /// How many events were read from the recovery point on.
    pub events: usize,
    /// The log has lost events that the recovery point counts on. What they were of was sent before this time, in
    /// milliseconds since 1970 UTC. None: it has lost nothing.
    pub lost_before: Option<i64>,
}

/// Takes a partition over: appends a claim, reads from the recovery point up to it (and some before that point, for the
/// ends of turns), and merges what it read. The claim is the barrier: everything written before it is in the table,
/// and nothing that another worker writes after it counts.
///
/// # Errors
/// The log does not answer, or belongs to somebody else.
pub(crate) async fn restore(log: Arc<dyn Log>, member: &Member, what: &TakeOver) -> Result<Restored, Error> {
    let partition = what.partition;
    let watermark = what.watermark.unwrap_or(0);
    let point = Point::read(&what.metadata, watermark, &member.topic_id);
    if point.is_err() {
        // Nothing says that the journal is ours, and a claim would stop its owner.
        look_for_others(&*log, member, partition).await?;
    }
    let fence = claim(&*log, member, partition).await?;
    let begin = log.begin(partition).await?;
    let point = point.and_then(|point| point.within(begin, fence));
    if let Err(why) = &point {
        report(partition, watermark, why);
    }
    // A transaction's mark has an offset and says nothing: where only that is gone, nothing is.
    let marks = i64::from(member.exactly_once);
    let lost_from = match &point {
        Err(Unusable::Outside { from, start, .. }) if from + marks < *start => Some(*from),
        _ => None,
    };
    let floor = point.as_ref().ok().and_then(|point| point.floor);
    let from = point.ok().map(|point| point.from);
    let mut reading = Reading {
        watermark,
        from: from.unwrap_or(begin),
        claims: Claims::new(floor),
        first: FirstEvents::default(),
        table: Table::new(watermark),
        events: 0,
        began: None,
    };
    if from.is_none() && begin > 0 {
        // Claims before the beginning of the log are gone; only the events that carry them as their fence still
        // tell of them, maybe after the event that they make void.
        reading.learn_fences(&*log, partition, begin, fence).await?;
    }
    reading.read(&*log, member, partition, begin, fence).await?;
    let Reading { mut claims, first, mut table, events, began, .. } = reading;
    claims.learn(fence);
    table.restored();
    let live = Arc::new(Live::new(
        fence,
        &member.topic_id,
        claims,
        first,
        lost_from.map(|from| Lost { from, begin }),
    ));
    // Where no event says when it was written, anything may be of what was lost.
    let lost_before = lost_from.map(|_| began.map_or(i64::MAX, |began| began.saturating_add(CLOCKS)));
    Ok(Restored { journal: Journal { log, partition, live }, table, events, lost_before })
}

async fn claim(log: &dyn Log, member: &Member, partition: i32) -> Result<i64, Error> {
    let mut claim = StepEvent::new(EventType::Claim);
    claim.claim = Some(Claim {
        nonce: uuid::Uuid::new_v4().to_string(),
        group: member.group.clone(),
        turns_topic: member.turns_topic.clone(),
        member: member.name.clone(),
    });
    let (key, value) = encode(&claim)?;
    log.append(partition, key, value).await?.acknowledged().await
}

/// # Errors
/// The journal belongs to somebody else, or the log does not answer.
async fn look_for_others(log: &dyn Log, member: &Member, partition: i32) -> Result<(), Error> {
    let mut entries = log.whole(partition);
    while let Some(entry) = entries.next().await {
        let entry = entry?;
        if peek::event(&entry.key, b"") == peek::Peek::Claim
            && let Ok(StepEvent { claim: Some(claim), .. }) = serde_json::from_slice(&entry.value)
        {
            member.recognise(&claim)?;
        }
    }
    Ok(())
}

fn report(partition: i32, watermark: i64, why: &Unusable) {
    match why {
        // A group at its very start has nothing to tell.
        Unusable::None if watermark == 0 => {}
        why => tracing::warn!(
            partition,
            watermark,
            reason = %why,
            "the recovery point cannot be used: the events partition is read from its beginning"
        ),
    }
}

struct Reading {
    watermark: i64,
    /// Where what counts begins.
    from: i64,
    claims: Claims,
    first: FirstEvents,
    table: Table,
    events: usize,
    /// When the first event was written.
    began: Option<i64>,
}

impl Reading {
    async fn learn_fences(
        &mut self,
        log: &dyn Log,
        partition: i32,
        begin: i64,
        to: i64,
    ) -> Result<(), Error> {
        let mut entries = log.scan(partition, begin, to);
        while let Some(entry) = entries.next().await {
            if let Some(fence) = peek::fence(&entry?.key) {
                self.claims.learn(fence);
            }
        }
        Ok(())
    }

    async fn read(
        &mut self,
        log: &dyn Log,
        member: &Member,
        partition: i32,
        begin: i64,
        to: i64,
    ) -> Result<(), Error> {
        let mut entries = log.scan(partition, self.from.saturating_sub(ENDS_BEFORE).max(begin), to);
        let ends_by = Instant::now() + ENDS_WITHIN;
        let mut needed = false;
        while let Some(entry) = entries.next().await {
            let entry = entry?;
            if entry.offset < self.from && !needed && Instant::now() > ends_by {
                // What is only good to have takes too long.
                entries = log.scan(partition, self.from, to);
                needed = true;
                continue;
            }
            self.began = self.began.or(entry.timestamp);
            if entry.offset < self.from {
                self.ended_before(&entry);
                continue;
            }
            match serde_json::from_slice::<StepEvent>(&entry.value) {
                Ok(event) => self.event(member, entry.offset, event)?,
                // Not ours, or from a later version: no step of a turn that this version runs.
                Err(error) => {
                    tracing::warn!(partition, offset = entry.offset, %error, "an event cannot be read, skipped");
                }
            }
        }
        Ok(())
    }

    /// Below the watermark every turn has ended, so that its end is taken from whoever wrote it.
    fn ended_before(&mut self, entry: &Entry) {
        if let peek::Peek::OfTurn { input_offset } = peek::event(&entry.key, &entry.value)
            && input_offset < self.watermark
            && let Ok(event) = serde_json::from_slice::<StepEvent>(&entry.value)
            && event.kind == EventType::TurnEnd
        {
            self.table.apply(entry.offset, event);
        }
    }

    fn event(&mut self, member: &Member, offset: i64, event: StepEvent) -> Result<(), Error> {
        self.events += 1;
        if let Some(claim) = event.claim {
            member.recognise(&claim)?;
            self.claims.learn(offset);
            return Ok(());
        }
        if let Some(input) = event.input_offset {
            self.first.note(input, offset);
        }
        // An event proves its claim (rule 2).
        let fence = event.fence.unwrap_or(-1);
        self.claims.learn(fence);
        let committed = member.exactly_once && event.kind == EventType::TurnEnd;
        match committed || self.claims.accept(fence, offset) {
            true => self.table.apply(offset, event),
            false => {
                metrics().void_events.inc();
                self.table.apply_void(event);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::memory::MemoryLog;
    use crate::turn::{Hash, SessionId, TurnId};

    fn end(turn: &str, fence: i64, input_offset: i64) -> StepEvent {
        let mut event = StepEvent::new(EventType::TurnEnd);
        (event.session_id, event.turn_id) = (SessionId::new("s").ok(), TurnId::new(turn).ok());
        (event.fence, event.input_offset) = (Some(fence), Some(input_offset));
        event.input_hash = Some(Hash::of_bytes(turn.as_bytes()));
        event
    }

    #[tokio::test]
    async fn ends_before_the_recovery_point_are_known_and_nothing_else_of_what_lies_there() {
        let log = Arc::new(MemoryLog::default());
        let member = Member {
            group: "g".into(),
            turns_topic: "t".into(),
            name: "w".into(),
            topic_id: "id".into(),
            exactly_once: false,
        };
        let mut start = StepEvent::new(EventType::TurnStart);
        (start.session_id, start.turn_id) = (SessionId::new("s").ok(), TurnId::new("open").ok());
        // The second is a late write for a record that has not ended: it says nothing.
        for event in [end("done", 0, 4), end("late", 0, 5), start] {
            let (key, value) = encode(&event).unwrap();
            log.append(0, key, value).await.unwrap().acknowledged().await.unwrap();
        }
        let metadata = Point { watermark: 5, from: 3, floor: None, topic_id: "id".into() }.to_string();
        let what = TakeOver { partition: 0, watermark: Some(5), metadata };
        let restored = restore(log, &member, &what).await.unwrap();
        let ended = |turn| restored.table.ended(&SessionId::new("s").unwrap(), &TurnId::new(turn).unwrap());
        assert_eq!(ended("done").map(|end| end.input_offset), Some(4));
        assert_eq!((ended("late"), restored.table.open_turns(), restored.events), (None, 0, 1));
    }
}
