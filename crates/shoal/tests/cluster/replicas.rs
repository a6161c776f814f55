//! Metadata replicas that the map does not name any more.

use crate::harness::{Cluster, Mount, eventually, sh};
use std::time::Duration;

/// A leader no longer counts on a replica that has been silent for this long.
const SILENCE: Duration = Duration::from_secs(5);
/// A replica that is not needed is removed after 30 s.
const MUCH_LATER: Duration = Duration::from_secs(40);
/// Seconds within which it is gone then.
const GONE_WITHIN: u64 = 90;

/// Seconds that a program may take: without a majority it takes for ever.
const PROGRAM_LIMIT: u64 = 90;

/// A program makes a durable file.
fn write(mount: &Mount, name: &str) {
    sh(mount.path(), &format!("echo {name} > {name} && sync {name}")).limit(PROGRAM_LIMIT).ok();
}

/// Another one reads it.
fn read(mount: &Mount, name: &str) -> String {
    sh(mount.path(), &format!("cat {name}")).limit(PROGRAM_LIMIT).ok()
}

fn set_replicas(cluster: &Cluster, count: &str) {
    let set = cluster.shoal(1).arg("volume").arg("set").arg("v");
    set.arg("cluster.metadata-replicas").arg(count).ok();
}

fn wait_gone(cluster: &Cluster, node: usize) {
    eventually("the replica goes", GONE_WITHIN, || match cluster.replicas_on(node) {
        0 => Ok(()),
        _ => Err(format!("it is on n{node}")),
    });
}

#[test]
fn a_replica_that_the_map_does_not_name_is_kept_while_its_group_needs_it_and_goes_afterwards() {
    // Nodes 1 to 3 keep the map, and 4, 5 and 3 the first replicas of the volume.
    let mut cluster = Cluster::with_volume_on(5, [4, 5, 3]);
    cluster.wait_identical(1, 3);
    set_replicas(&cluster, "5");
    eventually("all five decide", 60, || {
        // Replicas 1 to 3 are those of the map.
        let decide = |node| cluster.whole_log(node).contains("voters: [4, 5, 6, 7, 8], learners: []");
        if (1..=5).any(decide) { Ok(()) } else { Err("not yet".into()) }
    });
    let mount = cluster.mount();
    write(&mount, "before");
    cluster.kill(4);
    cluster.kill(5);
    write(&mount, "two-dead");
    std::thread::sleep(SILENCE);
    // The map names 4, 5 and 3 now; the group still has five members, and needs 1 and 2.
    set_replicas(&cluster, "3");
    write(&mount, "unnamed");
    for node in [2, 3] {
        cluster.stop(node);
        cluster.start(node);
    }
    std::thread::sleep(MUCH_LATER);
    write(&mount, "later");
    // One replica is down while the group removes it.
    cluster.kill(1);
    cluster.start(4);
    cluster.start(5);
    cluster.wait_identical(3, 3);
    wait_gone(&cluster, 2);
    cluster.start(1);
    wait_gone(&cluster, 1);
    for name in ["before", "two-dead", "unnamed", "later"] {
        assert_eq!(read(&mount, name).trim_end(), name);
    }
    mount.unmount();
    for step in ["stop", "delete"] {
        cluster.shoal(1).arg("volume").arg(step).arg("v").arg("--yes").ok();
    }
    [3, 4, 5].into_iter().for_each(|node| wait_gone(&cluster, node));
}
