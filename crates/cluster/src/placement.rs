//! Placement: the bricks on which the copies of a block are stored.
//!
//! **Model.** Each block ranks all bricks of its volume by weighted rendezvous hashing: a brick comes first
//! for a share of the blocks that is in proportion to its size. A writer stores a block on the bricks that
//! come first, and skips those that do not answer. So when a brick is added, only those blocks should move
//! for which the new brick comes first.
//!
//! **Assumes nothing** about agreement between processes: the bricks of a block are recorded with the block.
//! The ranking only proposes where to store it.
//!
//! **Promises.** Two copies never share a brick. They share a node only if the volume's bricks are on fewer
//! nodes than it wants copies, and then evenly.

use crate::map::{BrickState, ClusterMap};
use shoal_runtime::planted::mistake;
use shoal_types::{BlockGroup, BlockId, BlockScheme, BrickId, GroupId, NodeId, Tier};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A brick that may take a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The brick.
    pub brick: BrickId,
    /// Its node.
    pub node: NodeId,
    /// Its size; only the proportions count.
    pub weight: u64,
}

/// The placement rules of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Copies of a block, or all its shards.
    pub replica: usize,
    /// Most copies or shards on one node.
    pub per_node: usize,
    /// Shards that give a block back; 0 for copies.
    pub data: usize,
    /// The volume has an arbiter: one copy is enough for a write if no other brick takes it.
    pub arbitrated: bool,
}

impl Rules {
    /// The rules of a volume's tier for blocks in so many copies.
    pub fn of_copies(map: &ClusterMap, place: (GroupId, Tier), copies: u8) -> Rules {
        let replica = usize::from(copies.max(1));
        let arbitrated = place.1 == Tier::Cold && map.arbiters.contains_key(&place.0);
        Rules { replica, per_node: per_node(map, place, replica), data: 0, arbitrated }
    }

    /// The rules of a volume's tier for blocks in so many shards, of which `data` give the block back.
    pub fn of_shards(map: &ClusterMap, place: (GroupId, Tier), data: usize, shards: usize) -> Rules {
        Rules { replica: shards, per_node: per_node(map, place, shards), data, arbitrated: false }
    }

    /// The rules of a volume's tier for new blocks of its own scheme, as far as they are long enough to be
    /// split.
    pub fn of_long_blocks(map: &ClusterMap, volume: GroupId, tier: Tier) -> Option<Rules> {
        Some(Rules::of_scheme(map, (volume, tier), map.scheme_in(volume, tier)?))
    }

    /// The rules of a volume's tier for blocks of a scheme, as far as they are long enough to be split.
    pub fn of_scheme(map: &ClusterMap, place: (GroupId, Tier), scheme: BlockScheme) -> Rules {
        match scheme.shards() {
            Some(shards) => Rules::of_shards(map, place, usize::from(shards.data), scheme.width()),
            None => Rules::of_copies(map, place, scheme.copies()),
        }
    }

    /// The rules of a volume for a block that is in this group; `None` if there is no such volume or tier.
    pub fn of_group(map: &ClusterMap, volume: GroupId, group: &BlockGroup) -> Option<Rules> {
        let place = (volume, group.tier());
        map.scheme_in(volume, group.tier())?;
        if group.is_sharded() {
            return Some(Rules::of_shards(map, place, group.data_shards(), group.all_shards()));
        }
        let original = map.original_copies(volume);
        let copies = match mistake("keep as many copies as the volume was created with") {
            true => original,
            false => group.wanted_copies(original),
        };
        Some(Rules::of_copies(map, place, copies))
    }

    /// The fewest copies with which a write counts, so that the next failure does not take the last one, if
    /// possible. Copies cannot differ, and the metadata group decides which count. So one copy is correct,
    /// too, if the administrator prefers availability. Of shards it is one more than give the block back.
    pub fn quorum(&self) -> usize {
        match self.data {
            0 if self.arbitrated => 1,
            0 => self.replica / 2 + 1,
            data => (data + 1).min(self.replica),
        }
    }
}

/// The most copies or shards of a block that a node has, if they are spread evenly.
fn per_node(map: &ClusterMap, (volume, tier): (GroupId, Tier), wanted: usize) -> usize {
    let mut nodes: Vec<NodeId> = map
        .bricks_in(volume, tier)
        .filter(|(_, brick)| brick.state == BrickState::Active)
        .map(|(_, brick)| brick.node)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    wanted.div_ceil(nodes.len().max(1))
}

/// The number of copies on each node.
#[derive(Clone, Default, Debug)]
pub struct Load(BTreeMap<NodeId, usize>);

impl Load {
    /// Whether a node may have one more copy.
    pub fn admits(&self, node: NodeId, rules: Rules) -> bool {
        self.0.get(&node).copied().unwrap_or(0) < rules.per_node
    }

    /// Adds a copy on a node.
    pub fn add(&mut self, node: NodeId) {
        *self.0.entry(node).or_default() += 1;
    }

