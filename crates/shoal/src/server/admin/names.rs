//! Volumes, nodes and bricks by the names that people give them.

use crate::admin::BrickName;
use shoal_cluster::{Brick, ClusterMap, Volume};
use shoal_types::{BrickId, GroupId, NodeId};
use std::path::PathBuf;

/// A volume by its name.
pub fn volume<'a>(map: &'a ClusterMap, name: &str) -> Result<(GroupId, &'a Volume), String> {
    map.volume(name).ok_or_else(|| {
        let names: Vec<&str> = map.volumes.values().map(|volume| volume.name.as_str()).collect();
        match names[..] {
            [] => format!("there is no volume '{name}': the cluster has none yet"),
            _ => format!("there is no volume '{name}'; there are: {}", names.join(", ")),
        }
    })
}

/// A node by its name, host or address.
pub fn node(map: &ClusterMap, host: &str) -> Result<NodeId, String> {
    map.node(host).map(|(id, _)| id).ok_or_else(|| {
        let names: Vec<&str> = map.nodes.values().map(|node| node.name.as_str()).collect();
        format!("'{host}' is no node of the cluster; its nodes are: {}", names.join(", "))
    })
}

/// The nodes and paths of new bricks.
pub fn places(map: &ClusterMap, bricks: &[BrickName]) -> Result<Vec<(NodeId, PathBuf)>, String> {
    bricks.iter().map(|brick| Ok((node(map, &brick.host)?, brick.path.clone()))).collect()
}

/// A brick of a volume.
pub fn brick<'a>(
    map: &'a ClusterMap,
    volume: GroupId,
    name: &BrickName,
) -> Result<(BrickId, &'a Brick), String> {
    let id = map.brick(volume, &name.host, &name.path);
    id.and_then(|id| Some((id, map.bricks.get(&id)?))).ok_or_else(|| {
        let all: Vec<String> = map.bricks_of(volume).map(|(id, _)| map.brick_name(id)).collect();
        format!("{name} is not a brick of this volume; its bricks are: {}", all.join(", "))
    })
}

/// Bricks of a volume.
pub fn bricks(map: &ClusterMap, volume: GroupId, names: &[BrickName]) -> Result<Vec<BrickId>, String> {
    names.iter().map(|name| brick(map, volume, name).map(|(id, _)| id)).collect()
}

/// The name of a brick.
pub fn called(map: &ClusterMap, brick: &Brick) -> BrickName {
    let host = map.nodes.get(&brick.node).map_or("(detached)", |node| node.name.as_str());
    BrickName { host: host.to_owned(), path: brick.path.clone() }
}
