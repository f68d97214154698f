//! How the steps of one agent, or of one call of a tool, are counted into positions.

use std::collections::{HashMap, HashSet};

use super::Position;

/// What was begun so far, by kind and name. The same code that begins the same steps in the same order is given the same
/// positions, which is all that a rerun needs.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    replies: u32,
    /// What few have: most code begins nothing but replies, or nothing at all.
    others: Option<Box<Others>>,
}

#[derive(Debug, Clone, Default)]
struct Others {
    /// Per name of a tool.
    direct: HashMap<String, u32>,
    /// Per kind of value.
    values: HashMap<&'static str, u32>,
    /// The ids of the steps.
    steps: HashSet<String>,
}

impl Counters {
    /// The number of the model's next reply, from 0.
    pub fn reply(&mut self) -> u32 {
        take(&mut self.replies)
    }

    /// Where the next direct call of the tool `name` stands; one under an id stands at its id, and is not counted.
    pub fn direct(&mut self, name: &str, id: Option<&str>) -> Position {
        match id {
            Some(id) => Position::direct_with_id(name, id),
            None => {
                let count = self.others().direct.entry(name.to_owned()).or_default();
                Position::direct(name, take(count))
            }
        }
    }

    /// Where the step with this id stands; none where there was one before.
    pub fn step(&mut self, id: &str) -> Option<Position> {
        self.others().steps.insert(id.to_owned()).then(|| Position::step(id))
    }

    /// Where the next value of this kind stands.
    pub fn value(&mut self, kind: &'static str) -> Position {
        Position::value(kind, take(self.others().values.entry(kind).or_default()))
    }

    fn others(&mut self) -> &mut Others {
        self.others.get_or_insert_default()
    }
}

fn take(count: &mut u32) -> u32 {
    let taken = *count;
    *count = count.saturating_add(1);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_counter_and_an_id_none() {
        let mut counters = Counters::default();
        let mut next = |name, id| counters.direct(name, id).to_string();
        assert_eq!([next("a", None), next("b", None), next("a", None)], ["a#0", "b#0", "a#1"]);
        assert_eq!(
            [next("a", Some("7")), next("a", Some("7")), next("a", None)],
            ["a#id=7", "a#id=7", "a#2"]
        );
        assert_eq!([counters.reply(), counters.reply()], [0, 1]);
        assert_eq!(counters.step("a").unwrap().as_str(), "step:a");
        assert_eq!(counters.step("a"), None);
        assert_eq!(
            [counters.value("now"), counters.value("now")].map(|p| p.to_string()),
            ["step:now#0", "step:now#1"]
        );
    }
}
