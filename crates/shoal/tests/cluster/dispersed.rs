//! Blocks in shards: nodes die under load, one comes back empty, and nothing is lost.

use crate::harness::load::pattern;
use crate::harness::{Cluster, Load, eventually};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Nodes, each with a brick: as many as a block of 3 + 2 has shards.
const NODES: usize = 5;
/// Bytes of each large file: blocks of several lengths, all long enough to be split.
const LARGE_BYTES: u64 = (9 << 20) + 300_000;
const LARGE_FILES: u64 = 4;
/// Bytes on the bricks for each byte of the large files: 5/3, and the headers of the shards.
const OVERHEAD_MAX: f64 = 1.75;

/// Nodes for 4 + 2 with one to spare, so that two may be down while files are written.
const NODES_WITH_SPARE: usize = 7;
/// Bytes on the bricks for each byte of the large files with 4 + 2: 6/4, and the headers of the shards.
const OVERHEAD_MAX_WITH_SPARE: f64 = 1.6;

/// Nodes for 4 + 2 that are enough for all shards when two of them are lost.
const NODES_WITH_TWO_SPARES: usize = 8;
/// Files of one block in shards each, in several of the pages that the healer commits at once.
const ENDANGERED_FILES: u64 = 150;
const ENDANGERED_BYTES: u64 = 200_000;

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

/// Writes the large files, and returns how many bytes the bricks grew by for each byte.
fn write_large(cluster: &Cluster, nodes: usize, mount: &Path) -> f64 {
    let on_bricks = || (1..=nodes).map(|node| stored(&cluster.brick_path(node))).sum::<u64>();
    let before = on_bricks();
    for seed in 1..=LARGE_FILES {
        fs::write(large(mount, seed), pattern(seed, LARGE_BYTES)).expect("written");
        File::open(large(mount, seed)).and_then(|file| file.sync_all()).expect("synced");
    }
    (on_bricks() - before) as f64 / (LARGE_FILES * LARGE_BYTES) as f64
}

/// Creates and starts volume v on one brick of each node.
fn create(cluster: &Cluster, nodes: usize, scheme: &str) {
    let words = format!("volume create v {scheme}");
    let command = words.split(' ').fold(cluster.shoal(1), |command, word| command.arg(word));
    (1..=nodes).fold(command, |command, node| command.arg(cluster.brick(node))).ok();
    cluster.shoal(1).arg("volume").arg("start").arg("v").ok();
}

