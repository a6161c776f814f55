//! `shoal-witness` on a cluster: random programs on several mounts, while servers and mounts die, stop and
//! are cut off. Their history must be one that a single local file system could have shown.

use crate::harness::cluster::CLIENT;
use crate::harness::command::witness;
use crate::harness::{Cluster, Mount, eventually, seed};
use std::fs::File;
use std::time::Duration;

/// A server that is away for this long has been replaced as leader.
const AWAY_FOR: Duration = Duration::from_secs(4);
/// A mount that is stopped for this long is waited for, and loses nothing.
const STOPPED_FOR: Duration = Duration::from_secs(4);
/// A mount that is stopped or cut off for this long has had its session ended, since other mounts wait for
/// its rights.
const AWAY_TOO_LONG: Duration = Duration::from_secs(15);
/// Time before a fault, and between two of them.
const MEANWHILE: Duration = Duration::from_secs(3);

/// Runs random programs on some mounts, and injects `event` meanwhile. Their history must be explained, and
/// all living mounts must work in the end.
fn is_explained(mounts: usize, seconds: &str, more: &[&str], event: impl Fn(&mut Cluster, &[Mount])) {
    let mut cluster = Cluster::with_volume(3);
    let mounts: Vec<Mount> = (0..mounts).map(|client| cluster.mount_on(client)).collect();
    let check = witness(mounts.iter().map(Mount::path), seconds, seed());
    // When a call waits for the next leader, the kernel may revalidate a name too late and report ESTALE.
    let check = check.arg("--tolerate").arg("estale");
    let check = more.iter().fold(check, |check, argument| check.arg(argument)).limit(200).start();
    std::thread::sleep(MEANWHILE);
    event(&mut cluster, &mounts);
    let outcome = check.wait();
    println!("{outcome}");
    outcome.ok();
    let alive = |mount: &Mount| nix::sys::statvfs::statvfs(mount.path()).is_ok();
    mounts.into_iter().filter(alive).for_each(Mount::unmount);
    cluster.wait_identical(1, 3);
}

#[test]
fn what_random_programs_see_on_two_mounts_is_explained_also_while_the_leader_is_killed() {
    is_explained(2, "12", &[], |cluster, _| {
        let leader = cluster.leader(1);
        cluster.kill(leader);
        std::thread::sleep(AWAY_FOR);
        cluster.start(leader);
    });
}

#[test]
fn what_random_programs_see_is_explained_also_while_the_leader_is_stopped_and_goes_on() {
    is_explained(3, "14", &[], |cluster, _| {
        let leader = cluster.leader(1);
        cluster.pause(leader);
        std::thread::sleep(AWAY_FOR);
        cluster.resume(leader);
    });
}

#[test]
fn what_random_programs_see_is_explained_also_while_servers_are_cut_off_and_come_back() {
    is_explained(4, "22", &[], |cluster, _| {
        let leader = cluster.leader(1);
        for node in [leader, leader % 3 + 1] {
            cluster.network.connect(node, false);
            std::thread::sleep(AWAY_FOR);
            cluster.network.connect(node, true);
            std::thread::sleep(MEANWHILE);
        }
    });
}

#[test]
fn what_random_programs_see_is_explained_also_when_a_mount_is_killed() {
    is_explained(2, "20", &["--may-die", "1"], |_, mounts| mounts[1].kill());
}

#[test]
fn what_random_programs_see_is_explained_also_while_a_mount_is_stopped_and_goes_on() {
    is_explained(2, "14", &[], |_, mounts| {
        let stopped = mounts[1].pause();
        std::thread::sleep(STOPPED_FOR);
        drop(stopped);
    });
}

#[test]
fn what_random_programs_see_is_explained_also_when_a_mount_is_cut_off_loses_something_and_goes_on() {
    is_explained(3, "30", &["--may-lapse", "2"], |cluster, mounts| {
        let host = CLIENT + 2;
        cluster.network.connect(host, false);
        std::thread::sleep(AWAY_TOO_LONG);
        is_ended(cluster);
        cluster.network.connect(host, true);
        comes_back(&mounts[2]);
    });
}

#[test]
fn what_random_programs_see_is_explained_also_when_a_mount_is_stopped_until_its_session_is_ended() {
    is_explained(3, "30", &["--may-lapse", "2"], |cluster, mounts| {
        let stopped = mounts[2].pause();
        std::thread::sleep(AWAY_TOO_LONG);
        is_ended(cluster);
        drop(stopped);
        comes_back(&mounts[2]);
    });
}

/// A session has been ended.
fn is_ended(cluster: &Cluster) {
    let ended = |node| cluster.whole_log(node).contains("ending a session");
    assert!((1..=3).any(ended), "no session was ended");
}

/// A mount works again. The loss is reported by one fsync; after that it is like any other mount.
fn comes_back(mount: &Mount) {
    let sync = || File::open(mount.path()).and_then(|root| root.sync_all());
    eventually("the mount works again", 60, || sync().map_err(|error| error.to_string()));
}
