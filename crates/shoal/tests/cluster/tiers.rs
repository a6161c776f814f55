//! A hot tier: attached, filled, emptied by age, filled again by reads, and detached. No byte changes.

use crate::harness::load::pattern;
use crate::harness::{Cluster, eventually};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

const FILES: u64 = 6;
/// Long enough for several blocks.
const FILE_BYTES: u64 = (5 << 20) + 12_345;
/// However slow the machine is, the mover gets there; it waits for files to be unused for 10 s.
const PATIENCE_S: u64 = 300;

fn volume(cluster: &Cluster, words: &str) -> String {
    let command = cluster.shoal(1).arg("volume");
    words.split(' ').fold(command, |command, word| command.arg(word)).ok()
}

fn set(cluster: &Cluster, key: &str, value: &str) {
    volume(cluster, &format!("set v {key} {value}"));
}

/// All bricks are on this machine's disk, which may be used to more than the default watermarks.
fn let_tiers_be_full(cluster: &Cluster) {
    set(cluster, "tier.high-watermark", "99");
    set(cluster, "tier.low-watermark", "98");
}

fn status(cluster: &Cluster) -> Result<Value, String> {
    cluster.json(1, &["volume", "tier", "v", "status"])
}

/// Waits until a figure of the status is as it should be.
fn wait(cluster: &Cluster, what: &str, is_so: impl Fn(&Value) -> bool) {
    eventually(what, PATIENCE_S, || {
        let status = status(cluster)?;
        if is_so(&status) { Ok(()) } else { Err(status.to_string()) }
    });
}

fn write(mount: &Path) {
    for seed in 1..=FILES {
        let path = mount.join(format!("file-{seed}"));
        fs::write(&path, pattern(seed, FILE_BYTES)).expect("written");
        File::open(path).and_then(|file| file.sync_all()).expect("synced");
    }
}

/// Reads everything through a mount whose caches are empty.
fn check(cluster: &Cluster) {
    let mount = cluster.mount();
    for seed in 1..=FILES {
        let found = fs::read(mount.path().join(format!("file-{seed}"))).expect("read");
        assert!(found == pattern(seed, FILE_BYTES), "file {seed} is not as it was written");
    }
    mount.unmount();
}

fn hot_path(cluster: &Cluster, node: usize) -> String {
    format!("{}-hot", cluster.brick(node))
}

/// Blocks on the bricks of the hot tier.
fn on_hot_bricks(cluster: &Cluster) -> usize {
    fn files(dir: &Path) -> usize {
        let entries =
            fs::read_dir(dir).map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
        entries.iter().map(|one| if one.path().is_dir() { files(&one.path()) } else { 1 }).sum()
    }
    let path = |node| cluster.brick_path(node).with_file_name(format!("brick{node}-hot")).join("blocks");
    (1..=2).map(|node| files(&path(node))).sum()
}

#[test]
fn files_keep_their_bytes_while_they_move_between_tiers_and_the_hot_one_is_detached() {
    let cluster = Cluster::with_volume(3);
    let before = cluster.mount();
    fs::write(before.path().join("old"), pattern(99, FILE_BYTES)).expect("written");
    before.unmount();
    let (first, second) = (hot_path(&cluster, 1), hot_path(&cluster, 2));
    let_tiers_be_full(&cluster);
    set(&cluster, "tier.promote-reads", "0");
    volume(&cluster, &format!("tier v attach replica 2 {first} {second}"));

    // New content is on the hot tier: a mount that began before learns of it, too.
    let mount = cluster.mount();
    eventually("new blocks are hot", PATIENCE_S, || {
        write(mount.path());
        let status = status(&cluster)?;
        if status["hot_blocks"].as_u64() > Some(FILES) { Ok(()) } else { Err(status.to_string()) }
    });
    mount.unmount();
    assert!(on_hot_bricks(&cluster) > 0);
    check(&cluster);
    assert!(volume(&cluster, "tier v plan").contains("Nothing"), "all of it is new");

    // By age.
    set(&cluster, "tier.pause", "on");
    set(&cluster, "tier.demote-after", "1s");
    eventually("the plan has the files", PATIENCE_S, || {
        let plan = volume(&cluster, "tier v plan");
        if plan.contains("not used for") && plan.contains("/file-1") { Ok(()) } else { Err(plan) }
    });
    assert_eq!(status(&cluster).expect("status")["demoted_blocks"], 0, "it is paused");
    set(&cluster, "tier.pause", "off");
    wait(&cluster, "all is cold", |status| status["hot_blocks"] == 0);
    eventually("the hot copies are deleted", PATIENCE_S, || match on_hot_bricks(&cluster) {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    });
    check(&cluster);

    // By reads.
    set(&cluster, "tier.demote-after", "1d");
    set(&cluster, "tier.promote-reads", "2");
    eventually("what is read often is hot", PATIENCE_S, || {
        check(&cluster);
        let status = status(&cluster)?;
        if status["promoted_blocks"].as_u64() >= Some(FILES) { Ok(()) } else { Err(status.to_string()) }
    });
    assert!(on_hot_bricks(&cluster) > 0);
    check(&cluster);

    // And away with it, while it is read and written.
    let mount = cluster.mount();
    let refused =
        cluster.shoal(1).arg("volume").arg("tier").arg("v").arg("detach").arg("commit").arg("-y").outcome();
    assert!(refused.to_string().contains("detach start"), "{refused}");
    volume(&cluster, "tier v detach start");
    write(mount.path());
    wait(&cluster, "the hot tier is empty", |status| status["can_be_removed"] == true);
    volume(&cluster, "tier v detach commit -y");
    mount.unmount();
    assert!(!volume(&cluster, "info v").contains("-hot"));
    check(&cluster);
    let mount = cluster.mount();
    assert!(fs::read(mount.path().join("old")).expect("read") == pattern(99, FILE_BYTES));
    mount.unmount();
}

