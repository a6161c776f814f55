//! Volumes: create, start, stop and delete.

use super::{Applied, Outcome, bricks, check_name, replicas, set_policy, state_of, volume_mut};
use crate::map::{Brick, BrickState, ClusterMap, Shards, Volume, VolumeState};
use crate::options;
use crate::tolerance::Tolerance;
use shoal_coding::Scheme;
use shoal_coding::limits::{DATA_SHARDS_MAX, DATA_SHARDS_MIN, PARITY_SHARDS_MAX};
use shoal_types::limits::POLICIES_MAX;
use shoal_types::{BlockScheme, GROUP_BRICKS_MAX, GroupId, InodeId, NodeId, Tier, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Copies of a block in a volume with arbiters.
pub const ARBITRATED_COPIES: u8 = 2;

/// Checks the numbers of a scheme.
pub(super) fn check_scheme(scheme: BlockScheme) -> Result<(), String> {
    match scheme {
        BlockScheme::Shards(Shards { data, parity }) => {
            if Scheme::new(usize::from(data), usize::from(parity)).is_some() {
                return Ok(());
            }
            Err(format!(
                "{data}+{parity}: a block has {DATA_SHARDS_MIN} to {DATA_SHARDS_MAX} data shards and 1 to \
                 {PARITY_SHARDS_MAX} parity shards"
            ))
        }
        BlockScheme::Copies(copies) => match usize::from(copies) {
            1..=GROUP_BRICKS_MAX => Ok(()),
            _ => Err(format!("{scheme}: a block has 1 to {GROUP_BRICKS_MAX} copies")),
        },
    }
}

pub(super) fn create(
    map: &mut ClusterMap,
    (name, id): (&str, GroupId),
    (scheme, arbiters): (BlockScheme, Option<&[NodeId]>),
    places: &[(NodeId, PathBuf)],
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
    check_scheme(scheme)?;
    let width = scheme.width();
    if places.len() < width {
        return Err(format!("{scheme} needs {width} bricks at least, and here are {}", places.len()));
    }
    let nodes: BTreeSet<NodeId> = places.iter().map(|(node, _)| *node).collect();
    map.volumes.insert(
        id,
        Volume {
            name: name.to_owned(),
            replica: scheme.copies(),
            state: VolumeState::Created,
            replicas: Vec::new(),
            bricks: Vec::new(),
            options: BTreeMap::new(),
            created: time,
            rebalance: 0,
        },
    );
    map.schemes.extend(scheme.shards().map(|shards| (id, shards)));
    bricks::add(map, id, places)?;
    if let Some(arbiters) = arbiters {
        check_arbiters(map, &nodes, arbiters)?;
        map.arbiters.insert(id, arbiters.iter().copied().collect());
    }
    replicas::arrange(map);
    check_nodes(map, id, scheme, nodes.len(), force)?;
    Ok(Outcome::Volume(id))
}

/// Checks that a volume with bricks on so many nodes keeps its promise when one of them dies.
fn check_nodes(
    map: &ClusterMap,
    id: GroupId,
    scheme: BlockScheme,
    nodes: usize,
    force: bool,
) -> Result<(), String> {
    let width = scheme.width();
    let survives = Tolerance::of(map, id).unwrap_or_default();
    if nodes < width && !force {
        let what = if scheme.shards().is_some() { "shards" } else { "copies" };
        return Err(format!(
            "{scheme} needs bricks on {width} nodes, and these are on {nodes}: two {what} on one node die together \
             ({survives}); say `force` if that is what you want"
        ));
    }
    if scheme.copies() > 1 && survives.nodes() == 0 && !force {
        let advice = match scheme {
            BlockScheme::Shards(_) => format!("Use bricks on {} nodes", width + 1),
            _ => "Use three nodes: `replica 3`, or `replica 2 arbiter 1` with a third node that keeps metadata and no blocks"
                .to_owned(),
        };
        return Err(format!(
            "no node may die without a standstill: {survives}. {advice}; say `force` if it shall be so"
        ));
    }
    Ok(())
}

/// Lets blocks of a volume survive another number of losses than at its creation.
pub(super) fn allow_copies(map: &mut ClusterMap, id: GroupId) -> Applied {
    let original = volume_mut(map, id)?.replica;
    map.copies.entry(id).or_insert(original);
    Ok(Outcome::Done)
}

/// Changes how a volume stores its blocks.
pub(super) fn convert(map: &mut ClusterMap, id: GroupId, scheme: BlockScheme, force: bool) -> Applied {
    let name = volume_mut(map, id)?.name.clone();
    check_conversion(map, id, scheme, force)?;
    if map.scheme_in(id, Tier::Cold) == Some(scheme) {
        return Err(format!(
            "volume {name} is {scheme} already; `shoal volume convert {name} status` shows the rest"
        ));
    }
    match scheme {
        BlockScheme::Shards(shards) => drop(map.schemes.insert(id, shards)),
        BlockScheme::Copies(_) => drop(map.schemes.remove(&id)),
    }
    map.copies.entry(id).and_modify(|copies| *copies = scheme.copies());
    check_cold_nodes(map, id, scheme, force)?;
    Ok(Outcome::Done)
}

/// Gives a directory or a file a scheme of its own, or takes it away.
pub(super) fn set_directory_scheme(
    map: &mut ClusterMap,
    id: GroupId,
    (ino, scheme): (InodeId, Option<BlockScheme>),
    removed: &[InodeId],
    force: bool,
) -> Applied {
    volume_mut(map, id)?;
    set_policy(&mut map.directory_schemes, id, (ino, None), removed);
    let Some(scheme) = scheme else { return Ok(Outcome::Done) };
    check_conversion(map, id, scheme, force)?;
    if !set_policy(&mut map.directory_schemes, id, (ino, Some(scheme)), &[]) {
        return Err(format!(
            "{POLICIES_MAX} directories and files have a scheme already; give one to a directory above several of \
             them, or take one away with `shoal scheme PATH auto`"
        ));
    }
    check_cold_nodes(map, id, scheme, force)?;
    Ok(Outcome::Done)
}

/// Checks that blocks of a volume, which are stored in other schemes, may be stored in this one. A scheme of
/// shards is replaced by copies first: a brick that repairs a shard by itself takes it to be of the only
/// scheme.
fn check_conversion(map: &ClusterMap, id: GroupId, scheme: BlockScheme, force: bool) -> Result<(), String> {
    check_scheme(scheme)?;
    let Some(volume) = map.volumes.get(&id) else { return Ok(()) };
    let (name, original) = (&volume.name, volume.replica);
    let now = map.scheme_in(id, Tier::Cold).map_or(original, BlockScheme::copies);
    if map.arbiters.contains_key(&id) {
        return Err(format!(
            "volume {name} has an arbiter, so its blocks stay in {ARBITRATED_COPIES} copies"
        ));
    }
    if scheme.copies() != original && !map.copies.contains_key(&id) {
        return Err(format!(
            "blocks of volume {name} survive {} losses: the node that received this command is too old to change that",
            original.saturating_sub(1)
        ));
    }
    if scheme.copies() < now && !force {
        return Err(format!(
            "a block of volume {name} survives {} losses, and would survive {} with {scheme}; say `force` if that \
             is enough",
            now.saturating_sub(1),
            scheme.copies().saturating_sub(1)
        ));
    }
    let other = map.shards_in(id, Tier::Cold).filter(|now| scheme.shards().is_some_and(|it| it != *now));
    if let Some(other) = other {
        return Err(format!(
            "volume {name} has {} already, and cannot have two schemes of shards: convert what is in it to \
             `replica {now}` first",
            BlockScheme::Shards(other)
        ));
    }
    let (width, bricks) = (scheme.width(), active_nodes(map, id).len());
    if bricks < width {
        return Err(format!(
            "{scheme} needs {width} bricks, and volume {name} has {bricks}: add others first (`shoal volume add-brick`)"
        ));
    }
    Ok(())
}

/// The nodes of the bricks of a volume's cold tier that take blocks, one for each brick.
fn active_nodes(map: &ClusterMap, id: GroupId) -> Vec<NodeId> {
    let active = |(_, brick): &(_, &Brick)| brick.state == BrickState::Active;
    map.bricks_in(id, Tier::Cold).filter(active).map(|(_, brick)| brick.node).collect()
}

/// [`check_nodes`] for a scheme that is new on the cold tier.
fn check_cold_nodes(map: &ClusterMap, id: GroupId, scheme: BlockScheme, force: bool) -> Result<(), String> {
    let nodes: BTreeSet<NodeId> = active_nodes(map, id).into_iter().collect();
    check_nodes(map, id, scheme, nodes.len(), force)
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
    map.copies.remove(&id);
    map.tiers.remove(&id);
    map.pins.remove(&id);
    map.directory_schemes.remove(&id);
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
