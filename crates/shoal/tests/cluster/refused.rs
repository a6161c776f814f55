//! Mounts that an administrator's decision takes the volume from, and mounts that are taken away by force:
//! no call hangs.

use crate::harness::cluster::CLIENT;
use crate::harness::{Cluster, Mount, eventually, run, sh};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Seconds until a decision has reached every node and mount, and a session has ended by it.
const REACHES_WITHIN: u64 = 20;
/// Seconds that a program may take on a mount that is not served: it fails instead of waiting.
const FAILS_WITHIN: u64 = 15;
/// Every waiting call ends within this when a mount is taken away by force: 2 s, and some for a machine with
/// other work.
const LET_GO_WITHIN: Duration = Duration::from_secs(4);
/// What a stopped or deleted volume answers.
const NOT_CONNECTED: &str = "Transport endpoint is not connected";
/// What a revoked client and an address that is not allowed get.
const DENIED: &str = "Permission denied";

fn volume(cluster: &Cluster, words: &[&str]) {
    let command = words.iter().fold(cluster.shoal(1).arg("volume"), |command, word| command.arg(word));
    command.ok();
}

/// Waits until programs on a mount fail in this way, df(1) and ls(1) among them. None may hang until then.
fn fails(point: &Path, how: &str) {
    for program in ["ls", "df"] {
        eventually(program, REACHES_WITHIN, || {
            let outcome = run(program).arg(point).limit(FAILS_WITHIN).outcome();
            assert!(outcome.status.is_some(), "it hangs: {outcome}");
            if outcome.stderr.contains(how) { Ok(()) } else { Err(outcome.to_string()) }
        });
    }
}

/// Waits until a mount works, and its file is what it was.
fn works(mount: &Mount) {
    eventually("the mount works again", REACHES_WITHIN, || {
        let outcome = sh(mount.path(), "cat file && echo x > new && sync new && rm new").limit(FAILS_WITHIN);
        let outcome = outcome.outcome();
        let is_right = outcome.status.is_some_and(|status| status.success()) && outcome.stdout == "content\n";
        if is_right { Ok(()) } else { Err(outcome.to_string()) }
    });
}

/// Mounts that must fail, at once and with a reason.
fn is_refused(cluster: &Cluster, credentials: &Path, why: &str) {
    let begun = Instant::now();
    let refused = cluster.mount_command(credentials, &cluster.local().join("refused")).limit(30).outcome();
    assert!(refused.status.is_some_and(|status| !status.success()), "{refused}");
    assert!(refused.stderr.contains(why), "it does not say '{why}': {refused}");
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}: {refused}", begun.elapsed());
}

fn umounts(mount: Mount) {
    let begun = Instant::now();
    mount.unmount();
    assert!(begun.elapsed() < Duration::from_secs(FAILS_WITHIN), "umount took {:?}", begun.elapsed());
}

#[test]
fn mounts_whose_volume_is_stopped_or_deleted_or_not_for_them_fail_instead_of_hanging() {
    let cluster = Cluster::with_volume(3);
    let credentials = cluster.credentials("tester");
    let mount = cluster.mount();
    fs::write(mount.path().join("file"), "content\n").expect("write");
    sh(mount.path(), "sync file").ok();

    // Stopped, while a program writes: its calls fail.
    let script = "exec 3>>open; while echo x >&3 && sync open; do sleep 0.05; done; exit 7";
    let writer = sh(mount.path(), script).limit(REACHES_WITHIN + FAILS_WITHIN).start();
    std::thread::sleep(Duration::from_millis(300));
    volume(&cluster, &["stop", "v", "--yes"]);
    fails(mount.path(), NOT_CONNECTED);
    let outcome = writer.wait();
    assert_eq!(outcome.status.and_then(|status| status.code()), Some(7), "{outcome}");
    is_refused(&cluster, &credentials, "volume v is not started");
    let status = run(env!("CARGO_BIN_EXE_shoal")).arg("status").arg(mount.path()).limit(30).outcome();
    assert!(status.stdout.contains("volume v is stopped"), "{status}");
    // Started again: it works by itself.
    volume(&cluster, &["start", "v"]);
    works(&mount);

    // Not allowed any more, and allowed again.
    volume(&cluster, &["set", "v", "auth.allow", "10.71.0.200"]);
    fails(mount.path(), DENIED);
    is_refused(&cluster, &credentials, "auth.allow of volume v does not name 10.71.0.100");
    volume(&cluster, &["reset", "v", "auth.allow"]);
    works(&mount);

    // Revoked: for ever, and it can be unmounted.
    let former = cluster.credentials("former");
    let point = cluster.local().join("mnt-former");
    cluster.mount_command(&former, &point).ok();
    let revoked = Cluster::mounted(point);
    works(&revoked);
    cluster.shoal(1).arg("client").arg("revoke").arg("former").arg("-y").ok();
    fails(revoked.path(), DENIED);
    is_refused(&cluster, &former, "the credentials of 'former' were revoked");
    umounts(revoked);

    // Deleted, and another volume made under the name: the mount does not take that for its own.
    volume(&cluster, &["stop", "v", "--yes"]);
    volume(&cluster, &["delete", "v", "--yes"]);
    fails(mount.path(), NOT_CONNECTED);
    is_refused(&cluster, &credentials, "there is no volume 'v'");
    let places: Vec<String> = (1..=3).map(|node| format!("{}-new", cluster.brick(node))).collect();
    let [one, two, three] = [&places[0], &places[1], &places[2]].map(String::as_str);
    volume(&cluster, &["create", "v", "replica", "3", one, two, three]);
    volume(&cluster, &["start", "v"]);
    let new = cluster.mount_on(1);
    assert_eq!(fs::read_dir(new.path()).expect("it is mounted").count(), 0);
    std::thread::sleep(Duration::from_secs(2));
    fails(mount.path(), NOT_CONNECTED);
    umounts(mount);
    new.unmount();
}

