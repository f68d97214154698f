//! Which events count: fences and claims. Pure.

use std::collections::BTreeSet;

/// The claims of a partition that are known, by offset.
///
/// A claim is known from its record, as the floor of a committed recovery point, or because an event carries
/// its offset as a fence: an event proves its claim.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    known: BTreeSet<i64>,
}

impl Claims {
    /// No claims, or the one that is known to be the highest before where reading begins.
    pub(crate) fn new(floor: Option<i64>) -> Self {
        Self { known: floor.into_iter().collect() }
    }

    /// A claim is known.
    pub(crate) fn learn(&mut self, claim: i64) {
        self.known.insert(claim);
    }

    /// Whether an event counts: no claim lies between its fence and its offset (design rule 2). Right for sure
    /// once everything before `offset` was read.
    pub(crate) fn accept(&self, fence: i64, offset: i64) -> bool {
        fence < offset && self.known.range(fence.saturating_add(1)..offset).next().is_none()
    }

    /// The highest claim below `offset`.
    pub(crate) fn highest_below(&self, offset: i64) -> Option<i64> {
        self.known.range(..offset).next_back().copied()
    }

    /// Forgets what lies below the highest claim under `offset`: nothing before `offset` is judged any more.
    pub(crate) fn prune(&mut self, offset: i64) {
        if let Some(floor) = self.highest_below(offset) {
            self.known = self.known.split_off(&floor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_if_no_claim_lies_between_its_fence_and_itself() {
        let mut claims = Claims::new(None);
        claims.learn(10);
        claims.learn(20);
        assert!(claims.accept(10, 15));
        assert!(!claims.accept(10, 25), "a late write of an earlier owner");
        assert!(claims.accept(20, 25));
        assert!(claims.accept(10, 20), "written just before the claim");
        assert!(!claims.accept(30, 25), "no event is older than its claim");
    }

    #[test]
    fn the_floor_voids_what_an_owner_before_it_writes_late() {
        let claims = Claims::new(Some(10));
        assert!(!claims.accept(5, 30));
        assert!(claims.accept(10, 30));
    }

    #[test]
    fn pruning_changes_no_later_judgement() {
        let mut claims = Claims::new(None);
        [3, 9, 14].into_iter().for_each(|claim| claims.learn(claim));
        let before = claims.clone();
        claims.prune(12);
        assert_eq!(claims.highest_below(12), Some(9));
        for fence in 0..20 {
            for offset in 12..20 {
                assert_eq!(claims.accept(fence, offset), before.accept(fence, offset), "{fence} {offset}");
            }
        }
    }
}
