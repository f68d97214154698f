//! Which events of a turn count: what they were made from. Pure.

use crate::record::StepEvent;

/// How many events of a turn that its last owner has written count, of those that others may be made from; in the order
/// of the log. What an earlier owner has written was all read before the next one went on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Contents {
    fence: Option<i64>,
    count: u32,
}

impl Contents {
    /// Takes in an event that nothing else makes void. False: something that it was made from never came to the log, and it
    /// does not count (rule 13).
    pub(crate) fn admit(&mut self, event: &StepEvent) -> bool {
        if self.fence != event.fence {
            *self = Self { fence: event.fence, count: 0 };
        }
        if event.made_from.is_some_and(|contents| self.count < contents) {
            return false;
        }
        self.add(event);
        true
    }

    /// An event is handed over.
    pub(crate) fn add(&mut self, event: &StepEvent) {
        self.count = self.count.saturating_add(u32::from(event.is_content()));
    }

    /// How many there are.
    pub(crate) fn count(self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EventType, Status};

    fn event(kind: EventType, made_from: Option<u32>) -> StepEvent {
        StepEvent { made_from, ..StepEvent::new(kind) }
    }

    #[test]
    fn what_lacks_something_that_it_was_made_from_does_not_count_nor_does_what_was_made_from_it() {
        use EventType::{ModelReply, ToolResult, ToolStart, TurnOutput, TurnStart};
        let admitted = |events: &[(EventType, Option<u32>)]| {
            let mut contents = Contents::default();
            events
                .iter()
                .map(|(kind, made_from)| contents.admit(&event(*kind, *made_from)))
                .collect::<Vec<_>>()
        };
        let whole = [
            (TurnStart, None),
            (ModelReply, Some(1)),
            (ToolStart, None),
            (ToolResult, None),
            (ModelReply, Some(3)),
            (TurnOutput, Some(4)),
        ];
        assert_eq!(admitted(&whole), [true; 6]);
        let without = |lost: usize| {
            let mut events = whole.to_vec();
            events.remove(lost);
            admitted(&events)
        };
        assert_eq!(without(0), [false, true, true, false, false]);
        assert_eq!(without(1), [true, true, true, false, false]);
        assert_eq!(without(2), [true; 5], "nothing is made from a start");
        assert_eq!(without(3), [true, true, true, false, false]);
        assert_eq!(without(4), [true, true, true, true, false]);
    }

    #[test]
    fn what_a_later_owner_writes_is_made_from_what_it_has_read_whatever_is_left_of_that() {
        let mut contents = Contents::default();
        let mut admit = |fence, kind, made_from| {
            contents.admit(&StepEvent { fence: Some(fence), ..event(kind, made_from) })
        };
        assert!(admit(1, EventType::TurnStart, None));
        assert!(!admit(1, EventType::ModelReply, Some(2)));
        assert!(admit(7, EventType::TurnStart, None));
        assert!(admit(7, EventType::ModelReply, Some(1)));
        assert!(!admit(7, EventType::ModelReply, Some(3)), "a result is missing");
        assert!(!admit(9, EventType::TurnOutput, Some(1)), "its own start is missing");
    }

    #[test]
    fn a_turn_that_is_given_up_says_nothing_to_go_by() {
        let mut contents = Contents::default();
        contents.admit(&StepEvent { status: Some(Status::Ok), ..event(EventType::TurnStart, None) });
        assert_eq!(contents.count(), 0);
    }
}
