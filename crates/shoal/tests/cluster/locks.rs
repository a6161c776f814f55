//! Locks of programs on two mounts, while the leader that grants them dies.

use crate::harness::{Cluster, run, sh};
use std::fs;

/// Takes a lock, reports that, and keeps it until signalled to continue.
const HOLD: &str = "python3 -c \"
import fcntl, os, time
file = open('file', 'r+')
fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
fcntl.flock(file, fcntl.LOCK_EX)
open('held', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.05)
file.write('mine')
file.flush()
fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)\"";

/// Waits for that lock.
const WAIT: &str = "python3 -c \"
import fcntl
file = open('file', 'r+')
open('waits', 'w').close()
fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
assert file.read() == 'mine'\"";

/// Increments a number in a file, again and again.
const COUNT: &str = "python3 -c \"
import fcntl
for n in range(300):
    with open('count', 'r+') as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        count = int(file.read())
        file.seek(0)
        file.write(str(count + 1))\"";

/// Fails while another program holds the lock.
const TRY: [&str; 2] = [
    "import fcntl; fcntl.lockf(open('file', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 9)",
    "import fcntl; fcntl.flock(open('file', 'r+'), fcntl.LOCK_SH | fcntl.LOCK_NB)",
];

#[test]
fn locks_outlive_the_leader_that_granted_them() {
    let mut cluster = Cluster::with_volume(3);
    let (one, other) = (cluster.mount_at("one", "locks=cluster"), cluster.mount_at("other", "locks=cluster"));
    fs::write(one.path().join("file"), "").expect("written");
    fs::write(one.path().join("count"), "0").expect("written");
    let appears = |name: &str| {
        sh(one.path(), &format!("until test -e {name}; do sleep 0.05; done")).limit(60).ok();
    };
    let holder = sh(one.path(), HOLD).limit(240).start();
    appears("held");
    let waiter = sh(other.path(), WAIT).limit(240).start();
    appears("waits");
    for mount in [&one, &other] {
        let leader = cluster.leader(1);
        let counters = [&one, &other].map(|mount| sh(mount.path(), COUNT).limit(240).start());
        std::thread::sleep(std::time::Duration::from_secs(1));
        cluster.kill(leader);
        for attempt in TRY {
            let tried = run("python3").arg("-c").arg(attempt).dir(mount.path()).limit(60).outcome();
            assert!(tried.stderr.contains("BlockingIOError"), "{tried}");
        }
        for counter in counters {
            counter.wait().ok();
        }
        cluster.start(leader);
    }
    fs::write(other.path().join("go"), "").expect("written");
    holder.wait().ok();
    waiter.wait().ok();
    for attempt in TRY {
        run("python3").arg("-c").arg(attempt).dir(other.path()).limit(60).ok();
    }
    assert_eq!(fs::read_to_string(other.path().join("count")).expect("there"), "1200");
    one.unmount();
    other.unmount();
}
