//! Locks of programs on two mounts: what excludes whom by default, by the volume's setting and by a mount's
//! own option; and other settings of a volume that are defaults of its mounts.

use crate::harness::{Run, Shared, run, sh};
use std::fs;

/// Fails with status 1 if another program has the lock.
const TRY: &str = "flock -n file true";

/// Counts under a lock, so many times.
const COUNT: &str = "python3 -c \"
import fcntl
for n in range(300):
    with open('count', 'r+') as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        count = int(file.read())
        file.seek(0)
        file.write(str(count + 1))\"";

fn succeeds(run: Run) -> bool {
    run.outcome().status.is_some_and(|status| status.success())
}

/// Whether a lock that a program on one mount holds excludes a program on the other.
fn excludes(volume: &Shared) -> bool {
    let [one, other] = [0, 1].map(|mount| volume.path(mount));
    let holder = sh(one, "flock file sh -c 'touch held; until test -e go; do sleep 0.02; done'").start();
    sh(other, "until test -e held; do sleep 0.02; done").ok();
    let refused = !succeeds(sh(other, TRY));
    fs::write(other.join("go"), "").expect("a file can be made");
    holder.wait().ok();
    sh(one, "rm held go").ok();
    refused
}

#[test]
fn locks_exclude_between_mounts_unless_the_volume_or_the_mounts_say_otherwise() {
    let volume = Shared::start("several-locks", 2);
    fs::write(volume.path(0).join("file"), "").expect("a file can be made");
    fs::write(volume.path(0).join("count"), "0").expect("a file can be made");
    assert!(excludes(&volume), "by default");
    let counters = [0, 1].map(|mount| sh(volume.path(mount), COUNT).start());
    counters.into_iter().for_each(|counter| drop(counter.wait().ok()));
    assert_eq!(fs::read_to_string(volume.path(1).join("count")).expect("it is there"), "600");

    volume.set("locks", "local");
    assert!(volume.ask(&["volume", "info", "v"]).contains("locks: local"));
    (0..2).for_each(|mount| volume.remount(mount, ""));
    assert!(!excludes(&volume), "the volume says locks=local");
    (0..2).for_each(|mount| volume.remount(mount, "locks=cluster"));
    assert!(excludes(&volume), "the mounts say locks=cluster");
    volume.finish();
}

#[test]
fn a_volume_that_is_read_only_is_mounted_so_whatever_the_mount_says() {
    let volume = Shared::start("several-read-only", 2);
    volume.set("read-only", "on");
    volume.remount(1, "rw");
    let touched = run("touch").arg(volume.path(1).join("file")).outcome();
    assert!(touched.stderr.contains("Read-only file system"), "{touched}");
    fs::write(volume.path(0).join("file"), "").expect("a mount that was there before goes on");
    volume.set("read-only", "off");
    volume.remount(1, "");
    fs::write(volume.path(1).join("file"), "").expect("it can be written again");
    volume.finish();
}
