//! Snapshots that replicas fetch from each other.

use crate::cluster::{Client, Cluster, PATIENCE, eventually};
use crate::fabric::End;
use crate::support::stat;
use bytes::Bytes;
use shoal_meta::{Peers, fetch_state};
use shoal_types::{NodeId, ReplicaId};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SMALL_LOG: u64 = 1 << 20;
/// After this a leader no longer keeps the log for a follower that is down: it has checked its quorum twice.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(6);

/// Peers of which only one is asked.
struct Only(u64, Arc<End>);

impl Peers for Only {
    fn send(&self, to: ReplicaId, message: Bytes) {
        self.1.send(to, message);
    }
    fn request(&self, to: ReplicaId, request: Bytes) -> Result<Bytes, String> {
        self.1.request(to, request)
    }
    fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        self.1.node_of(replica)
    }
    fn others(&self) -> Vec<ReplicaId> {
        vec![ReplicaId(self.0)]
    }
}

/// A group, and one of its followers that is down and lacks entries that are not in the leader's log any
/// more.
fn one_far_behind() -> (Cluster, Client, u64) {
    let mut cluster = Cluster::with_log(3, SMALL_LOG);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    let leader = cluster.await_leader();
    let behind = if leader == 1 { 2 } else { 1 };
    let applied = cluster.up[&behind].replica().applied();
    cluster.crash(behind);
    client.fill = 40_000;
    client.write(&mut cluster, 250);
    eventually("the log is cut", || {
        cluster.up.values().all(|server| stat(server, "raft_log_bytes") < 6 * SMALL_LOG)
    });
    let leader = cluster.await_leader();
    assert!(cluster.up[&leader].replica().applied() > applied + 200);
    (cluster, client, behind)
}

#[test]
fn a_replica_that_lacks_what_is_cut_off_the_log_fetches_the_state() {
    let (mut cluster, mut client, behind) = one_far_behind();
    cluster.start(behind);
    eventually("the state is fetched", || cluster.up[&behind].replica().needs_reopening());
    client.write(&mut cluster, 20);
    cluster.assert_alike();
    // It has a vote: with it and one other the group has a quorum.
    let leader = cluster.await_leader();
    cluster.crash(if leader == behind { 3 } else { leader });
    client.write(&mut cluster, 20);
}

#[test]
fn interrupted_fetch_continues() {
    let (mut cluster, mut client, behind) = one_far_behind();
    for _ in 0..3 {
        cluster.start(behind);
        std::thread::sleep(std::time::Duration::from_millis(150));
        cluster.fabric.isolate(&[behind], &[1, 2, 3]);
        cluster.crash(behind);
        cluster.fabric.heal();
    }
    cluster.start(behind);
    client.write(&mut cluster, 20);
    cluster.assert_alike();
}

#[test]
fn entries_acknowledged_during_a_fetch_survive_its_installation() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 50);
    let leader = cluster.await_leader();
    let (follower, down) = match leader {
        1 => (2, 3),
        2 => (3, 1),
        _ => (1, 2),
    };
    cluster.crash(down);
    let peers = cluster.peers(follower);
    fetch_state(&cluster.dir(follower), &*peers, &|| false).expect("fetched");
    // Only the leader and the follower have these.
    client.write(&mut cluster, 50);
    cluster.crash(leader);
    cluster.crash(follower);
    cluster.start(follower);
    cluster.start(down);
    client.assert_all_there(&mut cluster);
    client.write(&mut cluster, 10);
    cluster.start(leader);
    cluster.assert_alike();
}

#[test]
fn log_after_a_fetched_state_is_kept_while_its_replica_is_silent() {
    let (mut cluster, mut client, behind) = one_far_behind();
    let leader = cluster.await_leader();
    let peers = Only(leader, cluster.peers(behind));
    fetch_state(&cluster.dir(behind), &peers, &|| false).expect("fetched");
    std::thread::sleep(FORGOTTEN_AFTER);
    let flushes = stat(&cluster.up[&leader], "store_flushes_total");
    // More than is kept for followers that are a little behind, and less than for those that fetch.
    client.write(&mut cluster, 100);
    eventually("the log could be cut", || stat(&cluster.up[&leader], "store_flushes_total") > flushes + 2);
    assert_eq!(cluster.await_leader(), leader, "another leader does not know what the first one gave away");
    cluster.start(behind);
    eventually("it has caught up", || {
        let replica = cluster.up[&behind].replica();
        assert!(!replica.needs_reopening(), "it fetched again");
        replica.applied() >= cluster.up[&leader].replica().applied()
    });
    cluster.assert_alike();
}

#[test]
fn fetching_ends_although_more_is_written_meanwhile_than_the_log_usually_keeps() {
    let (mut cluster, mut client, behind) = one_far_behind();
    client.write(&mut cluster, 300);
    cluster.fabric.set(|weather| weather.holds_questions = true);
    cluster.start(behind);
    let mut fetched = 0;
    let caught_up = |cluster: &Cluster| {
        let applied = cluster.up[&behind].replica().applied();
        cluster.up.values().all(|server| server.replica().applied() <= applied + 20)
    };
    let due = Instant::now() + PATIENCE;
    while !caught_up(&cluster) {
        assert!(Instant::now() < due, "{fetched} attempts, {:#?}", cluster.statuses());
        // With each page, a third of one is written: in the time that fetching takes, more than any leader
        // keeps of this log.
        client.write(&mut cluster, 8);
        cluster.fabric.let_one_through(Duration::from_millis(200));
        fetched += usize::from(cluster.up[&behind].replica().needs_reopening());
    }
    assert!(fetched <= 2, "it took {fetched} attempts");
    cluster.fabric.heal();
    cluster.assert_alike();
}
