//! Where a restore begins: the recovery point that is committed beside the watermark. Pure.

use std::collections::BTreeMap;
use std::fmt;

use super::claims::Claims;

/// What the metadata of a commit says; of constant size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    /// The watermark that it was committed with.
    pub watermark: i64,
    /// Where to read the events partition from (R).
    pub from: i64,
    /// The highest claim before that.
    pub floor: Option<i64>,
    /// The id of the events topic: another topic of the same name is another journal.
    pub topic_id: String,
}

/// Why a point is of no use; then the log is read from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// Nothing was committed with the watermark.
    #[error("the commit has no metadata of ours")]
    None,
    /// Somebody else's metadata, or a later version's.
    #[error("the commit's metadata cannot be read")]
    Unreadable,
    /// The offsets were moved and the metadata kept.
    #[error("the commit's metadata belongs to the watermark {0}: the offsets were moved")]
    Moved(i64),
    /// The events topic was made anew.
    #[error("the commit's metadata belongs to another events topic of the same name")]
    OtherTopic,
    /// The point lies outside the log.
    #[error("the commit's metadata points to offset {from}, and the log goes from {start} to {end}")]
    Outside { from: i64, start: i64, end: i64 },
}

impl Point {
    /// Reads the metadata of a commit of `watermark`, for the events topic of this id.
    ///
    /// # Errors
    /// It is of no use (design rule 8).
    pub(crate) fn read(metadata: &str, watermark: i64, topic_id: &str) -> Result<Self, Unusable> {
        if metadata.is_empty() {
            return Err(Unusable::None);
        }
        let point = Self::parse(metadata).ok_or(Unusable::Unreadable)?;
        if point.watermark != watermark {
            return Err(Unusable::Moved(point.watermark));
        }
        if point.topic_id != topic_id {
            return Err(Unusable::OtherTopic);
        }
        Ok(point)
    }

    /// Whether the log has what the point needs: it may begin above it only where nothing was lost that counts,
    /// which nobody can know.
    ///
    /// # Errors
    /// The point lies outside the log.
    pub(crate) fn within(self, start: i64, end: i64) -> Result<Self, Unusable> {
        let from = self.from;
        if (start..=end).contains(&from) { Ok(self) } else { Err(Unusable::Outside { from, start, end }) }
    }

    fn parse(metadata: &str) -> Option<Self> {
        let mut parts = metadata.split(' ');
        if parts.next()? != VERSION {
            return None;
        }
        let mut field = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        let watermark = field("w")?.parse().ok()?;
        let from = field("r")?.parse().ok()?;
        let floor = match field("floor")? {
            "-" => None,
            text => Some(text.parse().ok()?),
        };
        let topic_id = field("topic")?.to_owned();
        parts.next().is_none().then_some(Self { watermark, from, floor, topic_id })
    }
}

/// Names the format; another one gets another name.
const VERSION: &str = "turnmill/1";

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watermark, from, topic_id, .. } = self;
        write!(f, "{VERSION} w={watermark} r={from} floor=")?;
        match self.floor {
            Some(floor) => write!(f, "{floor}")?,
            None => f.write_str("-")?,
        }
        write!(f, " topic={topic_id}")
    }
}

/// The first event of each turn that may come again, by the offset of its record: what a recovery point is
/// made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstEvents {
    by_input: BTreeMap<i64, i64>,
}

impl FirstEvents {
    /// An event of the turn at `input` was read. They come in the order of the log, so the first one stays.
    pub(crate) fn note(&mut self, input: i64, event: i64) {
        self.by_input.entry(input).or_insert(event);
    }

    /// The lowest first event over all turns at or above the watermark, finished or not; else where reading
    /// goes on (design rule 19). What lies below the watermark is forgotten.
    pub(crate) fn lowest(&mut self, watermark: i64, position: i64) -> i64 {
        self.by_input = self.by_input.split_off(&watermark);
        self.by_input.values().copied().fold(position, i64::min)
    }
}

/// The point to commit with a watermark.
pub(crate) fn point(
    first: &mut FirstEvents,
    claims: &Claims,
    watermark: i64,
    position: i64,
    topic_id: &str,
) -> Point {
    let from = first.lowest(watermark, position);
    Point { watermark, from, floor: claims.highest_below(from), topic_id: topic_id.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(w in any::<i64>(), from in any::<i64>(), floor in any::<Option<i64>>()) {
            let point = Point { watermark: w, from, floor, topic_id: "AAECAwQFBgcICQoLDA0ODw".into() };
            let text = point.to_string();
            prop_assert!(text.len() < 128);
            prop_assert_eq!(Point::read(&text, w, "AAECAwQFBgcICQoLDA0ODw").unwrap(), point);
        }

        #[test]
        fn what_others_write_is_refused_and_never_panics(text in any::<String>()) {
            prop_assert!(Point::read(&text, 1, "x").is_err());
        }
    }

    #[test]
    fn a_point_is_used_only_for_its_own_commit() {
        let point = Point { watermark: 5, from: 9, floor: Some(7), topic_id: "a".into() };
        let text = point.to_string();
        assert_eq!(text, "turnmill/1 w=5 r=9 floor=7 topic=a");
        assert_eq!(Point::read(&text, 6, "a"), Err(Unusable::Moved(5)));
        assert_eq!(Point::read(&text, 5, "b"), Err(Unusable::OtherTopic));
        assert_eq!(Point::read("", 5, "a"), Err(Unusable::None));
        assert_eq!(Point::read("turnmill/2 w=5 r=9 floor=7 topic=a", 5, "a"), Err(Unusable::Unreadable));
        assert_eq!(Point::read(&format!("{text} more=1"), 5, "a"), Err(Unusable::Unreadable));
        assert!(point.clone().within(9, 9).is_ok() && point.clone().within(0, 100).is_ok());
        assert!(matches!(point.clone().within(10, 20), Err(Unusable::Outside { .. })));
        assert!(matches!(point.within(0, 8), Err(Unusable::Outside { .. })));
    }

    #[test]
    fn finished_turns_at_or_above_the_watermark_count_too() {
        let mut first = FirstEvents::default();
        first.note(10, 100);
        first.note(12, 90);
        first.note(10, 50);
        let claims = [20, 95].into_iter().fold(Claims::new(None), |mut claims, c| {
            claims.learn(c);
            claims
        });
        assert_eq!(
            point(&mut first, &claims, 10, 200, "t"),
            Point { watermark: 10, from: 90, floor: Some(20), topic_id: "t".into() }
        );
        assert_eq!(point(&mut first, &claims, 13, 200, "t").from, 200);
        assert_eq!(point(&mut first, &claims, 13, 200, "t").floor, Some(95));
    }
}