/// Blocks that were moved since the leader's server started: to the cold tier and to the hot one.
fn moved(cluster: &Cluster) -> Result<(u64, u64), String> {
    let status = status(cluster)?;
    let figure = |key: &str| status[key].as_u64().ok_or_else(|| status.to_string());
    Ok((figure("demoted_blocks")?, figure("promoted_blocks")?))
}

#[test]
fn pinned_directories_keep_their_tier_through_renames_and_new_files() {
    let cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let (hot, cold) = (mount.path().join("hot"), mount.path().join("cold"));
    let pin = |path: &Path, to: &[&str]| {
        let command = cluster.shoal(1).arg("tier").arg("pin").arg(path);
        to.iter().fold(command, |command, word| command.arg(word)).outcome().to_string()
    };
    fs::create_dir_all(hot.join("below")).expect("created");
    fs::create_dir(&cold).expect("created");
    let write_in = |dir: &Path, seed: u64| {
        fs::write(dir.join("file"), pattern(seed, FILE_BYTES)).expect("written");
        File::open(dir.join("file")).and_then(|file| file.sync_all()).expect("synced");
    };
    // Without a hot tier it is accepted, and said to be without effect.
    let said = pin(&hot, &["hot"]);
    assert!(said.contains("hot") && said.contains("no hot tier"), "{said}");
    write_in(&hot.join("below"), 1);
    let_tiers_be_full(&cluster);
    set(&cluster, "tier.promote-reads", "0");
    volume(&cluster, &format!("tier v attach replica 2 {} {}", hot_path(&cluster, 1), hot_path(&cluster, 2)));
    assert!(pin(&cold, &["cold"]).contains("cold"));
    assert!(pin(&hot.join("below/file"), &[]).contains("inherited from /hot"));
    assert!(pin(mount.path(), &[]).contains("auto"));
    let elsewhere = pin(&cluster.local(), &["hot"]);
    assert!(elsewhere.contains("is not on a Shoal volume"), "{elsewhere}");

    // What was there is promoted in the background.
    eventually("pinned content is hot", PATIENCE_S, || match (moved(&cluster)?, status(&cluster)?) {
        ((_, 2..), _) => Ok(()),
        (_, status) => Err(status.to_string()),
    });
    let shown = volume(&cluster, "tier v status");
    assert!(shown.contains("Pinned hot: /hot") && shown.contains("Pinned cold: /cold"), "{shown}");

    // A mount that knows the pins stores new content where it belongs, below a renamed directory, too.
    mount.unmount();
    let mount = cluster.mount();
    let hot_blocks = || status(&cluster).map(|status| status["hot_blocks"].as_u64());
    let before = hot_blocks().expect("status");
    let renamed = mount.path().join("renamed");
    fs::rename(&cold, &renamed).expect("renamed");
    fs::create_dir(renamed.join("new")).expect("created");
    write_in(&renamed.join("new"), 2);
    assert_eq!(hot_blocks().expect("status"), before, "it was stored cold");
    assert!(pin(&renamed.join("new/file"), &[]).contains("inherited from /renamed"));

    // Age decides for everything else.
    write_in(mount.path(), 3);
    set(&cluster, "tier.demote-after", "1s");
    eventually("what is not pinned is cold", PATIENCE_S, || {
        let blocks = hot_blocks()?;
        if blocks == before {
            Ok(())
        } else {
            Err(format!("{blocks:?} instead of {before:?} blocks are hot"))
        }
    });
    // Pinned cold, what is hot leaves; a removed pin leaves it to its age.
    assert!(pin(&hot.join("below"), &["cold"]).contains("cold"));
    wait(&cluster, "nothing is hot", |status| status["hot_blocks"] == 0);
    assert!(pin(&hot.join("below"), &["auto"]).contains("auto"));
    wait(&cluster, "it is hot again", |status| status["hot_blocks"].as_u64() == before);
    for (path, seed) in [(hot.join("below"), 1), (renamed.join("new"), 2), (mount.path().to_owned(), 3)] {
        assert!(fs::read(path.join("file")).expect("read") == pattern(seed, FILE_BYTES), "{path:?}");
    }
    mount.unmount();
}
