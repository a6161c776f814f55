//! The administrator of a world: changes of the cluster map, as the commands of `shoal volume` make them.
//!
//! **Model.** A volume is converted from copies to shards and back, and so are single directories and files
//! of it. Bricks are added, drained and removed, and a hot tier is attached and detached. Servers know of a
//! change at once, and clients some seconds later. What is to be removed must be empty first: the
//! administrator polls until it is, and the world goes on meanwhile. A brick that was removed answers no
//! request any more.

use crate::cluster::{Cluster, leading_tiers};
use crate::layout::VOLUME;
use shoal_cluster::{BrickState, Command};
use shoal_meta::Server;
use shoal_namespace::query;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::{BlockScheme, BrickId, GroupId, InodeId};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// What does not become empty within this is not removed.
const EMPTY_WITHIN: Duration = Duration::from_secs(40);
/// How often an administrator looks whether it is empty.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest time between an answer to an administrator and the command that follows, in microseconds.
const COMMAND_US_MAX: u64 = 1_000_000;

/// One of so many changes of the schemes of directories takes one away.
const TAKES_AWAY_ONE_OF: u64 = 3;

const OF_WORLD: GroupId = GroupId(VOLUME);

/// Stores what is in copies in shards from now on, or the reverse.
pub fn convert(cluster: &Rc<Cluster>) {
    let Some(scheme) = cluster.layout().scheme else { return };
    let is_sharded = cluster.bricks.newest_map().schemes.contains_key(&OF_WORLD);
    let shards = (!is_sharded).then_some(scheme);
    let replica = cluster.layout().copies;
    allow_copies(cluster, BlockScheme::new(replica, shards));
    change_map(cluster, &Command::Convert { volume: OF_WORLD, replica, shards, force: true });
}

/// Lets blocks survive another number of losses than when the world began, if a scheme needs that.
fn allow_copies(cluster: &Rc<Cluster>, scheme: BlockScheme) {
    if scheme.copies() != cluster.layout().replica {
        change_map(cluster, &Command::AllowCopies { volume: OF_WORLD });
    }
}

/// Gives a directory or a file the scheme that the volume does not have, or takes such a scheme away.
pub fn set_scheme(cluster: &Rc<Cluster>) {
    let (Some(shards), Some(inodes)) = (cluster.layout().scheme, inodes_with_content(cluster)) else {
        return;
    };
    let map = cluster.bricks.newest_map();
    let schemes = map.policies(OF_WORLD).schemes;
    let takes_away = !schemes.is_empty() && cluster.world.below(TAKES_AWAY_ONE_OF) == 0;
    let inodes = if takes_away { schemes.keys().copied().collect() } else { inodes };
    let Some(ino) = inodes.get(cluster.world.below(inodes.len().max(1) as u64) as usize) else { return };
    let scheme = match map.schemes.contains_key(&OF_WORLD) {
        true => BlockScheme::Copies(cluster.layout().copies),
        false => BlockScheme::Shards(shards),
    };
    allow_copies(cluster, scheme);
    let (ino, scheme, removed) = (*ino, (!takes_away).then_some(scheme), Vec::new());
    change_map(cluster, &Command::SetDirectoryScheme { volume: OF_WORLD, ino, scheme, removed, force: true });
}

/// Files that refer to blocks, and the directories above them. `None` without a leader.
fn inodes_with_content(cluster: &Rc<Cluster>) -> Option<Vec<InodeId>> {
    let store = cluster.leading_server()?.replica().store().clone();
    let mut inodes = BTreeSet::from([InodeId::ROOT]);
    for (ino, _) in query::references(&*store, None, usize::MAX).ok()?.blocks {
        let mut at = ino;
        while inodes.insert(at) {
            at = query::record(&*store, at).ok()??.parent;
        }
    }
    Some(inodes.into_iter().collect())
}

/// Has the leader look again for blocks that are not where or not stored as they should be.
pub fn survey(cluster: &Rc<Cluster>) {
    tell(cluster, |server| server.placement_changed());
}

/// Adds a brick, as long as there is another.
pub fn add_brick(cluster: &Rc<Cluster>) {
    let bricks = cluster.bricks.next_places(1);
    if !bricks.is_empty() {
        change_map(cluster, &Command::AddBricks { volume: OF_WORLD, bricks });
    }
}

