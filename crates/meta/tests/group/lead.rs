//! Leadership, and requests while it changes.

use crate::cluster::{Client, Cluster, PATIENCE, eventually, open_session, redirected};
use shoal_types::{BatchSeq, InodeId, NodeId};
use shoal_wire::{MetaError, MetaService};
use std::time::{Duration, Instant};

#[test]
fn three_replicas_elect_one_leader_and_hold_the_same() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 200);
    let leader = cluster.await_leader();
    for (id, server) in cluster.up.iter().filter(|(id, _)| **id != leader) {
        let error = server.inode(client.id, InodeId::ROOT).expect_err("a follower does not answer");
        assert_eq!(redirected(&error), Some(NodeId(leader as u32)), "replica {id}");
    }
    client.assert_all_there(&mut cluster);
    cluster.assert_alike();
}

#[test]
fn next_leader_has_all_commits_and_the_session_continues() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    for _ in 0..3 {
        client.write(&mut cluster, 50);
        let leader = cluster.await_leader();
        cluster.crash(leader);
        let begun = Instant::now();
        client.write(&mut cluster, 50);
        assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
        client.assert_all_there(&mut cluster);
        cluster.start(leader);
    }
    cluster.assert_alike();
}

#[test]
fn restarted_group_continues_with_its_state() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 100);
    for id in 1..=3 {
        cluster.crash(id);
    }
    for id in 1..=3 {
        cluster.start(id);
    }
    client.write(&mut cluster, 100);
    client.assert_all_there(&mut cluster);
    cluster.assert_alike();
}

#[test]
fn a_batch_that_is_sent_again_to_the_next_leader_is_applied_once() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 10);
    let first = cluster.await_leader();
    cluster.crash(first);
    let next = cluster.await_leader();
    let server = cluster.up[&next].clone();
    // The last one again, then one too early, then the right one twice at once.
    let answer = |number| client.send(&server, number).recv_timeout(PATIENCE).expect("an answer");
    assert_eq!(answer(10), Ok(()));
    assert_eq!(answer(12), Err(MetaError::OutOfOrder { expected: BatchSeq(11) }));
    let twice = [client.send(&server, 11), client.send(&server, 11)];
    for answer in twice {
        assert_eq!(answer.recv_timeout(PATIENCE).expect("an answer"), Ok(()));
    }
    assert_eq!(server.inode(client.id, InodeId::ROOT).expect("root").inode.entries, 11);
    drop(server);
    cluster.start(first);
    cluster.assert_alike();
}

#[test]
fn leader_without_a_quorum_stops_answering_before_the_next_one_begins() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    let old = cluster.await_leader();
    cluster.fabric.isolate(&[old], &[1, 2, 3]);
    let (mut last_old, mut first_new) = (Instant::now(), None);
    let due = Instant::now() + PATIENCE;
    while first_new.is_none() {
        assert!(Instant::now() < due, "{:#?}", cluster.statuses());
        let asked = Instant::now();
        if cluster.up[&old].replica().leads() && cluster.up[&old].inode(client.id, InodeId::ROOT).is_ok() {
            last_old = asked;
        }
        let leads = |(id, server): (&u64, &std::sync::Arc<shoal_meta::Server>)| {
            *id != old && server.replica().leads()
        };
        if cluster.up.iter().any(leads) {
            first_new = Some(asked);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(first_new > Some(last_old), "two replicas answered at the same time");
    // The majority commits what the minority cannot.
    let cut_off = client.send(&cluster.up[&old], client.acknowledged + 1).recv_timeout(PATIENCE);
    assert!(matches!(cut_off, Ok(Err(MetaError::NotLeader { .. }))), "{cut_off:?}");
    client.write(&mut cluster, 20);
    assert!(cluster.up[&old].inode(client.id, InodeId::ROOT).is_err());
    cluster.fabric.heal();
    client.write(&mut cluster, 20);
    client.assert_all_there(&mut cluster);
    cluster.assert_alike();
}

#[test]
fn leader_transfers_leadership_on_request_and_on_shutdown() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    for shut_down in [false, true] {
        let old = cluster.await_leader();
        let begun = Instant::now();
        match shut_down {
            false => cluster.up[&old].replica().transfer_leadership(),
            true => cluster.up[&old].shutdown(),
        }
        eventually("another leads", || cluster.leader().is_some_and(|leader| leader != old));
        // No timeout had to expire first.
        assert!(begun.elapsed() < Duration::from_secs(4), "it took {:?}", begun.elapsed());
        client.write(&mut cluster, 20);
    }
    client.assert_all_there(&mut cluster);
}

#[test]
fn leadership_that_no_replica_takes_over_is_not_kept_in_the_same_term() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    let old = cluster.await_leader();
    let term = cluster.up[&old].replica().status().term;
    // The message that hands leadership over does not arrive.
    let others: Vec<u64> = (1..=3).filter(|id| *id != old).collect();
    cluster.fabric.set(|weather| weather.cut.extend(others.iter().map(|other| (old, *other))));
    cluster.up[&old].replica().transfer_leadership();
    eventually("it has given the lead up", || !cluster.up[&old].replica().leads());
    cluster.fabric.heal();
    let next = cluster.await_leader();
    assert!(cluster.up[&next].replica().status().term > term);
    client.write(&mut cluster, 20);
    cluster.assert_alike();
}

#[test]
fn a_replica_that_comes_back_does_not_disturb_the_leader() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    let leader = cluster.await_leader();
    let term = cluster.up[&leader].replica().status().term;
    let other = if leader == 1 { 2 } else { 1 };
    cluster.fabric.isolate(&[other], &[1, 2, 3]);
    client.write(&mut cluster, 50);
    eventually("it has given up on its leader", || {
        cluster.up[&other].replica().status().role == shoal_meta::Role::Candidate
    });
    cluster.fabric.heal();
    cluster.assert_alike();
    assert_eq!(cluster.up[&leader].replica().status().term, term, "there was another election");
}

#[test]
fn session_opened_again_replaces_the_earlier_one_also_at_the_next_leader() {
    let mut cluster = Cluster::new(3);
    let first = open_session(&mut cluster, "one", 5).expect("session");
    let other = open_session(&mut cluster, "two", 6).expect("another client");
    let again = open_session(&mut cluster, "one", 5).expect("the same client may");
    assert!(again.id != first.id);
    let leader = cluster.await_leader();
    cluster.crash(leader);
    let third = open_session(&mut cluster, "one", 5).expect("and at another leader, too");
    assert!(third.id != again.id);
    let leader = cluster.await_leader();
    let fenced = cluster.up[&leader].inode(again.id, InodeId::ROOT);
    assert_eq!(fenced.err(), Some(MetaError::Fenced(again.id)));
    assert!(cluster.up[&leader].inode(other.id, InodeId::ROOT).is_ok(), "the other one goes on");
}
