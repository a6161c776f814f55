//! The hot tier of a volume: attach, empty and remove.

use super::volumes::check_scheme;
use super::{Applied, Outcome, bricks, set_policy, volume_mut};
use crate::map::{BrickState, ClusterMap, HotTier};
use shoal_types::limits::POLICIES_MAX;
use shoal_types::{BlockScheme, GroupId, InodeId, NodeId, Tier};
use std::collections::BTreeSet;
use std::path::PathBuf;

pub(super) fn attach(
    map: &mut ClusterMap,
    volume: GroupId,
    scheme: BlockScheme,
    places: &[(NodeId, PathBuf)],
    force: bool,
) -> Applied {
    let name = volume_mut(map, volume)?.name.clone();
    if map.tiers.contains_key(&volume) {
        return Err(format!("volume {name} has a hot tier already: `shoal volume tier {name} status`"));
    }
    check_scheme(scheme)?;
    let width = scheme.width();
    if places.len() < width {
        return Err(format!("{scheme} needs {width} bricks at least, and here are {}", places.len()));
    }
    let nodes: BTreeSet<NodeId> = places.iter().map(|(node, _)| *node).collect();
    if nodes.len() < width && !force {
        return Err(format!(
            "{scheme} needs bricks on {width} nodes, and these are on {}: say `force` if that is what you want",
            nodes.len()
        ));
    }
    let Outcome::Bricks(added) = bricks::add(map, volume, places)? else {
        return Err("the bricks were not added".into());
    };
    let (replica, shards) = (scheme.copies(), scheme.shards());
    let bricks = added.iter().copied().collect();
    map.tiers.insert(volume, HotTier { bricks, replica, shards, detaching: false });
    Ok(Outcome::Bricks(added))
}

fn tier_mut(map: &mut ClusterMap, volume: GroupId) -> Result<&mut HotTier, String> {
    let name = volume_mut(map, volume)?.name.clone();
    map.tiers.get_mut(&volume).ok_or_else(|| format!("volume {name} has no hot tier"))
}

pub(super) fn detach(map: &mut ClusterMap, volume: GroupId, start: bool) -> Applied {
    let tier = tier_mut(map, volume)?;
    if tier.detaching == start {
        return Err(match start {
            true => "the hot tier is being detached already: `status` shows how far that is".into(),
            false => "the hot tier is not being detached".into(),
        });
    }
    tier.detaching = start;
    Ok(Outcome::Done)
}

pub(super) fn remove(map: &mut ClusterMap, volume: GroupId) -> Applied {
    let tier = tier_mut(map, volume)?;
    if !tier.detaching {
        return Err("the hot tier is in use; `detach start` has to come first".into());
    }
    let gone = tier.bricks.clone();
    bricks::set_state(map, &Vec::from_iter(gone), BrickState::Gone);
    map.tiers.remove(&volume);
    Ok(Outcome::Done)
}

pub(super) fn pin(
    map: &mut ClusterMap,
    volume: GroupId,
    ino: InodeId,
    tier: Option<Tier>,
    removed: &[InodeId],
) -> Applied {
    volume_mut(map, volume)?;
    if !set_policy(&mut map.pins, volume, (ino, tier), removed) {
        return Err(format!(
            "{POLICIES_MAX} directories and files are pinned already; pin a directory above several of them, or remove a pin \
             with `shoal tier pin PATH auto`"
        ));
    }
    Ok(Outcome::Done)
}
