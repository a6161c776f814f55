//! Members of the group.

use crate::cluster::{Client, Cluster, eventually};
use shoal_types::ReplicaId;

#[test]
fn a_replica_that_lost_its_disk_is_replaced_by_a_new_one() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 100);
    let lost = cluster.await_leader();
    cluster.crash(lost);
    std::fs::remove_dir_all(cluster.dir(lost)).expect("its disk is gone");
    cluster.await_leader();
    cluster.join(4);
    let wanted: Vec<u64> = [1, 2, 3, 4].into_iter().filter(|id| *id != lost).collect();
    cluster.set_wanted_members(&wanted);
    client.write(&mut cluster, 100);
    cluster.assert_alike();
    // The new one has a vote.
    let another = wanted[0];
    cluster.crash(another);
    client.write(&mut cluster, 20);
    client.assert_all_there(&mut cluster);
    cluster.start(another);
    cluster.assert_alike();
}

#[test]
fn a_group_grows_to_five_and_shrinks_to_other_three_while_it_is_written_to() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 50);
    for id in [4, 5] {
        cluster.join(id);
    }
    cluster.set_wanted_members(&[1, 2, 3, 4, 5]);
    client.write(&mut cluster, 50);
    // Two of five may fail.
    for id in [1, 4] {
        cluster.crash(id);
    }
    client.write(&mut cluster, 20);
    for id in [1, 4] {
        cluster.start(id);
    }
    cluster.assert_alike();
    // For every leader, at least one of these steps is its own removal or that of a follower.
    cluster.set_wanted_members(&[3, 4, 5]);
    for id in [1, 2] {
        cluster.crash(id);
    }
    client.write(&mut cluster, 20);
    client.assert_all_there(&mut cluster);
    cluster.assert_alike();
}

#[test]
fn replica_that_is_unaware_of_its_removal_does_not_disturb_the_group() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    let leader = cluster.await_leader();
    let removed = if leader == 1 { 2 } else { 1 };
    cluster.fabric.isolate(&[removed], &[1, 2, 3]);
    let wanted: Vec<u64> = (1..=3).filter(|id| *id != removed).collect();
    cluster.set_wanted_members(&wanted);
    let term = cluster.up[&leader].replica().status().term;
    cluster.fabric.heal();
    // It requests votes and gets none.
    std::thread::sleep(std::time::Duration::from_secs(4));
    client.write(&mut cluster, 20);
    assert_eq!(cluster.up[&leader].replica().status().term, term);
    assert!(!cluster.up[&removed].replica().leads());
}

#[test]
fn member_is_not_removed_if_the_rest_has_no_quorum() {
    let mut cluster = Cluster::new(3);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    let leader = cluster.await_leader();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    cluster.crash(others[0]);
    // Its silence is noticed after an election timeout or two.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let wanted = [leader, others[0]].map(ReplicaId);
    for _ in 0..20 {
        cluster.up.values().for_each(|server| server.replica().set_wanted_members(&wanted));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    client.write(&mut cluster, 20);
    assert_eq!(cluster.voters().expect("a leader"), [1, 2, 3]);
}

#[test]
fn unwanted_leader_transfers_leadership_even_if_its_vote_is_needed() {
    let mut cluster = Cluster::new(5);
    let mut client = Client::new(&mut cluster);
    client.write(&mut cluster, 20);
    let leader = cluster.await_leader();
    let others: Vec<u64> = (1..=5).filter(|id| *id != leader).collect();
    for id in &others[..2] {
        cluster.crash(*id);
    }
    // Their silence is noticed after an election timeout or two.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let wanted = [others[0], others[1], others[2]].map(ReplicaId);
    eventually("the one that is wanted and there leads", || {
        cluster.up.values().for_each(|server| server.replica().set_wanted_members(&wanted));
        std::thread::sleep(std::time::Duration::from_millis(20));
        cluster.leader() == Some(others[2])
    });
    client.write(&mut cluster, 20);
    let members = cluster.up[&others[2]].replica().status().voters;
    assert_eq!(members, [1, 2, 3, 4, 5].map(ReplicaId), "no member could be removed");
}
