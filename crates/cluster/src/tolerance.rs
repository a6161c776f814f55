//! How many nodes may fail without stopping a volume.

use crate::map::{BrickState, ClusterMap};
use crate::placement::Rules;
use shoal_types::{GroupId, NodeId, Tier};
use std::collections::BTreeMap;
use std::fmt;

/// How many nodes may be down at a time while a volume is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tolerance {
    /// Of the nodes with bricks: a copy of each block is left, or enough shards, and bricks for new blocks.
    pub data: usize,
    /// Of the nodes with the volume's metadata.
    pub metadata: usize,
}

impl Tolerance {
    /// The tolerance of a volume; `None` if there is no such volume.
    pub fn of(map: &ClusterMap, volume: GroupId) -> Option<Tolerance> {
        let cold = Tolerance::data_of(map, volume, Tier::Cold)?;
        let hot = Tolerance::data_of(map, volume, Tier::Hot).unwrap_or(cold);
        let metadata = map.replicas(volume).len().saturating_sub(1) / 2;
        Some(Tolerance { data: cold.min(hot), metadata })
    }

    /// The least tolerance of all schemes of a tier.
    fn data_of(map: &ClusterMap, volume: GroupId, tier: Tier) -> Option<usize> {
        let rules = map.schemes_in(volume, tier).map(|it| Rules::of_scheme(map, (volume, tier), it));
        rules.map(|rules| Tolerance::data_by(map, (volume, tier), rules)).min()
    }

    fn data_by(map: &ClusterMap, (volume, tier): (GroupId, Tier), rules: Rules) -> usize {
        let mut nodes = BTreeMap::<NodeId, usize>::new();
        for (_, brick) in map.bricks_in(volume, tier).filter(|(_, brick)| brick.state == BrickState::Active) {
            *nodes.entry(brick.node).or_default() += 1;
        }
        // Copies that each node may take; the worst case is the loss of the nodes that could take most.
        let mut takes: Vec<usize> = nodes.values().map(|bricks| (*bricks).min(rules.per_node)).collect();
        takes.sort_unstable();
        let left = |dead: usize| takes.iter().rev().skip(dead).sum::<usize>();
        let lost = |dead: usize| takes.iter().rev().take(dead).sum::<usize>();
        let is_left = |dead: &usize| match rules.data {
            0 => *dead < rules.replica.min(nodes.len()),
            data => lost(*dead) + data <= rules.replica,
        };
        let survives = |dead: &usize| is_left(dead) && left(*dead) >= rules.quorum();
        (1..=nodes.len()).take_while(survives).count()
    }

    /// Any nodes, whatever they store.
    pub fn nodes(&self) -> usize {
        self.data.min(self.metadata)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = |count: usize| match count {
            0 => "none of its nodes may be down".to_owned(),
            1 => "one node may be down".to_owned(),
            count => format!("{count} nodes may be down"),
        };
        write!(f, "data: {}; metadata: {}", nodes(self.data), nodes(self.metadata))
    }
}
