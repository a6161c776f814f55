//! How much can be stored with all its copies.

use super::call::Calls;
use super::{Inner, unknown_volume};
use crate::limits::{ROOM_AGE_MAX, ROOM_WAIT_MAX};
use crate::map::BrickState;
use crate::placement::Rules;
use shoal_runtime::time::Instant;
use shoal_types::{BrickId, NodeId, Statfs, Tier};
use shoal_wire::BlockError;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Inner {
    /// Of both tiers: a full hot tier leaves new blocks to the cold one. A hot tier that does not answer, or
    /// is being emptied, does not count.
    pub(super) fn room(self: &Arc<Inner>) -> Result<Statfs, BlockError> {
        let cold = self.room_in(Tier::Cold)?;
        let takes = self.bricks.map().tiers.get(&self.volume).is_some_and(|tier| !tier.detaching);
        let hot = if takes { self.room_in(Tier::Hot).ok() } else { None };
        let hot = hot.unwrap_or_default();
        Ok(Statfs {
            total_bytes: cold.total_bytes.saturating_add(hot.total_bytes),
            free_bytes: cold.free_bytes.saturating_add(hot.free_bytes),
            ..cold
        })
    }

    pub(super) fn room_in(self: &Arc<Inner>, tier: Tier) -> Result<Statfs, BlockError> {
        let map = self.bricks.map();
        let own = Rules::of_long_blocks(&map, self.volume, tier).ok_or_else(unknown_volume)?;
        let bricks: Vec<(BrickId, NodeId)> = map
            .bricks_in(self.volume, tier)
            .filter(|(_, brick)| brick.state == BrickState::Active)
            .map(|(id, brick)| (id, brick.node))
            .collect();
        let mut calls = Calls::new();
        for (brick, _) in &bricks {
            let is_old = self.health.room(*brick).is_none_or(|(_, at)| at.elapsed() > ROOM_AGE_MAX);
            if is_old && self.is_good(*brick) {
                calls.start(self, *brick, |it| it.statfs());
            }
        }
        let until = Instant::now() + ROOM_WAIT_MAX;
        while let Some((brick, answer)) = calls.next(until) {
            self.health.answered(brick, answer.ok());
        }
        let mut nodes = BTreeMap::<NodeId, (u64, u64)>::new();
        for (brick, node) in bricks.iter().filter(|(brick, _)| self.is_good(*brick)) {
            if let Some((room, _)) = self.health.room(*brick) {
                let sum = nodes.entry(*node).or_default();
                *sum = (sum.0.saturating_add(room.total_bytes), sum.1.saturating_add(room.free_bytes));
            }
        }
        let schemes = map.schemes_in(self.volume, tier);
        let rules = schemes.map(|scheme| Rules::of_scheme(&map, (self.volume, tier), scheme));
        least_room(&nodes, own, rules)
    }
}

/// Room in the scheme that takes most, of a tier's own and those of directories: what is granted to writers
/// must fit wherever they write. A directory's scheme that cannot be written now stops no other writers.
fn least_room(
    nodes: &BTreeMap<NodeId, (u64, u64)>,
    own: Rules,
    of_directories: impl Iterator<Item = Rules>,
) -> Result<Statfs, BlockError> {
    let rooms = of_directories.filter_map(|rules| room_of(nodes, rules).ok());
    Ok(rooms.fold(room_of(nodes, own)?, |least, room| Statfs {
        total_bytes: least.total_bytes.min(room.total_bytes),
        free_bytes: least.free_bytes.min(room.free_bytes),
        ..least
    }))
}

