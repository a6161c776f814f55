//! Since when bricks are being drained: one that was drained just now may still get blocks.
//!
//! **Model.** A mount that has an older map stores blocks on such a brick, and has their records committed
//! later. So a brick without blocks can be removed only after [`REMOVAL_WAIT`]. Otherwise the record of a
//! block would name a brick that is gone, and the block would have fewer copies than a write promises.
//!
//! **Assumes** nothing about other processes: each knows since when it has known of the draining itself. One
//! that has just started waits anew.

use crate::map::{BrickState, ClusterMap};
use shoal_runtime::time::Instant;
use shoal_types::BrickId;
use shoal_types::limits::REMOVAL_WAIT;
use std::collections::BTreeMap;

/// The bricks that are being drained, or are gone, and when this process first saw that.
#[derive(Default, Debug)]
pub struct Draining(BTreeMap<BrickId, Instant>);

impl Draining {
    /// Takes in a map that this process has learned at this moment.
    pub fn note(&mut self, map: &ClusterMap, now: Instant) {
        let leaves = |id: &BrickId| map.bricks.get(id).is_some_and(|it| it.state != BrickState::Active);
        self.0.retain(|id, _| leaves(id));
        for id in map.bricks.keys().filter(|id| leaves(id)) {
            self.0.entry(*id).or_insert(now);
        }
    }

    /// Whether a brick gets no blocks any more, so that it can be removed if it has none.
    pub fn is_quiet(&self, brick: BrickId, now: Instant) -> bool {
        self.0.get(&brick).is_some_and(|since| now.saturating_duration_since(*since) >= REMOVAL_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Brick;
    use shoal_runtime::time::Duration;
    use shoal_types::{GroupId, NodeId};

    const BRICK: BrickId = BrickId(1);

    fn map(state: BrickState) -> ClusterMap {
        let brick = Brick { node: NodeId(1), path: "/b".into(), volume: GroupId(9), state, replaced: false };
        ClusterMap { bricks: [(BRICK, brick)].into(), ..ClusterMap::default() }
    }

    #[test]
    fn drained_brick_is_quiet_when_all_mounts_have_learned_of_it() {
        let (mut draining, begun) = (Draining::default(), Instant::now());
        draining.note(&map(BrickState::Active), begun);
        assert!(!draining.is_quiet(BRICK, begun + REMOVAL_WAIT), "it is in use");
        draining.note(&map(BrickState::Draining), begun);
        assert!(!draining.is_quiet(BRICK, begun + (REMOVAL_WAIT - Duration::from_millis(1))));
        // Other changes of the map do not matter.
        draining.note(&map(BrickState::Draining), begun + REMOVAL_WAIT / 2);
        assert!(draining.is_quiet(BRICK, begun + REMOVAL_WAIT));
        draining.note(&map(BrickState::Gone), begun + REMOVAL_WAIT);
        assert!(draining.is_quiet(BRICK, begun + REMOVAL_WAIT));
    }

    #[test]
    fn brick_that_is_used_again_and_drained_once_more_is_not_quiet() {
        let (mut draining, begun) = (Draining::default(), Instant::now());
        draining.note(&map(BrickState::Draining), begun);
        draining.note(&map(BrickState::Active), begun + REMOVAL_WAIT);
        draining.note(&map(BrickState::Draining), begun + REMOVAL_WAIT);
        assert!(!draining.is_quiet(BRICK, begun + REMOVAL_WAIT));
        assert!(draining.is_quiet(BRICK, begun + REMOVAL_WAIT * 2));
    }
}
