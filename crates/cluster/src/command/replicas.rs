//! The places of metadata replicas: after every change of the map they are arranged again, with as few moves
//! as possible.

use crate::map::{ClusterMap, ReplicaPlace};
use shoal_types::{BrickId, GroupId, NodeId, ReplicaId};
use std::collections::BTreeSet;

/// Replicas of the group that keeps the map, as far as there are nodes.
const MAP_REPLICAS: usize = 3;

/// Most replicas that the group of a new volume begins with: a new volume has no settings.
pub const FOUNDERS_MAX: usize = 3;

/// Nodes with bricks that keep metadata beside an arbiter: two of three are a quorum, whichever fails.
const BESIDE_ARBITER: usize = 2;

/// Gives every group as many replicas as it should have, each on a node of its own.
pub(super) fn arrange(map: &mut ClusterMap) {
    let nodes: Vec<NodeId> = map.nodes.keys().copied().collect();
    let places = arranged(&mut map.next.replica, &map.replicas, &nodes, MAP_REPLICAS);
    map.replicas = places;
    let volumes: Vec<GroupId> = map.volumes.keys().copied().collect();
    for id in volumes {
        let wanted = map.option(id, "cluster.metadata-replicas").and_then(|value| value.parse().ok());
        appoint_arbiter(map, id);
        // Nodes with bricks of the volume first: they are up whenever the volume is of use. An arbiter comes
        // before the third.
        let mut preferred: Vec<NodeId> = Vec::new();
        for (_, brick) in map.bricks_of(id) {
            if !preferred.contains(&brick.node) {
                preferred.push(brick.node);
            }
        }
        let arbiters = map.arbiters.get(&id).into_iter().flatten().copied();
        let after = preferred.len().min(BESIDE_ARBITER);
        preferred.splice(after..after, arbiters);
        preferred.extend(&nodes);
        let Some(volume) = map.volumes.get_mut(&id) else { continue };
        volume.replicas =
            arranged(&mut map.next.replica, &volume.replicas, &preferred, wanted.unwrap_or(FOUNDERS_MAX));
    }
    forget_tombstones(map);
}

/// A volume without an arbiter gets another, if there is a node without bricks of it.
fn appoint_arbiter(map: &mut ClusterMap, volume: GroupId) {
    if !map.arbiters.get(&volume).is_some_and(BTreeSet::is_empty) {
        return;
    }
    let has_brick = |node: &NodeId| map.bricks_of(volume).any(|(_, brick)| brick.node == *node);
    let free = map.nodes.keys().copied().find(|node| !has_brick(node));
    map.arbiters.insert(volume, free.into_iter().collect());
}

/// Removes gone bricks of deleted volumes.
fn forget_tombstones(map: &mut ClusterMap) {
    let ClusterMap { bricks, volumes, .. } = map;
    bricks.retain(|_: &BrickId, brick| volumes.contains_key(&brick.volume));
}

/// Places of a group that is to have `wanted` replicas, or the largest odd number that there are nodes for:
/// an even number tolerates no more failures than one less.
fn arranged(next: &mut u64, now: &[ReplicaPlace], nodes: &[NodeId], wanted: usize) -> Vec<ReplicaPlace> {
    let mut candidates: Vec<NodeId> = Vec::new();
    for node in nodes {
        if !candidates.contains(node) {
            candidates.push(*node);
        }
    }
    let there = |place: &&ReplicaPlace| candidates.contains(&place.node);
    let mut places: Vec<ReplicaPlace> = now.iter().filter(there).copied().collect();
    let most = wanted.min(candidates.len());
    let count = if most.is_multiple_of(2) { most.saturating_sub(1) } else { most };
    // A group that is larger than wanted shrinks by its newest members, and keeps at least one.
    places.truncate(count.max(1));
    let founder = now.is_empty();
    while places.len() < count {
        let Some(node) = candidates.iter().find(|node| places.iter().all(|place| place.node != **node))
        else {
            break;
        };
        places.push(ReplicaPlace { id: ReplicaId(*next), node: *node, founder });
        *next += 1;
    }
    places
}
