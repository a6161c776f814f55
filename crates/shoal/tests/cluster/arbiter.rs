//! Two copies and an arbiter: either of the nodes with bricks may die, and writes go on.

use crate::harness::{Cluster, eventually};
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// An fsync takes no longer while a node is down, on a machine that is busy: an election and the time in
/// which a dead peer is noticed.
const WRITE_MAX: Duration = Duration::from_secs(20);

#[test]
fn with_an_arbiter_writes_go_on_when_a_data_node_dies_and_are_healed_when_it_is_back() {
    let mut cluster = Cluster::new(3);
    let create = |words: &[&str]| {
        let command = cluster.shoal(1).arg("volume").arg("create").arg("v");
        let command = words.iter().fold(command, |command, word| command.arg(word));
        command.arg(cluster.brick(1)).arg(cluster.brick(2))
    };
    let refused = create(&["replica", "2"]).outcome();
    assert!(refused.stderr.contains("replica 2 arbiter 1"), "{refused}");
    create(&["replica", "2", "arbiter", "1"]).arg("n3").ok();
    cluster.shoal(1).arg("volume").arg("start").arg("v").ok();
    let info = cluster.shoal(2).arg("volume").arg("info").arg("v").ok();
    assert!(info.contains("Arbiters: n3") && info.contains("Nodes that may be down: 1"), "{info}");
    let mount = cluster.mount();
    let content: Vec<u8> = (0..8 << 20).map(|n| (n % 251) as u8).collect();
    let write = |name: &str| {
        let (begun, path) = (Instant::now(), mount.path().join(name));
        fs::write(&path, &content).expect("write");
        File::open(&path).expect("open").sync_all().expect("fsync");
        begun.elapsed()
    };
    write("both");
    cluster.kill(2);
    let took = write("one");
    println!("8 MiB with fsync while a data node is down: {took:?}");
    assert!(took < WRITE_MAX, "{took:?}");
    eventually("the blocks with one copy are counted", 30, || {
        let heal = cluster.json(1, &["volume", "heal", "v", "info"])?;
        let report = heal.get(0).unwrap_or(&heal);
        if report["degraded"].as_u64() >= Some(2) { Ok(()) } else { Err(heal.to_string()) }
    });
    cluster.start(2);
    cluster.wait_healed(1, 60);
    mount.unmount();
    // The node that was away has everything now.
    cluster.kill(1);
    let mount = cluster.mount();
    for name in ["both", "one"] {
        assert!(fs::read(mount.path().join(name)).expect("read") == content, "{name}");
    }
    mount.unmount();
    assert!(!cluster.brick_path(3).exists(), "the arbiter stores no blocks");
}
