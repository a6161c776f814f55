//! Which bricks store new blocks, and since when the others do not.
//!
//! **Model.** A mount that has an older map may have stored a block on a brick before that was drained, and
//! has its record committed later. So the brick itself says when it has no block any more, and can get none
//! (`brick/src/seal.rs`). A brick that is gone cannot say so: the map forgets it after [`REMOVAL_WAIT`], if
//! no record names it.
//!
//! **Assumes** nothing about other processes: each knows since when it has known of the draining itself. One
//! that has just started waits anew.

use crate::map::{BrickState, ClusterMap, HotTier};
use shoal_runtime::time::Instant;
use shoal_types::BrickId;
use shoal_types::limits::REMOVAL_WAIT;
use std::collections::BTreeMap;

/// Whether a brick stores new blocks: it is in use, and so is its tier.
pub fn takes_blocks(map: &ClusterMap, id: BrickId) -> bool {
    map.bricks.get(&id).is_some_and(|brick| {
        let detaching = |tier: &HotTier| tier.detaching && tier.bricks.contains(&id);
        brick.state == BrickState::Active && !map.tiers.get(&brick.volume).is_some_and(detaching)
    })
}

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

    /// Whether a brick has been drained or gone for so long that no new record is expected to name it.
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
    use std::collections::BTreeSet;

    const BRICK: BrickId = BrickId(1);

    fn map(state: BrickState) -> ClusterMap {
        let brick = Brick { node: NodeId(1), path: "/b".into(), volume: GroupId(9), state, replaced: false };
        ClusterMap { bricks: [(BRICK, brick)].into(), ..ClusterMap::default() }
    }

    #[test]
    fn brick_stores_new_blocks_while_it_and_its_tier_are_in_use() {
        let (bricks, replica, shards) = ([BRICK].into(), 1, None);
        let tier = |detaching| HotTier { bricks: BTreeSet::clone(&bricks), replica, shards, detaching };
        let tiered = |detaching| ClusterMap {
            tiers: [(GroupId(9), tier(detaching))].into(),
            ..map(BrickState::Active)
        };
        assert!(takes_blocks(&map(BrickState::Active), BRICK) && takes_blocks(&tiered(false), BRICK));
        assert!(!takes_blocks(&map(BrickState::Draining), BRICK) && !takes_blocks(&tiered(true), BRICK));
        assert!(!takes_blocks(&map(BrickState::Gone), BRICK) && !takes_blocks(&ClusterMap::default(), BRICK));
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