    /// Removes a copy from a node.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(count) = self.0.get_mut(&node) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Ranks bricks for a block, the best first.
pub fn rank(id: BlockId, candidates: &mut [Candidate]) {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&id.session.0.to_le_bytes());
    name[8..].copy_from_slice(&id.seq.to_le_bytes());
    // The smallest of exponentially distributed numbers, one for each brick with its weight as the rate.
    let cost = |candidate: &Candidate| {
        let hash = xxh3_64_with_seed(&name, u64::from(candidate.brick.0));
        let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -uniform.ln() / candidate.weight.max(1) as f64
    };
    candidates.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.brick.cmp(&b.brick)));
}

/// The bricks for a block, of those ranked for it: fewer than wanted if there are too few.
pub fn choose(ranked: &[Candidate], rules: Rules) -> Vec<BrickId> {
    let mut load = Load::default();
    let mut chosen = Vec::with_capacity(rules.replica);
    for candidate in ranked {
        if chosen.len() < rules.replica && load.admits(candidate.node, rules) {
            load.add(candidate.node);
            chosen.push(candidate.brick);
        }
    }
    chosen
}

/// Whether a volume's block may stay on a brick.
pub fn may_stay(map: &ClusterMap, volume: GroupId, brick: BrickId) -> bool {
    map.bricks.get(&brick).is_some_and(|it| it.state == BrickState::Active && it.volume == volume)
}

/// Whether nothing can be on a brick any more. An unknown brick may be newer than the map.
pub fn is_gone(map: &ClusterMap, brick: BrickId) -> bool {
    match map.bricks.get(&brick) {
        Some(it) => it.state == BrickState::Gone,
        None => brick.0 < map.next.brick,
    }
}

/// Whether a group is as the volume wants it: enough copies or all shards, spread over nodes, on bricks that
/// stay.
pub fn is_whole(map: &ClusterMap, volume: GroupId, group: BlockGroup) -> bool {
    let Some(rules) = Rules::of_group(map, volume, &group) else { return false };
    let mut load = Load::default();
    let mut good = 0;
    for brick in group.bricks() {
        let stays = may_stay(map, volume, brick) && map.tier_of(volume, brick) == group.tier();
        let Some(it) = map.bricks.get(&brick).filter(|_| stays) else { return false };
        if load.admits(it.node, rules) {
            load.add(it.node);
            good += 1;
        }
    }
    good >= rules.replica
}

/// Whether a group has fewer copies or shards than the volume wants, wherever they are.
pub fn lacks_copies(map: &ClusterMap, volume: GroupId, group: BlockGroup) -> bool {
    let there = group.bricks().filter(|brick| !is_gone(map, *brick)).count();
    Rules::of_group(map, volume, &group).is_some_and(|rules| there < rules.replica)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    fn block(seq: u64) -> BlockId {
        BlockId { session: SessionId(7), seq }
    }

    fn bricks(weights: &[u64]) -> Vec<Candidate> {
        let brick = |(index, weight): (usize, &u64)| Candidate {
            brick: BrickId(index as u16 + 1),
            node: NodeId(index as u32 + 1),
            weight: *weight,
        };
        weights.iter().enumerate().map(brick).collect()
    }

    #[test]
    fn a_brick_gets_blocks_in_proportion_to_its_size() {
        let mut first = BTreeMap::<BrickId, u32>::new();
        for seq in 0..20_000 {
            let mut candidates = bricks(&[100, 100, 200]);
            rank(block(seq), &mut candidates);
            *first.entry(candidates[0].brick).or_default() += 1;
        }
        assert!((4_600..5_400).contains(&first[&BrickId(1)]), "{first:?}");
        assert!((9_500..10_500).contains(&first[&BrickId(3)]), "{first:?}");
    }

    #[test]
    fn a_new_brick_takes_its_share_and_nothing_else_moves() {
        let rules = Rules { replica: 2, per_node: 1, data: 0, arbitrated: false };
        let mut moved = 0;
        for seq in 0..5_000 {
            let (mut before, mut after) = (bricks(&[9, 9, 9]), bricks(&[9, 9, 9, 9]));
            rank(block(seq), &mut before);
            rank(block(seq), &mut after);
            let (before, after) = (choose(&before, rules), choose(&after, rules));
            let new: Vec<_> = after.iter().filter(|brick| !before.contains(brick)).collect();
            assert!(new.is_empty() || new == [&BrickId(4)], "{before:?} {after:?}");
            moved += new.len();
        }
        assert!((2_300..2_700).contains(&moved), "half of the blocks have a copy there: {moved}");
    }

    #[test]
    fn copies_share_a_node_only_where_nodes_are_too_few() {
        let mut candidates = bricks(&[1; 6]);
        for (index, candidate) in candidates.iter_mut().enumerate() {
            candidate.node = NodeId(index as u32 / 3);
        }
        for seq in 0..1_000 {
            rank(block(seq), &mut candidates);
            let node = |brick: &BrickId| (brick.0 - 1) / 3;
            let two = choose(&candidates, Rules { replica: 2, per_node: 1, data: 0, arbitrated: false });
            assert!(two.len() == 2 && node(&two[0]) != node(&two[1]));
            let three = choose(&candidates, Rules { replica: 3, per_node: 2, data: 0, arbitrated: false });
            assert!(three.len() == 3 && three.iter().any(|brick| node(brick) != node(&three[0])));
        }
    }
}
