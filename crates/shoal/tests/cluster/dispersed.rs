//! Blocks in shards: nodes die under load, one comes back empty, and nothing is lost.

use crate::harness::load::pattern;
use crate::harness::{Cluster, Load};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Nodes, each with a brick: as many as a block of 3 + 2 has shards.
const NODES: usize = 5;
/// Bytes of each large file: blocks of several lengths, all long enough to be split.
const LARGE_BYTES: u64 = (9 << 20) + 300_000;
const LARGE_FILES: u64 = 4;
/// Bytes on the bricks for each byte of the large files: 5/3, and the headers of the shards.
const OVERHEAD_MAX: f64 = 1.75;

/// Bytes of all files below a directory.
fn stored(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the brick can be read").map(|entry| entry.expect("an entry"));
    let sizes = entries.map(|entry| match entry.file_type().expect("a type").is_dir() {
        true => stored(&entry.path()),
        false => entry.metadata().map_or(0, |meta| meta.len()),
    });
    sizes.sum()
}

fn large(mount: &Path, seed: u64) -> PathBuf {
    mount.join(format!("large-{seed}"))
}

fn check_large(mount: &Path) {
    for seed in 1..=LARGE_FILES {
        let content = fs::read(large(mount, seed)).expect("a large file can be read");
        assert!(content == pattern(seed, LARGE_BYTES), "large file {seed} is not as it was written");
    }
}

#[test]
fn dispersed_volume_loses_nothing_when_nodes_die_and_a_wiped_one_is_healed() {
    let mut cluster = Cluster::new(NODES);
    let words = ["volume", "create", "v", "disperse", "5", "redundancy", "2"];
    let create = words.iter().fold(cluster.shoal(1), |command, word| command.arg(word));
    (1..=NODES).fold(create, |command, node| command.arg(cluster.brick(node))).ok();
    cluster.shoal(1).arg("volume").arg("start").arg("v").ok();
    let info = cluster.shoal(1).arg("volume").arg("info").arg("v").ok();
    assert!(info.contains("Type: Disperse") && info.contains("Shards of each block: 3 + 2"), "{info}");

    let mount = cluster.mount();
    let before: u64 = (1..=NODES).map(|node| stored(&cluster.brick_path(node))).sum();
    for seed in 1..=LARGE_FILES {
        fs::write(large(mount.path(), seed), pattern(seed, LARGE_BYTES)).expect("written");
        File::open(large(mount.path(), seed)).and_then(|file| file.sync_all()).expect("synced");
    }
    let after: u64 = (1..=NODES).map(|node| stored(&cluster.brick_path(node))).sum();
    let overhead = (after - before) as f64 / (LARGE_FILES * LARGE_BYTES) as f64;
    assert!(overhead < OVERHEAD_MAX, "{overhead:.2} bytes on the bricks for each byte");

    // One node may be down while files are written.
    let load = Load::start(mount.path(), "load");
    load.advance(20);
    cluster.kill(5);
    load.advance(20);
    cluster.wipe(5);
    cluster.renew_token(1);
    cluster.enter(5);
    cluster.start(5);
    cluster.shoal(1).arg("volume").arg("add-brick").arg("v").arg(cluster.brick(5)).ok();
    load.advance(20);
    let (expected, stall) = load.stop();
    println!("a node of a dispersed volume wiped: longest call {stall:?}");
    cluster.wait_healed(1, 180);
    expected.check();
    check_large(mount.path());
    mount.unmount();

    // Two nodes may be down while files are read. The wiped one serves what it was given back.
    cluster.kill(3);
    cluster.kill(4);
    let mount = cluster.mount();
    expected.check();
    check_large(mount.path());
    mount.unmount();
    cluster.start(3);
    cluster.start(4);
    cluster.wait_healed(1, 180);
    // The metadata of a node and the shards on its brick agree.
    cluster.stop(2);
    cluster.fsck(2);
}