fn info(cluster: &Cluster) -> String {
    cluster.shoal(1).arg("volume").arg("info").arg("v").ok()
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
    create(&cluster, NODES, "disperse 5 redundancy 2");
    let info = info(&cluster);
    assert!(info.contains("Type: Disperse") && info.contains("Shards of each block: 3 + 2"), "{info}");

    let mount = cluster.mount();
    let overhead = write_large(&cluster, NODES, mount.path());
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

/// Waits until the large files are in shards, or no block is, and no block is left to convert.
fn wait_converted(cluster: &Cluster, to_shards: bool) {
    eventually("all blocks are converted", 240, || {
        let report = cluster.json(1, &["volume", "convert", "v", "status"])?;
        let schemes = report["schemes"].as_array().ok_or("no schemes")?;
        let sharded = schemes.iter().filter(|scheme| !scheme["shards"].is_null());
        let in_shards: u64 = sharded.filter_map(|scheme| scheme["bytes"].as_u64()).sum();
        let is_so = if to_shards { in_shards > (LARGE_FILES - 1) * LARGE_BYTES } else { in_shards == 0 };
        match is_so && schemes.iter().all(|scheme| scheme["left"] == 0) {
            true => Ok(()),
            false => Err(report.to_string()),
        }
    });
    cluster.wait_healed(1, 180);
}

#[test]
fn volume_is_converted_to_shards_and_back_while_it_is_written_and_its_leader_dies() {
    let mut cluster = Cluster::new(NODES);
    create(&cluster, NODES, "replica 3");
    let convert = |cluster: &Cluster, words: &str| {
        let command = cluster.shoal(1).arg("volume").arg("convert").arg("v");
        words.split(' ').fold(command, |command, word| command.arg(word)).outcome()
    };
    let mount = cluster.mount();
    write_large(&cluster, NODES, mount.path());
    let refused = convert(&cluster, "disperse 5 redundancy 1");
    assert!(refused.to_string().contains("would survive 1"), "{refused}");

    let load = Load::start(mount.path(), "load");
    load.advance(20);
    assert!(convert(&cluster, "disperse 5 redundancy 2").to_string().contains("success"));
    assert!(info(&cluster).contains("Shards of each block: 3 + 2"));
    let leader = cluster.leader(1);
    cluster.kill(leader);
    load.advance(20);
    cluster.start(leader);
    wait_converted(&cluster, true);
    load.advance(20);
    check_large(mount.path());

    // Back to copies, and to more of them than the volume was created with.
    assert!(convert(&cluster, "replica 4").to_string().contains("success"));
    wait_converted(&cluster, false);
    assert!(info(&cluster).contains("Copies of each block: 4"));
    let (expected, stall) = load.stop();
    println!("a volume converted twice, its leader killed: longest call {stall:?}");
    expected.check();
    check_large(mount.path());
    mount.unmount();
    let refused = convert(&cluster, "replica 4");
    assert!(refused.to_string().contains("is replica 4 already"), "{refused}");
    cluster.stop(2);
    cluster.fsck(2);
}

/// Bytes that are in shards, when no block is left to convert.
fn sharded_bytes(cluster: &Cluster) -> Result<u64, String> {
    let report = cluster.json(1, &["volume", "convert", "v", "status"])?;
    let schemes = report["schemes"].as_array().ok_or("no schemes")?;
    if schemes.iter().any(|scheme| scheme["left"] != 0) {
        return Err(report.to_string());
    }
    let sharded = schemes.iter().filter(|scheme| !scheme["shards"].is_null());
    Ok(sharded.filter_map(|scheme| scheme["bytes"].as_u64()).sum())
}

#[test]
fn directory_is_converted_to_shards_and_back_while_a_node_dies_and_files_move_in_and_out() {
    let mut cluster = Cluster::new(NODES);
    create(&cluster, NODES, "replica 3");
    let scheme = |cluster: &Cluster, path: &Path, words: &str| {
        let command = cluster.shoal(1).arg("scheme").arg(path);
        words.split_whitespace().fold(command, |command, word| command.arg(word)).outcome().to_string()
    };
    let mount = cluster.mount();
    let (old, other) = (mount.path().join("old"), mount.path().join("other"));
    fs::create_dir_all(old.join("below")).expect("created");
    fs::create_dir(&other).expect("created");
    let write = |path: &Path, seed: u64| {
        fs::write(path, pattern(seed, LARGE_BYTES)).expect("written");
        fs::File::open(path).and_then(|file| file.sync_all()).expect("synced");
    };
    for (path, seed) in
        [(old.join("a"), 1), (old.join("below/b"), 2), (other.join("c"), 3), (other.join("d"), 4)]
    {
        write(&path, seed);
    }
    assert!(scheme(&cluster, &old, "").contains("auto: replica 3"));
    assert!(scheme(&cluster, &old, "disperse 5 redundancy 1").contains("would survive 1"));
    assert!(scheme(&cluster, &cluster.local(), "").contains("is not on a Shoal volume"));

    // The leader dies while it converts what is there.
    let load = Load::start(mount.path(), "load");
    assert!(scheme(&cluster, &old, "disperse 5 redundancy 2").contains("disperse 5 redundancy 2"));
    assert!(scheme(&cluster, &old.join("below/b"), "").contains("inherited from /old"));
    let leader = cluster.leader(1);
    cluster.kill(leader);
    load.advance(20);
    cluster.start(leader);
    let has_shards = |cluster: &Cluster, files: u64| {
        eventually("the right files are in shards", 240, || match sharded_bytes(cluster)? {
            bytes if bytes == files * LARGE_BYTES => Ok(()),
            bytes => Err(format!("{bytes} bytes are in shards")),
        });
    };
    has_shards(&cluster, 2);
    cluster.wait_healed(1, 180);
    let status = cluster.shoal(1).arg("volume").arg("convert").arg("v").arg("status").ok();
    assert!(status.contains("/old: disperse 5 redundancy 2"), "{status}");

    // A mount that knows the scheme stores new content so, and the nearest directory decides.
    let (expected, stall) = load.stop();
    mount.unmount();
    let mount = cluster.mount();
    assert!(scheme(&cluster, &old.join("below"), "replica 3").contains("replica 3"));
    has_shards(&cluster, 1);
    write(&old.join("e"), 5);
    assert_eq!(sharded_bytes(&cluster), Ok(2 * LARGE_BYTES), "it was stored in shards");

    // What is renamed has the scheme of its new directory: at once when anything makes the leader look.
    fs::rename(old.join("a"), other.join("a")).expect("renamed");
    fs::rename(other.join("c"), old.join("c")).expect("renamed");
    fs::rename(other.join("d"), old.join("d")).expect("renamed");
    assert!(scheme(&cluster, &old.join("below"), "auto").contains("auto"));
    has_shards(&cluster, 4);
    assert!(scheme(&cluster, &old, "auto").contains("auto"));
    has_shards(&cluster, 0);
    println!("a directory converted twice, the leader killed: longest call {stall:?}");
    expected.check();
    let files = [
        (other.join("a"), 1),
        (old.join("below/b"), 2),
        (old.join("c"), 3),
        (old.join("d"), 4),
        (old.join("e"), 5),
    ];
    for (path, seed) in files {
        assert!(fs::read(&path).expect("read") == pattern(seed, LARGE_BYTES), "{path:?}");
    }
    cluster.wait_healed(1, 180);
    mount.unmount();
    cluster.stop(2);
    cluster.fsck(2);
}

/// Blocks of a volume of shards that survive so many further losses; `None`: those that cannot be read.
fn surviving(cluster: &Cluster, losses: Option<u64>) -> Result<u64, String> {
    let heal = cluster.json(1, &["volume", "heal", "v", "info"])?;
    let classes = heal["losses"]["classes"].as_array().ok_or_else(|| heal.to_string())?;
    let wanted = classes.iter().filter(|it| !it["shards"].is_null() && it["survives"].as_u64() == losses);
    Ok(wanted.filter_map(|it| it["blocks"].as_u64()).sum())
}

#[test]
fn two_lost_bricks_are_healed_with_the_most_endangered_blocks_first() {
    let mut cluster = Cluster::new(NODES_WITH_TWO_SPARES);
    create(&cluster, NODES_WITH_TWO_SPARES, "disperse-data 4 redundancy 2");
    let mount = cluster.mount();
    let file = |seed: u64| mount.path().join(format!("file-{seed}"));
    for seed in 1..=ENDANGERED_FILES {
        fs::write(file(seed), pattern(seed, ENDANGERED_BYTES)).expect("written");
    }
    File::open(mount.path()).and_then(|dir| dir.sync_all()).expect("synced");
    cluster.wait_healed(1, 60);
    assert_eq!(surviving(&cluster, Some(2)), Ok(ENDANGERED_FILES), "all are whole");

    // The first three nodes keep the metadata.
    let lost = [NODES_WITH_TWO_SPARES - 1, NODES_WITH_TWO_SPARES];
    lost.iter().for_each(|node| cluster.kill(*node));
    let (mut most, mut less) = (0, 0);
    eventually("it is known what the blocks survive", 60, || {
        (most, less) = (surviving(&cluster, Some(0))?, surviving(&cluster, Some(1))?);
        match (most > 0 && less > 0, surviving(&cluster, None)?) {
            (true, 0) if most + less + surviving(&cluster, Some(2))? == ENDANGERED_FILES => Ok(()),
            found => Err(format!("{most} {less} {found:?}")),
        }
    });
    let shown = cluster.shoal(1).arg("volume").arg("heal").arg("v").arg("info").outcome().to_string();
    assert!(shown.contains("Survive further losses") && shown.contains("4 + 2 shards  0 "), "{shown}");

    let set = cluster.shoal(1).arg("volume").arg("set").arg("v");
    set.arg("heal.bytes-per-second").arg("3MB").ok();
    let remove = cluster.shoal(1).arg("--mode=script").arg("volume").arg("remove-brick").arg("v");
    lost.iter().fold(remove, |command, node| command.arg(cluster.brick(*node))).arg("force").ok();
    let mut samples = 0;
    eventually("all blocks are whole again", 240, || {
        // What survives one loss is read first: it may only become less once nothing survives none.
        let (found_less, found_most) = (surviving(&cluster, Some(1))?, surviving(&cluster, Some(0))?);
        assert!(found_less <= less, "a block got back one of two shards: {found_less} of {less}");
        assert!(found_less == less || found_most == 0, "{found_most} are more endangered");
        samples += u64::from(found_most > 0 && found_most < most);
        match surviving(&cluster, Some(2))? {
            ENDANGERED_FILES => Ok(()),
            whole => Err(format!("{found_most} survive none, {found_less} one, {whole} two")),
        }
    });
    assert!(samples > 0, "the order was observed");
    for seed in 1..=ENDANGERED_FILES {
        let content = fs::read(file(seed)).expect("a file can be read");
        assert!(content == pattern(seed, ENDANGERED_BYTES), "file {seed} is not as it was written");
    }
    mount.unmount();
    cluster.stop(2);
    cluster.fsck(2);
}

#[test]
fn with_a_spare_node_and_five_metadata_replicas_any_two_nodes_may_be_down() {
    let mut cluster = Cluster::new(NODES_WITH_SPARE);
    create(&cluster, NODES_WITH_SPARE, "disperse-data 4 redundancy 2");
    let shown = info(&cluster);
    assert!(shown.contains("Nodes that may be down: 1 (of those with bricks 2"), "three replicas: {shown}");
    let set = cluster.shoal(1).arg("volume").arg("set").arg("v");
    set.arg("cluster.metadata-replicas").arg("5").ok();
    cluster.wait_identical(1, 5);
    let shown = info(&cluster);
    assert!(shown.contains("Nodes that may be down: 2"), "five replicas: {shown}");

    let mount = cluster.mount();
    let overhead = write_large(&cluster, NODES_WITH_SPARE, mount.path());
    assert!(overhead < OVERHEAD_MAX_WITH_SPARE, "{overhead:.2} bytes on the bricks for each byte");

    // Both have metadata, and what is written now lacks shards.
    let load = Load::start(mount.path(), "load");
    load.advance(20);
    cluster.kill(2);
    cluster.kill(4);
    load.advance(60);
    let (expected, stall) = load.stop();
    println!("two of seven nodes of a dispersed volume killed: longest call {stall:?}");
    expected.check();
    check_large(mount.path());
    eventually("blocks that lack shards are counted", 60, || {
        let heal = cluster.json(1, &["volume", "heal", "v", "info"])?;
        match heal["degraded"].as_u64() {
            Some(1..) => Ok(()),
            _ => Err(heal.to_string()),
        }
    });
    cluster.start(2);
    cluster.start(4);
    cluster.wait_healed(1, 180);

    // Two others: what was written meanwhile needs the shards that were restored.
    cluster.kill(1);
    cluster.kill(5);
    expected.check();
    check_large(mount.path());
    mount.unmount();
    (1..=NODES_WITH_SPARE).filter(|node| ![1, 5].contains(node)).for_each(|node| cluster.kill(node));
    (1..=NODES_WITH_SPARE).for_each(|node| cluster.start(node));
    cluster.wait_healed(1, 180);
    let mount = cluster.mount();
    expected.check();
    check_large(mount.path());
    mount.unmount();
    cluster.stop(4);
    cluster.fsck(4);
}
