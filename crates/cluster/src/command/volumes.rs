//! Volumes: create, start, stop and delete.

use super::{Applied, Outcome, bricks, check_name, replicas, state_of, volume_mut};
use crate::map::{Brick, BrickState, ClusterMap, Shards, Volume, VolumeState};
use crate::options;
use crate::tolerance::Tolerance;
use shoal_coding::Scheme;
use shoal_coding::limits::{DATA_SHARDS_MAX, DATA_SHARDS_MIN, PARITY_SHARDS_MAX};
use shoal_types::{GROUP_BRICKS_MAX, GroupId, NodeId, Tier, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Copies of a block in a volume with arbiters.
pub const ARBITRATED_COPIES: u8 = 2;

/// How a new volume stores its blocks.
#[derive(Clone, Copy)]
pub(super) enum Redundancy<'a> {
    /// As copies.
    Copies(u8),
    /// As two copies, with nodes that keep metadata and no blocks.
    Arbitrated(&'a [NodeId]),
    /// As shards.
    Shards(Shards),
}

impl Redundancy<'_> {
    /// Copies of a block that is not stored as shards.
    pub(super) fn copies(self) -> u8 {
        match self {
            Redundancy::Copies(copies) => copies,
            Redundancy::Arbitrated(_) => ARBITRATED_COPIES,
            Redundancy::Shards(shards) => shards.parity + 1,
        }
    }

    /// The scheme, if blocks are stored as shards.
    pub(super) fn shards(self) -> Option<Shards> {
        match self {
            Redundancy::Shards(shards) => Some(shards),
            _ => None,
        }
    }

    /// Bricks of one block.
    pub(super) fn width(self) -> usize {
        match self {
            Redundancy::Shards(shards) => shards.width(),
            _ => usize::from(self.copies()),
        }
    }

    /// As an administrator writes it.
    pub(super) fn words(self) -> String {
        match self {
            Redundancy::Shards(shards) => {
                format!("disperse {} redundancy {}", shards.width(), shards.parity)
            }
            _ => format!("replica {}", self.copies()),
        }
    }

    /// Checks its numbers.
    pub(super) fn check(self) -> Result<(), String> {
        match self {
            Redundancy::Shards(Shards { data, parity }) => {
                if Scheme::new(usize::from(data), usize::from(parity)).is_some() {
                    return Ok(());
                }
                Err(format!(
                    "{data}+{parity}: a block has {DATA_SHARDS_MIN} to {DATA_SHARDS_MAX} data shards and 1 to \
                     {PARITY_SHARDS_MAX} parity shards"
                ))
            }
            _ => match usize::from(self.copies()) {
                1..=GROUP_BRICKS_MAX => Ok(()),
                _ => Err(format!("{}: a block has 1 to {GROUP_BRICKS_MAX} copies", self.words())),
            },
        }
    }
}

/// Copies, or shards if there is a scheme for them.
pub(super) fn redundancy(replica: u8, shards: Option<Shards>) -> Redundancy<'static> {
    shards.map_or(Redundancy::Copies(replica), Redundancy::Shards)
}

pub(super) fn create(
    map: &mut ClusterMap,
    (name, id): (&str, GroupId),
    redundancy: Redundancy<'_>,
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
    redundancy.check()?;
    let (words, width, replica) = (redundancy.words(), redundancy.width(), redundancy.copies());
    if places.len() < width {
        return Err(format!("{words} needs {width} bricks at least, and here are {}", places.len()));
    }
    let nodes: BTreeSet<NodeId> = places.iter().map(|(node, _)| *node).collect();
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
    map.schemes.extend(redundancy.shards().map(|shards| (id, shards)));
    bricks::add(map, id, places)?;
    if let Redundancy::Arbitrated(arbiters) = redundancy {
        check_arbiters(map, &nodes, arbiters)?;
        map.arbiters.insert(id, arbiters.iter().copied().collect());
    }
    replicas::arrange(map);
    check_nodes(map, id, redundancy, nodes.len(), force)?;
    Ok(Outcome::Volume(id))
}

/// Checks that a volume with bricks on so many nodes keeps its promise when one of them dies.
fn check_nodes(
    map: &ClusterMap,
    id: GroupId,
    redundancy: Redundancy<'_>,
    nodes: usize,
    force: bool,
) -> Result<(), String> {
    let (words, width) = (redundancy.words(), redundancy.width());
    let survives = Tolerance::of(map, id).unwrap_or_default();
    if nodes < width && !force {
        let what = if redundancy.shards().is_some() { "shards" } else { "copies" };
        return Err(format!(
            "{words} needs bricks on {width} nodes, and these are on {nodes}: two {what} on one node die together \
             ({survives}); say `force` if that is what you want"
        ));
    }
    if redundancy.copies() > 1 && survives.nodes() == 0 && !force {
        let advice = match redundancy {
            Redundancy::Shards(_) => format!("Use bricks on {} nodes", width + 1),
            _ => "Use three nodes: `replica 3`, or `replica 2 arbiter 1` with a third node that keeps metadata and no blocks"
                .to_owned(),
        };
        return Err(format!(
            "no node may die without a standstill: {survives}. {advice}; say `force` if it shall be so"
        ));
    }
    Ok(())
}

/// Changes how a volume stores its blocks. The number of copies of short blocks stays, since the metadata
/// group knows it as the one that blocks are healed to. A scheme of shards is replaced by copies first: a
/// brick that repairs a shard by itself takes it to be of the volume's only scheme.
pub(super) fn convert(map: &mut ClusterMap, id: GroupId, redundancy: Redundancy<'_>, force: bool) -> Applied {
    redundancy.check()?;
    let (words, width) = (redundancy.words(), redundancy.width());
    let volume = volume_mut(map, id)?;
    let (name, copies) = (volume.name.clone(), volume.replica);
    if map.arbiters.contains_key(&id) {
        return Err(format!(
            "volume {name} has an arbiter, so its blocks stay in {ARBITRATED_COPIES} copies"
        ));
    }
    let now = map.schemes.get(&id).copied();
    let wanted = redundancy.shards();
    if redundancy.copies() != copies {
        return Err(format!(
            "a block of volume {name} survives {0} losses, and would survive {1} with {words}: that number cannot be \
             changed; use `replica {copies}` or `redundancy {0}`",
            copies.saturating_sub(1),
            redundancy.copies().saturating_sub(1)
        ));
    }
    if now == wanted {
        return Err(format!(
            "volume {name} is {words} already; `shoal volume convert {name} status` shows the rest"
        ));
    }
    if now.is_some() && wanted.is_some() {
        return Err(format!(
            "one scheme of shards cannot be converted into another: convert volume {name} to `replica {copies}` first"
        ));
    }
    let active = |(_, brick): &(_, &Brick)| brick.state == BrickState::Active;
    let nodes: Vec<NodeId> =
        map.bricks_in(id, Tier::Cold).filter(active).map(|(_, brick)| brick.node).collect();
    let bricks = nodes.len();
    if bricks < width {
        return Err(format!(
            "{words} needs {width} bricks, and volume {name} has {bricks}: add others first (`shoal volume add-brick`)"
        ));
    }
    match wanted {
        Some(shards) => drop(map.schemes.insert(id, shards)),
        None => drop(map.schemes.remove(&id)),
    }
    let nodes = nodes.into_iter().collect::<BTreeSet<NodeId>>().len();
    check_nodes(map, id, redundancy, nodes, force)?;
    Ok(Outcome::Done)
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
    map.tiers.remove(&id);
    map.pins.remove(&id);
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