#[test]
fn a_mount_that_is_taken_away_by_force_lets_every_call_go_while_its_servers_hang() {
    let cluster = Cluster::with_volume(3);
    // Of the kernel's own umount(2), as without the helper, and of the program's.
    for (n, command) in
        [["umount", "-fl"], [env!("CARGO_BIN_EXE_shoal"), "umount -f"]].into_iter().enumerate()
    {
        // The process of the mount before may still be saving what it can.
        let mut mounted = None;
        eventually("it can be mounted", 90, || cluster.try_mount_on(0).map(|mount| mounted = Some(mount)));
        let mount = mounted.expect("mounted above");
        fs::write(mount.path().join("file"), "content").expect("write");
        sh(mount.path(), "sync file").ok();
        (1..=3).for_each(|node| cluster.pause(node));
        let waits = ["echo x > new; sync new", "df .", "ls -l never-seen", "mkdir dir && sync dir"];
        let waiting: Vec<_> = waits
            .iter()
            // A program may have its working directory there: it is not to keep the mount.
            .map(|script| {
                sh(Path::new("/"), &format!("cd {} && {{ {script}; }}", mount.path().display()))
                    .limit(60)
                    .start()
            })
            .collect();
        std::thread::sleep(Duration::from_secs(3));
        let begun = Instant::now();
        let [program, words] = command;
        let taken =
            words.split(' ').fold(run(program), |run, word| run.arg(word)).arg(mount.path()).limit(30);
        taken.ok();
        for waiting in waiting {
            let outcome = waiting.wait();
            assert!(outcome.status.is_some_and(|status| !status.success()), "{outcome}");
            assert!(begun.elapsed() < LET_GO_WITHIN, "after {:?}: {outcome}", begun.elapsed());
        }
        (1..=3).for_each(|node| cluster.resume(node));
        if n == 1 {
            // Its process has ended, or is about to: the place can be used again.
            let again = cluster.mount();
            assert_eq!(fs::read_to_string(again.path().join("file")).expect("read"), "content");
            again.unmount();
        }
        drop(mount);
    }
}

#[test]
fn a_mount_of_hosts_that_are_down_fails_within_seconds() {
    let cluster = Cluster::new(1);
    let credentials = cluster.credentials("tester");
    let point = cluster.local().join("mnt");
    fs::create_dir_all(&point).expect("the mount point can be made");
    let begun = Instant::now();
    let command = cluster.shoal(CLIENT).arg("mount").arg("--credentials").arg(&credentials);
    let refused = command.arg("10.71.0.250:/v").arg(&point).limit(60).outcome();
    assert!(refused.stderr.contains("no server answers"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
}

#[test]
fn a_mount_that_follows_one_whose_process_was_killed_does_not_wait_for_its_session() {
    let cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    sh(mount.path(), "mkdir dir && echo x > dir/old && sync dir/old").ok();
    let begun = Instant::now();
    mount.kill();
    // At another place: the harness makes mount points, which a dead mount does not let it.
    let next = cluster.mount_on(1);
    sh(next.path(), "echo x > dir/new && mv dir/old dir/moved && sync dir/new").limit(60).ok();
    // The session of a mount that is merely silent is waited for 10 s.
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
    next.unmount();
    drop(mount);
}