/// Room on nodes with so many bytes in all and free: for blocks as copies, or in shards, each of which takes
/// a part of the block's length. In a volume of shards, blocks that are stored as copies take more.
fn room_of(nodes: &BTreeMap<NodeId, (u64, u64)>, rules: Rules) -> Result<Statfs, BlockError> {
    // As many copies or shards as writes get now.
    let count = rules.replica.min(nodes.len() * rules.per_node);
    if count < rules.quorum() {
        return Err(BlockError::Unreachable("too few bricks answer".into()));
    }
    let parts = rules.data.max(1) as u64;
    let room = |nodes: Vec<u64>| storable(&nodes, count, rules).saturating_mul(parts);
    Ok(Statfs {
        total_bytes: room(nodes.values().map(|(total, _)| *total).collect()),
        free_bytes: room(nodes.values().map(|(_, free)| *free).collect()),
        ..Statfs::default()
    })
}

/// The most bytes of which `copies` copies fit on nodes with this much space, no node holding more copies
/// than it may.
fn storable(nodes: &[u64], copies: usize, rules: Rules) -> u64 {
    let fits = |bytes: u64| {
        let there = |room: &u64| u128::from(*room).min(u128::from(bytes) * rules.per_node as u128);
        nodes.iter().map(there).sum::<u128>() >= u128::from(bytes) * copies as u128
    };
    let (mut fits_still, mut too_much) = (0, u64::MAX);
    while too_much - fits_still > 1 {
        let between = fits_still + (too_much - fits_still) / 2;
        if fits(between) {
            fits_still = between;
        } else {
            too_much = between;
        }
    }
    fits_still
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_fits_with_all_copies_on_different_nodes() {
        let rules = |replica, per_node| Rules { replica, per_node, data: 0, arbitrated: false };
        assert_eq!(storable(&[100, 100, 100], 3, rules(3, 1)), 100);
        assert_eq!(storable(&[100, 50, 100], 3, rules(3, 1)), 50);
        assert_eq!(storable(&[100, 50, 100], 2, rules(3, 1)), 125);
        assert_eq!(storable(&[1000, 10, 10], 2, rules(2, 1)), 20, "the large one has no partner");
        assert_eq!(storable(&[90], 3, rules(3, 3)), 30);
        assert_eq!(storable(&[], 1, rules(1, 1)), 0);
    }

    #[test]
    fn room_is_that_of_the_scheme_that_takes_most_and_can_be_written() {
        let rules = |replica, data| Rules { replica, per_node: 1, data, arbitrated: false };
        let nodes = |count: u32| (1..=count).map(|node| (NodeId(node), (1200, 600))).collect();
        let room = |count, own, other| {
            least_room(&nodes(count), own, [other].into_iter()).ok().map(|room| room.free_bytes)
        };
        let (copies, shards) = (rules(3, 0), rules(6, 4));
        assert_eq!((room(6, copies, shards), room(6, shards, copies)), (Some(1200), Some(1200)));
        assert_eq!((room(4, copies, shards), room(4, shards, copies)), (Some(800), None));
    }

    #[test]
    fn room_for_shards_is_what_fits_without_their_parity() {
        let rules = |replica, per_node, data| Rules { replica, per_node, data, arbitrated: false };
        let nodes = |free: &[u64]| -> BTreeMap<NodeId, (u64, u64)> {
            (1..).map(NodeId).zip(free.iter().map(|free| (1200, *free))).collect()
        };
        let room = |free: &[u64], rules| {
            room_of(&nodes(free), rules).ok().map(|room| (room.total_bytes, room.free_bytes))
        };
        assert_eq!(room(&[600; 6], rules(6, 1, 4)), Some((4800, 2400)));
        assert_eq!(room(&[600, 600, 600, 600, 600, 60], rules(6, 1, 4)), Some((4800, 240)));
        assert_eq!(room(&[600; 12], rules(6, 1, 4)), Some((9600, 4800)), "each block is on half of them");
        assert_eq!(room(&[600; 3], rules(6, 2, 4)), Some((2400, 1200)), "two shards on each node");
        assert_eq!(room(&[600; 5], rules(6, 1, 4)), Some((4800, 2400)), "as many shards as writes get now");
        assert_eq!(room(&[600; 4], rules(6, 1, 4)), None, "too few for a write");
    }
}
