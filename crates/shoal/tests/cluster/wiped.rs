//! A node loses its disks and comes back empty.

use crate::harness::{Cluster, Load};

#[test]
fn a_wiped_node_joins_again_and_gets_everything_back() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let load = Load::start(mount.path(), "load");
    load.advance(40);
    cluster.kill(2);
    cluster.wipe(2);
    load.advance(20);
    cluster.renew_token(1);
    cluster.enter(2);
    cluster.start(2);
    cluster.shoal(1).arg("volume").arg("add-brick").arg("v").arg(cluster.brick(2)).ok();
    load.advance(20);
    cluster.wait_identical(1, 3);
    let (expected, stall) = load.stop();
    println!("a node wiped: longest call {stall:?}");
    cluster.wait_healed(1, 120);
    // What was copied is enough to live on: the other two bricks may go now, one after the other.
    expected.check();
    mount.unmount();
    // What the node that lost everything keeps now is sound: its metadata, and every block that its brick
    // should have.
    cluster.stop(2);
    cluster.fsck(2);
    cluster.start(2);
    cluster.wait_identical(2, 3);
    cluster.kill(1);
    let mount = cluster.mount();
    expected.check();
    mount.unmount();
}
