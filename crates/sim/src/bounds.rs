//! What no part may exceed while a world lives, and what must be nobody's any more when everybody has left.

use crate::cluster::Cluster;
use crate::programs::Programs;
use crate::story::Book;
use shoal_client::limits::{UNCOMMITTED_BYTES_MAX, WALK_AHEAD_BYTES_MAX};
use shoal_meta::limits::{PROPOSALS_MAX, PROPOSED_BYTES_MAX};
use shoal_runtime::time::Duration;
use std::rc::Rc;

/// What those held that are gone is let go within this, when all is well.
const LET_GO_WITHIN: Duration = Duration::from_secs(90);
/// What a full cache may hold in addition, since it cannot be let go: changed and not committed, or just being used.
const CACHE_SLACK_BYTES: u64 = 1 << 20;
/// Blocks with too few copies that are looked at, of one moment.
const BLOCKS_LOOKED_AT_MAX: usize = 100;

/// What a mount counts, and the most that it may count.
fn of_mount(cache_bytes: u64) -> [(&'static str, u64); 3] {
    [
        ("cache_bytes", cache_bytes + CACHE_SLACK_BYTES),
        ("journal_uncommitted_bytes", UNCOMMITTED_BYTES_MAX),
        ("walk_ahead_bytes", WALK_AHEAD_BYTES_MAX as u64),
    ]
}

/// The same of a server.
const OF_SERVER: [(&str, u64); 2] =
    [("proposals_under_way", PROPOSALS_MAX as u64), ("proposed_bytes_under_way", PROPOSED_BYTES_MAX as u64)];

/// What a server counts that there is none of when there are no sessions.
const OF_NOBODY: [&str; 7] = [
    "granted_bytes",
    "lease_rights",
    "lease_waiting",
    "lease_undeclared",
    "locks",
    "locks_waiting",
    "proposals_under_way",
];

/// Looks at what everybody counts.
pub fn look(cluster: &Cluster, programs: &Programs, book: &Book, mounts: u32) {
    let too_many = |who: String, counted: &[(&'static str, u64)], most: &[(&str, u64)]| {
        for (name, most) in most {
            let Some((_, count)) = counted.iter().find(|(counted, _)| counted == name) else { continue };
            if count > most {
                book.find(format!("{who} has {name} of {count}, and may have {most}"));
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

/// Looks whether content counts that is on fewer bricks than a majority of the copies that the volume wants.
pub fn look_at_copies(cluster: &Cluster, book: &Book) {
    let Some(server) = cluster.leader().and_then(|leader| cluster.servers.get(leader)) else { return };
    // Whoever leads no longer, or not yet, does not say.
    let Ok(blocks) = server.degraded(BLOCKS_LOOKED_AT_MAX) else { return };
    let majority = usize::from(cluster.replica()) / 2 + 1;
    if let Some((id, info)) = blocks.iter().find(|(_, info)| info.group.len() < majority) {
        book.find(format!("block {id} counts though it is only on {:?}", info.group));
    }
}

/// Looks whether anything is left of those who have left. Of those who have died it may be for an hour, if nobody asks for it.
pub fn look_back(cluster: &Rc<Cluster>, programs: &Programs, book: &Book) {
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
            name => sessions == 0 && *count > 0 && OF_NOBODY.contains(&name),
        };
        left = counted.into_iter().filter(is_left).collect();
        left.is_empty()
    });
    if !is_clean {
        book.find(format!("of those who have unmounted or died there is left: {left:?}"));
    }
}
