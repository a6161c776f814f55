//! What runs for volumes, and whether metadata replicas agree.

use super::table::Table;
use super::{count, known, yes};
use crate::admin::{ReplicaStatus, VolumeStatus};
use crate::show;
use std::collections::BTreeMap;
use std::fmt::Write;

/// `volume status`.
pub fn statuses(volumes: &[VolumeStatus], digest: bool) -> String {
    if volumes.is_empty() {
        return "No volumes present\n".into();
    }
    let mut text = String::new();
    for volume in volumes {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "Status of volume: {} ({})", volume.name, super::state(volume.state));
        let mut bricks = Table::new(&["Shoal process", ">TCP Port", "Online", ">Pid", ">Free", ">Size"]);
        for brick in &volume.bricks {
            let draining = if brick.draining { " (being removed)" } else { "" };
            bricks.row(&[
                &format!("Brick {}{draining}", brick.brick),
                &brick.port,
                &yes(brick.online),
                &known(brick.pid),
                &known(brick.free_bytes.map(show::bytes)),
                &known(brick.total_bytes.map(show::bytes)),
            ]);
        }
        text.push_str(&bricks.render(true));
        for brick in &volume.bricks {
            if let Some(trouble) = &brick.trouble {
                let _ = writeln!(text, "  {}: {trouble}", brick.brick);
            }
        }
        let _ = write!(text, "\n{}", replicas(&volume.replicas, digest));
    }
    text
}

fn replicas(replicas: &[ReplicaStatus], digest: bool) -> String {
    let mut head = vec!["Metadata replica", "Online", "Role", ">Term", ">Index", ">Lag"];
    if digest {
        head.extend([">Digest at", "Digest"]);
    }
    let mut table = Table::new(&head);
    for replica in replicas {
        let name = format!("Replica {} on {}", replica.replica, replica.node);
        let (online, term) = (yes(replica.online), known(replica.term));
        let (applied, lag) = (known(replica.applied), known(replica.lag));
        let at = known(replica.digest.as_ref().map(|digest| digest.index));
        let value = known(replica.digest.as_ref().map(|digest| &digest.digest));
        let cells: [&dyn ToString; 8] = [&name, &online, &replica.role, &term, &applied, &lag, &at, &value];
        table.row(cells.get(..head.len()).unwrap_or(&cells));
    }
    table.render(true)
}

/// What digests say of a metadata group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// All replicas have the same index and the same state.
    Identical,
    /// Nothing speaks against it, but replicas are missing or were at different indexes.
    Undecided,
    /// Two replicas have different states at the same index.
    Different,
}

/// Compares the digests of a group's replicas.
pub fn agreement(replicas: &[ReplicaStatus]) -> Agreement {
    let mut by_index: BTreeMap<u64, &str> = BTreeMap::new();
    let digests = || replicas.iter().filter_map(|replica| replica.digest.as_ref());
    for digest in digests() {
        if *by_index.entry(digest.index).or_insert(&digest.digest) != digest.digest {
            return Agreement::Different;
        }
    }
    let all = !replicas.is_empty() && digests().count() == replicas.len();
    if all && by_index.len() == 1 { Agreement::Identical } else { Agreement::Undecided }
}

/// `volume digest`.
pub fn digests(volume: &VolumeStatus) -> String {
    let mut text = replicas(&volume.replicas, true);
    let there = volume.replicas.iter().filter(|replica| replica.digest.is_some()).count() as u64;
    let all = volume.replicas.len();
    text.push_str(&match agreement(&volume.replicas) {
        Agreement::Identical => format!("\nIdentical: {} of {all}, byte for byte.\n", count(there, "replica")),
        Agreement::Undecided if there < all as u64 => {
            format!("\nOnly {there} of {all} replicas answered; among those nothing differs.\n")
        }
        Agreement::Undecided => "\nThe replicas were at different indexes: ask again when less is being written.\n".into(),
        Agreement::Different => {
            "\nTHE REPLICAS DIFFER at the same index. Stop the volume, keep the data directories, and report this.\n".into()
        }
    });
    text
}