/// Attaches a hot tier, unless there is one, or too few bricks are left for it.
pub fn attach(cluster: &Rc<Cluster>) {
    let Some(hot) = cluster.layout().later_hot else { return };
    let (volume, bricks) = (OF_WORLD, cluster.bricks.next_places(hot.bricks));
    let command = Command::AttachTier { volume, replica: hot.copies, shards: None, bricks, force: false };
    change_map(cluster, &command);
}

/// Moves blocks to where placement would put them today.
pub fn rebalance(cluster: &Rc<Cluster>) {
    if cluster.bricks.change(&Command::Rebalance { volume: OF_WORLD }) {
        tell(cluster, |server| server.rebalance());
    }
}

/// Drains a brick, unless its tier would have too few others.
pub fn drain(cluster: &Rc<Cluster>, brick: u16) {
    change_map(cluster, &Command::Drain { volume: OF_WORLD, bricks: vec![BrickId(brick)] });
}

/// Begins to empty the hot tier, if there is one.
pub fn detach(cluster: &Rc<Cluster>) {
    change_map(cluster, &Command::DetachTier { volume: OF_WORLD, start: true });
}

/// Removes the bricks that are being drained, and the hot tier that is being detached, as soon as they are
/// empty.
pub fn commit(cluster: &Rc<Cluster>) {
    let end = cluster.world.time_ns() + EMPTY_WITHIN.as_nanos() as u64;
    while remove_what_is_empty(cluster) == Some(true) || cluster.leading_server().is_none() {
        if cluster.world.time_ns() > end {
            return;
        }
        sleep(LOOK_EVERY);
    }
}

/// Returns whether something is left to be removed. `None`: no server leads.
fn remove_what_is_empty(cluster: &Rc<Cluster>) -> Option<bool> {
    let mut is_left = remove_empty_bricks(cluster)?;
    let map = cluster.bricks.newest_map();
    if let Some(tier) = map.tiers.get(&OF_WORLD).filter(|tier| tier.detaching) {
        let (_, left) = split_free(cluster, tier.bricks.iter().copied().collect())?;
        let can_be_removed = left.is_empty() && leading_tiers(cluster)?.can_be_removed();
        if can_be_removed {
            take_time(cluster);
            change_map(cluster, &Command::RemoveTier { volume: OF_WORLD });
        }
        is_left |= !can_be_removed;
    }
    Some(is_left)
}

fn remove_empty_bricks(cluster: &Rc<Cluster>) -> Option<bool> {
    let draining = cluster.bricks.in_state(BrickState::Draining);
    let (free, left) = split_free(cluster, draining)?;
    if !free.is_empty() {
        take_time(cluster);
        change_map(cluster, &Command::Lose { volume: OF_WORLD, bricks: free });
    }
    Some(!left.is_empty())
}

/// Which of some bricks can be removed, and which cannot: as production decides it.
fn split_free(cluster: &Rc<Cluster>, bricks: Vec<BrickId>) -> Option<(Vec<BrickId>, Vec<BrickId>)> {
    if bricks.is_empty() {
        return Some((Vec::new(), Vec::new()));
    }
    let (cleared, mut left): (Vec<BrickId>, Vec<BrickId>) =
        bricks.into_iter().partition(|brick| cluster.bricks.is_cleared(*brick));
    let leader = cluster.leading_server()?;
    let used = leader.brick_use().ok()?;
    if left.iter().any(|brick| !used.contains_key(brick)) {
        leader.sweep();
    }
    let (used, free): (Vec<BrickId>, Vec<BrickId>) =
        cleared.into_iter().partition(|brick| used.contains_key(brick));
    left.extend(used);
    Some((free, left))
}

/// An administrator's command takes some time to be decided.
fn take_time(cluster: &Rc<Cluster>) {
    sleep(Duration::from_micros(cluster.world.below(COMMAND_US_MAX)));
}

/// Changes the map, unless production refuses that, and has all servers carry it out.
fn change_map(cluster: &Rc<Cluster>, command: &Command) {
    if !cluster.bricks.change(command) {
        return;
    }
    let settings = cluster.bricks.tier_settings();
    tell(cluster, move |server| {
        server.set_tiers(settings);
        server.placement_changed();
    });
}

fn tell(cluster: &Rc<Cluster>, what: impl Fn(&Server) + Clone + 'static) {
    for node in cluster.nodes() {
        let Some(server): Option<Arc<Server>> = cluster.servers.get(node) else { continue };
        let what = what.clone();
        cluster.world.start(node, Duration::ZERO, "map", Box::new(move || what(&server)));
    }
}
