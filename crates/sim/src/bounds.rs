//! Limits that no part may exceed while a world lives, and what must be empty when all clients have
//! unmounted.

use crate::cluster::Cluster;
use crate::findings::Findings;
use crate::programs::Programs;
use shoal_client::limits::{UNCOMMITTED_BYTES_MAX, WALK_AHEAD_BYTES_MAX};
use shoal_meta::limits::{PROPOSALS_MAX, PROPOSED_BYTES_MAX};
use shoal_runtime::time::Duration;
use std::rc::Rc;

/// When all faults are over, what a departed client held is released within this.
const LET_GO_WITHIN: Duration = Duration::from_secs(90);
/// What a full cache may hold in addition, since it cannot be evicted: changes that are not committed, and
/// entries in use.
const CACHE_SLACK_BYTES: u64 = 1 << 20;
/// Blocks with too few copies that are examined at one moment.
const BLOCKS_LOOKED_AT_MAX: usize = 100;

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

/// Checks that no committed content is on fewer bricks than a majority of the copies that the volume wants.
pub fn look_at_copies(cluster: &Cluster, findings: &Findings) {
    let Some(server) = cluster.leader().and_then(|leader| cluster.servers.get(leader)) else { return };
    // A server that is not the leader, or not yet, does not answer.
    let Ok(blocks) = server.degraded(BLOCKS_LOOKED_AT_MAX) else { return };
    let majority = usize::from(cluster.replica()) / 2 + 1;
    if let Some((id, info)) = blocks.iter().find(|(_, info)| info.group.len() < majority) {
        findings.add(format!("block {id} is committed, but only on {:?}", info.group));
    }
}

/// Checks that nothing is left of departed clients. What a dead client held may stay for an hour, if no other
/// client asks for it.
pub fn look_back(cluster: &Rc<Cluster>, programs: &Programs, findings: &Findings) {
    let dead = programs.deaths.borrow().len() as u64;
    let mut left = Vec::new();
    let is_clean = cluster.wait_until(LET_GO_WITHIN, || {
        let Some(server) = cluster.leader().and_then(|leader| cluster.servers.get(leader)) else {
            return false;
        };
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
