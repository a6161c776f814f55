//! Bricks: add, drain, lose and replace.

use super::{Applied, Outcome, volume_mut};
use crate::map::{Brick, BrickState, ClusterMap};
use shoal_types::{BRICK_NUMBER_MAX, BlockScheme, BrickId, GroupId, NodeId, Tier};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) fn add(map: &mut ClusterMap, volume: GroupId, places: &[(NodeId, PathBuf)]) -> Applied {
    volume_mut(map, volume)?;
    if places.is_empty() {
        return Err("name at least one brick, as HOST:/PATH".into());
    }
    let mut added = Vec::new();
    for (node, path) in places {
        check_place(map, *node, path)?;
        if map.next.brick > BRICK_NUMBER_MAX {
            return Err("the cluster has used up its brick numbers".into());
        }
        let id = BrickId(map.next.brick);
        map.next.brick += 1;
        let (path, state) = (path.clone(), BrickState::Active);
        map.bricks.insert(id, Brick { node: *node, path, volume, state, replaced: false });
        volume_mut(map, volume)?.bricks.push(id);
        added.push(id);
    }
    Ok(Outcome::Bricks(added))
}

fn check_place(map: &ClusterMap, node: NodeId, path: &Path) -> Result<(), String> {
    let Some(host) = map.nodes.get(&node).map(|node| &node.name) else {
        return Err(format!("{node} is not a node of this cluster"));
    };
    let shown = path.display();
    let plain = path
        .components()
        .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    if !path.is_absolute() || !plain || path.parent().is_none() {
        return Err(format!("{host}:{shown}: a brick is an absolute path, as in {host}:/srv/brick"));
    }
    let used = map.bricks.iter().filter(|(_, brick)| brick.node == node && brick.state != BrickState::Gone);
    for (_, brick) in used {
        if brick.path.starts_with(path) || path.starts_with(&brick.path) {
            let owner = map.volumes.get(&brick.volume).map_or("?", |volume| volume.name.as_str());
            return Err(format!(
                "{host}:{shown} is in use: {} is a brick of volume {owner}",
                brick.path.display()
            ));
        }
    }
    Ok(())
}

/// Checks that these are bricks of the volume that are not gone, each named once.
fn check_own(map: &mut ClusterMap, volume: GroupId, bricks: &[BrickId]) -> Result<(), String> {
    volume_mut(map, volume)?;
    let mut seen = BTreeSet::new();
    for id in bricks {
        let own =
            map.bricks.get(id).filter(|brick| brick.volume == volume && brick.state != BrickState::Gone);
        if own.is_none() || !seen.insert(*id) {
            return Err(format!("{} is not a brick of this volume, or was named twice", map.brick_name(*id)));
        }
    }
    if bricks.is_empty() {
        return Err("name at least one brick, as HOST:/PATH".into());
    }
    Ok(())
}

/// Checks that enough bricks of each tier are left without these.
fn check_rest(map: &ClusterMap, volume: GroupId, without: &[BrickId]) -> Result<(), String> {
    for tier in map.tiers_of(volume) {
        let width = map.schemes_in(volume, tier).map(BlockScheme::width).max().unwrap_or(0);
        let stays =
            |(id, brick): &(BrickId, &Brick)| brick.state == BrickState::Active && !without.contains(id);
        let left = map.bricks_in(volume, tier).filter(stays).count();
        if left < width {
            let advice = match tier {
                Tier::Cold => "add others first (`shoal volume add-brick`)",
                Tier::Hot => "detach the hot tier instead (`shoal volume tier NAME detach start`)",
            };
            return Err(format!(
                "a block of this volume is on {width} bricks, and only {left} would be left: {advice}"
            ));
        }
    }
    Ok(())
}

pub(super) fn set_state(map: &mut ClusterMap, bricks: &[BrickId], state: BrickState) {
    for id in bricks {
        if let Some(brick) = map.bricks.get_mut(id) {
            brick.state = state;
            brick.replaced &= state != BrickState::Active;
        }
    }
}

pub(super) fn drain(map: &mut ClusterMap, volume: GroupId, bricks: &[BrickId]) -> Applied {
    check_own(map, volume, bricks)?;
    check_rest(map, volume, bricks)?;
    set_state(map, bricks, BrickState::Draining);
    Ok(Outcome::Done)
}

pub(super) fn undrain(map: &mut ClusterMap, volume: GroupId, bricks: &[BrickId]) -> Applied {
    check_own(map, volume, bricks)?;
    set_state(map, bricks, BrickState::Active);
    Ok(Outcome::Done)
}

pub(super) fn lose(map: &mut ClusterMap, volume: GroupId, bricks: &[BrickId]) -> Applied {
    check_own(map, volume, bricks)?;
    set_state(map, bricks, BrickState::Gone);
    Ok(Outcome::Done)
}

pub(super) fn replace(
    map: &mut ClusterMap,
    volume: GroupId,
    old: BrickId,
    new: &(NodeId, PathBuf),
    gone: bool,
) -> Applied {
    check_own(map, volume, &[old])?;
    if gone {
        // The directory may be used again for a new brick.
        set_state(map, &[old], BrickState::Gone);
    }
    let added = add(map, volume, std::slice::from_ref(new))?;
    if let (Some(tier), Outcome::Bricks(ids)) = (map.tiers.get_mut(&volume), &added)
        && tier.bricks.contains(&old)
    {
        tier.bricks.extend(ids);
    }
    if !gone {
        set_state(map, &[old], BrickState::Draining);
    }
    if let Some(brick) = map.bricks.get_mut(&old) {
        brick.replaced = true;
    }
    Ok(added)
}

pub(super) fn forget(map: &mut ClusterMap, volume: GroupId, bricks: &[BrickId]) -> Applied {
    for id in bricks {
        match map.bricks.get(id) {
            Some(brick) if brick.volume == volume && brick.state == BrickState::Gone => {}
            _ => return Err(format!("{} is not a brick of this volume that is gone", map.brick_name(*id))),
        }
    }
    volume_mut(map, volume)?.bricks.retain(|id| !bricks.contains(id));
    for id in bricks {
        map.bricks.remove(id);
        if let Some(tier) = map.tiers.get_mut(&volume) {
            tier.bricks.remove(id);
        }
    }
    Ok(Outcome::Done)
}
