//! One process for each node identity: copies of a node and detached nodes are kept out while files are in
//! use.

use crate::harness::cluster::CLIENT;
use crate::harness::{Cluster, Load, eventually, run};
use std::fs;

#[test]
fn copied_and_detached_nodes_stop_and_files_stay_in_use() {
    let mut cluster = Cluster::with_volume(4);
    let mount = cluster.mount();
    let load = Load::start(mount.path(), "load");
    load.advance(10);
    let copy = cluster.local().join("copy");
    // Files may go while they are copied.
    let _ = run("cp").arg("-a").arg(cluster.data(3)).arg(&copy).outcome();
    let listen = cluster.network.address(CLIENT + 1);
    let server = |moved: &[&str]| {
        let command =
            cluster.shoal(CLIENT + 1).arg("server").arg("--data").arg(&copy).arg("--listen").arg(&listen);
        moved.iter().fold(command, |command, word| command.arg(word)).arg("--background").outcome()
    };
    let refused = server(&[]);
    assert!(refused.stderr.contains("is a copy of the data directory of node 'n3'"), "{refused}");
    server(&["--moved"]).ok();
    let process = fs::read_to_string(copy.join("lock")).expect("the server's process id");
    let says = |why: &str| {
        let status =
            cluster.shoal(CLIENT + 1).env("SHOAL_DATA", &copy).arg("cluster").arg("status").outcome();
        if status.stderr.contains(why) { Ok(()) } else { Err(status.to_string()) }
    };
    eventually("the copy knows that it is one", 60, || says("another process with this node's identity"));
    run("kill").arg(process.trim()).ok();
    load.advance(10);
    assert!(!cluster.log(3).contains("stops serving"), "{}", cluster.log(3));

    cluster.shoal(1).arg("peer").arg("detach").arg("n4").ok();
    eventually("the node knows that it is detached", 30, || {
        let status = cluster.shoal(4).arg("cluster").arg("status").outcome();
        if status.stderr.contains("was detached from the cluster") { Ok(()) } else { Err(status.to_string()) }
    });
    load.advance(10);
    let (expected, stall) = load.stop();
    println!("a node copied, another one detached: longest call {stall:?}");
    expected.check();
    mount.unmount();
    // A normal restart is none of this, nor is one of all nodes at once.
    (1..=3).for_each(|node| cluster.kill(node));
    (1..=3).for_each(|node| cluster.start(node));
    cluster.wait_identical(1, 3);
}
