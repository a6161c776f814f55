//! Volumes: create, start, stop and delete.

use super::{Applied, Outcome, bricks, check_name, replicas, state_of, volume_mut};
use crate::map::{ClusterMap, Volume, VolumeState};
use crate::options;
use crate::tolerance::Tolerance;
use shoal_types::{GROUP_BRICKS_MAX, GroupId, NodeId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Copies of a block in a volume with arbiters.
pub const ARBITRATED_COPIES: u8 = 2;

pub(super) fn create(
    map: &mut ClusterMap,
    (name, id): (&str, GroupId),
    replica: u8,
    (places, arbiters): (&[(NodeId, PathBuf)], &[NodeId]),
    force: bool,
    time: Timestamp,
) -> Applied {
    check_name(name, "a volume")?;
    if map.volume(name).is_some() {
        return Err(format!("there is a volume '{name}' already"));
    }
    if id == GroupId::CLUSTER || map.volumes.contains_key(&id) {
        return Err("the volume's identity is taken; try again".into());
    }
    let copies = usize::from(replica);
    if copies == 0 || copies > GROUP_BRICKS_MAX {
        return Err(format!("replica {replica}: a block has 1 to {GROUP_BRICKS_MAX} copies"));
    }
    if places.len() < copies {
        return Err(format!(
            "replica {replica} needs {replica} bricks at least, and here are {}",
            places.len()
        ));
    }
    let nodes: BTreeSet<NodeId> = places.iter().map(|(node, _)| *node).collect();
    if nodes.len() < copies && !force {
        return Err(format!(
            "replica {replica} needs bricks on {replica} nodes, and these are on {}: two copies on one node die together; \
             say `force` if that is what you want",
            nodes.len()
        ));
    }
    map.volumes.insert(
        id,
        Volume {
            name: name.to_owned(),
            replica,
            state: VolumeState::Created,
            replicas: Vec::new(),
            bricks: Vec::new(),
            options: BTreeMap::new(),
            created: time,
            rebalance: 0,
        },
    );
    bricks::add(map, id, places)?;
    if !arbiters.is_empty() {
        check_arbiters(map, &nodes, arbiters)?;
        map.arbiters.insert(id, arbiters.iter().copied().collect());
    }
    replicas::arrange(map);
    let survives = Tolerance::of(map, id).unwrap_or_default();
    if copies > 1 && survives.nodes() == 0 && !force {
        return Err(format!(
            "no node may die without a standstill: {survives}. Use three nodes: `replica 3`, or `replica 2 arbiter 1` with a \
             third node that keeps metadata and no blocks; say `force` if it shall be so"
        ));
    }
    Ok(Outcome::Volume(id))
}

fn check_arbiters(map: &ClusterMap, data: &BTreeSet<NodeId>, arbiters: &[NodeId]) -> Result<(), String> {
    for arbiter in arbiters {
        let name =
            &map.nodes.get(arbiter).ok_or_else(|| format!("{arbiter} is not a node of this cluster"))?.name;
        if data.contains(arbiter) {
            return Err(format!(
                "'{name}' has a brick of the volume and cannot be its arbiter: name a node that has none"
            ));
        }
    }
    Ok(())
}

pub(super) fn set_state(map: &mut ClusterMap, id: GroupId, started: bool) -> Applied {
    let volume = volume_mut(map, id)?;
    if volume.state == state_of(started) {
        let state = if started { "started" } else { "stopped" };
        return Err(format!("volume {} is {state} already", volume.name));
    }
    volume.state = state_of(started);
    Ok(Outcome::Done)
}

pub(super) fn delete(map: &mut ClusterMap, id: GroupId) -> Applied {
    let volume = volume_mut(map, id)?;
    if volume.state == VolumeState::Started {
        return Err(format!("volume {0} is started; `shoal volume stop {0}` first", volume.name));
    }
    map.volumes.remove(&id);
    map.arbiters.remove(&id);
    map.schemes.remove(&id);
    Ok(Outcome::Done)
}

pub(super) fn rename(map: &mut ClusterMap, id: GroupId, name: &str) -> Applied {
    check_name(name, "a volume")?;
    if map.volume(name).is_some() {
        return Err(format!("there is a volume '{name}' already"));
    }
    volume_mut(map, id)?.name = name.to_owned();
    Ok(Outcome::Done)
}

pub(super) fn set_option(map: &mut ClusterMap, id: GroupId, key: &str, value: Option<&str>) -> Applied {
    let known = options::find(key);
    options::check(key, value.or(known.map(|known| known.default)).unwrap_or_default())?;
    let volume = volume_mut(map, id)?;
    match value {
        Some(value) => volume.options.insert(key.to_owned(), value.to_owned()),
        None => volume.options.remove(key),
    };
    Ok(Outcome::Done)
}
