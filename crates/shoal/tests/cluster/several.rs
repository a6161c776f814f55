//! Mounts on several hosts work in one directory, while servers and mounts die. No call of a surviving mount
//! fails or returns a wrong result, all of them show equal trees in the end, and nothing of the dead mounts
//! is left.

use crate::harness::party::{Made, show};
use crate::harness::{Cluster, Mount, Party, eventually};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The directory of the load.
const DIR: &str = "all";
/// The directory of the load after a mount has come back.
const AGAIN: &str = "again";
/// How long a process is stopped: its session is ended after 10 s.
const STOPPED_FOR: Duration = Duration::from_secs(15);
/// Longest call of a surviving mount. A mount that dies holds other mounts up for about 10 s; machines that
/// run tests are busy.
const STALL_MAX: Duration = Duration::from_secs(40);

/// All mounts show equal trees, and what each of them has made is there. Then everything is removed, and no
/// blocks are left.
fn finish(
    mut cluster: Cluster,
    mounts: Vec<Mount>,
    made: &[&Made],
    dead: &[&Made],
    what: &str,
    stall: Duration,
) {
    println!("{what}: longest call {stall:?}");
    let shown = show(&mounts[0].path().join(DIR));
    for mount in &mounts[1..] {
        let other = show(&mount.path().join(DIR));
        assert!(shown == other, "the mounts differ:\n{:?}\n{:?}", shown.keys(), other.keys());
    }
    made.iter().for_each(|made| made.is_in(&shown));
    dead.iter().for_each(|made| made.synced_is_in(&shown));
    assert!(stall < STALL_MAX, "a call took {stall:?}");
    // The removal ends the session of a killed or silent mount that still holds a right to it.
    fs::remove_dir_all(mounts[0].path().join(DIR)).expect("everything can be removed");
    for mount in &mounts {
        assert_eq!(fs::read_dir(mount.path()).expect("it can be listed").count(), 0, "something is left");
    }
    mounts.into_iter().for_each(Mount::unmount);
    cluster.wait_identical(1, 3);
    for node in 1..=3 {
        cluster.stop(node);
        let found = cluster.fsck(node);
        assert!(found.starts_with("1 files, 0 names"), "more than the root is left: {found}");
    }
}

fn paths(mounts: &[Mount]) -> Vec<&Path> {
    mounts.iter().map(Mount::path).collect()
}

/// Mounts on a host whose mount was removed just before. Its process may still be about to end.
fn mount_again(cluster: &Cluster, client: usize) -> Mount {
    let mut mount = None;
    eventually("the host can mount the volume again", 90, || {
        mount = Some(cluster.try_mount_on(client)?);
        Ok(())
    });
    mount.expect("it is mounted")
}

/// Whether any server has logged a text.
fn logged(cluster: &Cluster, text: &str) -> bool {
    (1..=3).any(|node| cluster.whole_log(node).contains(text))
}

#[test]
fn two_mounts_work_in_one_directory_while_the_leader_is_killed_and_a_server_is_cut_off() {
    let mut cluster = Cluster::with_volume(3);
    let mounts = vec![cluster.mount_on(0), cluster.mount_on(1)];
    let party = Party::start(&paths(&mounts), DIR, &[]);
    party.advance(&[0, 1], 20);
    let leader = cluster.leader(1);
    cluster.kill(leader);
    party.advance(&[0, 1], 20);
    cluster.start(leader);
    cluster.wait_identical(leader, 3);
    let leader = cluster.leader(1);
    for node in [leader, leader % 3 + 1] {
        cluster.network.connect(node, false);
        party.advance(&[0, 1], 20);
        cluster.network.connect(node, true);
        party.advance(&[0, 1], 10);
        cluster.wait_identical(node, 3);
    }
    let (made, stall) = party.stop();
    finish(cluster, mounts, &[&made[0], &made[1]], &[], "servers die", stall);
}

#[test]
fn a_mount_is_killed_while_it_works_in_the_directory_of_others() {
    let cluster = Cluster::with_volume(3);
    let mut mounts = vec![cluster.mount_on(0), cluster.mount_on(1), cluster.mount_on(2)];
    let party = Party::start(&paths(&mounts), DIR, &[2]);
    party.advance(&[0, 1, 2], 20);
    mounts[2].kill();
    party.advance(&[0, 1], 40);
    let (made, stall) = party.stop();
    assert!(logged(&cluster, "ending a session"), "the session of the dead has not been ended");
    // The volume can be mounted on that host again.
    drop(mounts.remove(2));
    mounts.push(mount_again(&cluster, 2));
    finish(cluster, mounts, &[&made[0], &made[1]], &[&made[2]], "a mount is killed", stall);
}

#[test]
fn a_mount_is_cut_off_while_it_works_in_the_directory_of_others() {
    let cluster = Cluster::with_volume(3);
    let mounts = vec![cluster.mount_on(0), cluster.mount_on(1), cluster.mount_on(2)];
    let party = Party::start(&paths(&mounts), DIR, &[2]);
    party.advance(&[0, 1, 2], 20);
    cluster.network.connect(CUT_OFF, false);
    party.advance(&[0, 1], 40);
    assert!(logged(&cluster, "ending a session"), "the session of the one cut off has not been ended");
    cluster.network.connect(CUT_OFF, true);
    comes_back(cluster, mounts, party, "a mount is cut off");
}

#[test]
fn a_mount_is_stopped_while_it_works_in_the_directory_of_others() {
    let cluster = Cluster::with_volume(3);
    let mounts = vec![cluster.mount_on(0), cluster.mount_on(1), cluster.mount_on(2)];
    let party = Party::start(&paths(&mounts), DIR, &[2]);
    party.advance(&[0, 1, 2], 20);
    let paused = mounts[2].pause();
    std::thread::sleep(STOPPED_FOR);
    party.advance(&[0, 1], 20);
    assert!(logged(&cluster, "ending a session"), "the session of the one stopped has not been ended");
    drop(paused);
    comes_back(cluster, mounts, party, "a mount is stopped");
}

/// The third mount learns that its session has ended. The programs on it get an error, and then it works
/// again by itself.
fn comes_back(cluster: Cluster, mounts: Vec<Mount>, party: Party, what: &str) {
    let own = mounts[2].path().join(DIR);
    eventually("the mount works again", 60, || {
        fs::read_dir(&own).map(drop).map_err(|error| error.to_string())
    });
    party.advance(&[0, 1], 20);
    let (made, stall) = party.stop();
    made[2].all_ended_with(libc::EIO);
    // The loss is reported once.
    let sync = || fs::File::open(&own).and_then(|dir| dir.sync_all());
    let root = || fs::File::open(mounts[2].path()).and_then(|dir| dir.sync_all());
    let (_, _) = (sync(), root());
    sync().and_then(|()| root()).expect("everything is durable");
    // It works with the other mounts again.
    let party = Party::start(&paths(&mounts), AGAIN, &[]);
    party.advance(&[0, 1, 2], 20);
    let (again, _) = party.stop();
    let shown = show(&mounts[0].path().join(AGAIN));
    again.iter().for_each(|made| made.is_in(&shown));
    fs::remove_dir_all(mounts[2].path().join(AGAIN)).expect("everything can be removed");
    finish(cluster, mounts, &[&made[0], &made[1]], &[&made[2]], what, stall);
}

/// The host of the third mount.
const CUT_OFF: usize = crate::harness::cluster::CLIENT + 2;
