//! Limits that no part may exceed while a world lives, and what must be empty when all clients have
//! unmounted.

use crate::brick::SimBrick;
use crate::cluster::Cluster;
use crate::findings::Findings;
use crate::programs::Programs;
use shoal_client::limits::{UNCOMMITTED_BYTES_MAX, WALK_AHEAD_BYTES_MAX};
use shoal_cluster::BrickState;
use shoal_cluster::blocks::names;
use shoal_meta::limits::{PROPOSALS_MAX, PROPOSED_BYTES_MAX};
use shoal_namespace::kv::KvStore;
use shoal_namespace::query;
use shoal_runtime::time::Duration;
use shoal_types::{BlockGroup, BlockId, BrickId, Tier};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// When all faults are over, what a departed client held is released within this.
const LET_GO_WITHIN: Duration = Duration::from_secs(90);
/// What a full cache may hold in addition, since it cannot be evicted: changes that are not committed, and
/// entries in use.
const CACHE_SLACK_BYTES: u64 = 1 << 20;
/// Blocks that are examined at one moment: more than worlds have.
const BLOCKS_LOOKED_AT_MAX: usize = 1000;

/// The counters of a mount, each with its limit.
fn of_mount(cache_bytes: u64) -> [(&'static str, u64); 3] {
    [
        ("cache_bytes", cache_bytes + CACHE_SLACK_BYTES),
        ("journal_uncommitted_bytes", UNCOMMITTED_BYTES_MAX),
        ("walk_ahead_bytes", WALK_AHEAD_BYTES_MAX as u64),
    ]
}

/// The counters of a server, each with its limit.
const OF_SERVER: [(&str, u64); 2] =
    [("proposals_under_way", PROPOSALS_MAX as u64), ("proposed_bytes_under_way", PROPOSED_BYTES_MAX as u64)];

/// Counters of a server that are 0 without sessions.
const WITHOUT_SESSIONS: [&str; 7] = [
    "granted_bytes",
    "lease_rights",
    "lease_waiting",
    "lease_undeclared",
    "locks",
    "locks_waiting",
    "proposals_under_way",
];

/// Checks the counters of all mounts and servers.
pub fn look(cluster: &Cluster, programs: &Programs, findings: &Findings, mounts: u32) {
    let too_many = |who: String, counted: &[(&'static str, u64)], most: &[(&str, u64)]| {
        for (name, most) in most {
            let Some((_, count)) = counted.iter().find(|(counted, _)| counted == name) else { continue };
            if count > most {
                findings.add(format!("{who}: {name} is {count}, at most {most} is allowed"));
            }
        }
    };
    for mount in 0..mounts {
        let Some(client) = programs.client(mount) else { continue };
        let counted: Vec<_> = client.stats().iter().map(|stat| (stat.name, stat.value)).collect();
        too_many(format!("client {mount}"), &counted, &of_mount(cluster.cache_bytes() as u64));
    }
    for node in cluster.nodes() {
        let Some(server) = cluster.servers.get(node) else { continue };
        too_many(format!("node {node}"), &server.stats(), &OF_SERVER);
    }
}

/// Checks that all committed content is on as many bricks as was promised, and that each brick that its
/// record names has it, also while it is moved. Where copies are damaged, blocks are only noted.
pub fn look_at_blocks(cluster: &Cluster, findings: &Findings, has_damage: bool) {
    // Meanwhile another node may lead, and delete what this one still knows: such a block is fine when it is
    // looked at again.
    let short = short_blocks(cluster, findings).filter(|short| !short.is_empty() && !has_damage);
    let Some(short) = short else { return };
    let Some(again) = short_blocks(cluster, findings) else { return };
    let is_known = |block: &String| findings.list.borrow().contains(block);
    if let Some(block) = short.iter().find(|block| again.contains(block) && !is_known(block)) {
        findings.add(block.clone());
    }
}

/// Blocks on too few bricks, in words. `None`: there is no leader that is up to date.
fn short_blocks(cluster: &Cluster, findings: &Findings) -> Option<Vec<String>> {
    let server = cluster.leading_server()?;
    if !server.replica().leads() {
        return None;
    }
    let blocks = query::blocks(&server.replica().store().snapshot(), None, BLOCKS_LOOKED_AT_MAX).ok()?;
    let holds = |(id, brick): (BrickId, &Arc<SimBrick>)| Some((id, brick.holds().ok()?));
    let there: BTreeMap<BrickId, BTreeSet<BlockId>> = cluster.bricks.all().filter_map(holds).collect();
    let removed = cluster.bricks.in_state(BrickState::Gone);
    let copies = cluster.layout().replica;
    let mut short = Vec::new();
    for (id, block) in blocks.into_iter().filter(|(_, block)| block.refs > 0) {
        // A brick that was removed counts as lost.
        let group = removed.iter().fold(block.info.group, |group, brick| group.without(*brick));
        let must_be_whole = findings.places.borrow_mut().see(id, &block.info.group, copies);
        if !is_promised(&group, copies) {
            short.push(format!("block {id} is committed, but only on {group:?}"));
        }
        if must_be_whole && group.is_short(copies) {
            short.push(format!("block {id} was whole, and is only on {group:?}"));
        }
        let lacks = |brick: &BrickId| {
            !there.get(brick).is_some_and(|has| has.contains(&names::on_brick(id, &group, *brick)))
        };
        if let Some(brick) = group.bricks().find(lacks) {
            short.push(format!("block {id} is said to be on {group:?}, and {brick} does not have it"));
        }
    }
    Some(short)
}

/// Whether a group is as large as a write or a move must leave it: on the hot tier all copies, of shards one
/// more than give the block back, of other copies a majority. `original`: copies when the world began.
fn is_promised(group: &BlockGroup, original: u8) -> bool {
    match group.data_shards() {
        0 if group.tier() == Tier::Hot => !group.is_short(original),
        0 => group.len() > usize::from(group.wanted_copies(original)) / 2,
        data => group.len() > data,
    }
}

/// Checks that nothing is left of departed clients. What a dead client held may stay for an hour, if no other
/// client asks for it.
pub fn look_back(cluster: &Rc<Cluster>, programs: &Programs, findings: &Findings) {
    let dead = programs.deaths.borrow().len() as u64;
    let mut left = Vec::new();
    let is_clean = cluster.wait_until(LET_GO_WITHIN, || {
        let Some(server) = cluster.leading_server() else { return false };
        let counted = server.stats();
        let sessions = counted.iter().find(|(name, _)| *name == "sessions").map_or(0, |(_, count)| *count);
        let is_left = |(name, count): &(&str, u64)| match *name {
            "sessions" => *count > dead,
            name => sessions == 0 && *count > 0 && WITHOUT_SESSIONS.contains(&name),
        };
        left = counted.into_iter().filter(is_left).collect();
        left.is_empty()
    });
    if !is_clean {
        findings.add(format!("departed clients have left: {left:?}"));
    }
}
