//! Any one node dies, hangs or is cut off under load: no acknowledged data are lost, no call fails, and none
//! waits for long.

use crate::harness::{Cluster, Load, Mount, long};
use std::time::Duration;

/// Longest call of the load. The goal is five seconds; machines that run tests are busy.
const STALL_MAX: Duration = Duration::from_secs(20);

struct World {
    cluster: Cluster,
    mount: Mount,
    load: Load,
}

impl World {
    fn new() -> World {
        let cluster = Cluster::with_volume(3);
        let mount = cluster.mount();
        let load = Load::start(mount.path(), "load");
        load.advance(20);
        World { cluster, mount, load }
    }

    /// All data are there, in full copies, identical on all replicas, and visible on a new mount.
    fn finish(self, what: &str) {
        let World { cluster, mount, load } = self;
        load.advance(20);
        let rounds = load.rounds();
        let (expected, stall) = load.stop();
        println!("{what}: {rounds} rounds of load, longest call {stall:?}");
        expected.check();
        assert!(stall < STALL_MAX, "a call took {stall:?}");
        cluster.wait_healed(1, 120);
        mount.unmount();
        cluster.wait_identical(1, 3);
        let mount = cluster.mount();
        expected.check();
        mount.unmount();
    }
}

/// How often each fault is repeated.
fn times() -> usize {
    if long() { 10 } else { 1 }
}

#[test]
fn each_node_is_killed_in_turn() {
    let mut world = World::new();
    for node in (1..=3).cycle().take(3 * times()) {
        world.cluster.kill(node);
        world.load.advance(40);
        world.cluster.start(node);
        world.load.advance(20);
        world.cluster.wait_identical(node, 3);
    }
    world.finish("each node killed");
}

#[test]
fn the_leader_is_killed_again_and_again() {
    let mut world = World::new();
    for _ in 0..3 * times() {
        let leader = world.cluster.leader(1);
        world.cluster.kill(leader);
        world.load.advance(30);
        world.cluster.start(leader);
        world.cluster.wait_identical(leader, 3);
    }
    world.finish("leader killed");
}

#[test]
fn a_leader_that_hangs_is_replaced_and_comes_back_as_a_follower() {
    let world = World::new();
    for _ in 0..times() {
        let leader = world.cluster.leader(1);
        world.cluster.pause(leader);
        world.load.advance(40);
        world.cluster.resume(leader);
        world.load.advance(20);
        world.cluster.wait_identical(leader, 3);
    }
    world.finish("leader paused");
}

#[test]
fn a_node_that_is_cut_off_is_done_without_and_catches_up() {
    let world = World::new();
    for _ in 0..times() {
        let leader = world.cluster.leader(1);
        for node in [leader, leader % 3 + 1] {
            world.cluster.network.connect(node, false);
            world.load.advance(40);
            world.cluster.network.connect(node, true);
            world.load.advance(20);
            world.cluster.wait_identical(leader, 3);
        }
    }
    world.finish("cut off");
}

#[test]
fn nodes_are_restarted_one_after_the_other_as_in_an_upgrade() {
    let mut world = World::new();
    for node in (1..=3).cycle().take(3 * times()) {
        world.cluster.stop(node);
        world.load.advance(10);
        world.cluster.start(node);
        world.cluster.wait_identical(node, 3);
    }
    world.finish("rolling restart");
}
