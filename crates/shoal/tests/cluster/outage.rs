//! Loss of two of three nodes: without a quorum calls wait, and no acknowledged change is lost.

use crate::harness::{Cluster, Mount};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A cluster with two of three nodes dead, a mount of it, and a file there that says `before`.
fn without_a_majority() -> (Cluster, Mount, PathBuf) {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let file = mount.path().join("file");
    fs::write(&file, "before").expect("write");
    File::open(&file).expect("open").sync_all().expect("fsync");
    cluster.kill(2);
    cluster.kill(3);
    (cluster, mount, file)
}

#[test]
fn without_a_majority_calls_wait_and_go_on_when_one_node_returns() {
    let (mut cluster, mount, file) = without_a_majority();
    let (tell, told) = mpsc::channel();
    let path = file.clone();
    let writer = std::thread::spawn(move || {
        let mut file = File::options().append(true).open(path).expect("open");
        file.write_all(b" and after").expect("write");
        file.sync_all().expect("fsync, once there is a majority again");
        tell.send(()).expect("the test listens");
    });
    assert!(told.recv_timeout(Duration::from_secs(6)).is_err(), "an fsync was acknowledged by a minority");
    let status = cluster.shoal(1).arg("cluster").arg("status").outcome();
    assert_ne!(status.status.and_then(|status| status.code()), Some(0), "all is well? {status}");
    // A look at the mount does not wait for servers as its calls do.
    let dumped = cluster.shoal(1).arg("dump").arg(mount.path()).ok();
    assert!(dumped.contains("Requests of the kernel that wait: "), "{dumped}");
    let status = cluster.shoal(1).arg("status").arg(mount.path()).outcome();
    assert_eq!(status.status.and_then(|status| status.code()), Some(1), "{status}");
    assert!(status.stdout.contains("waits     for the servers"), "{status}");
    administrator_is_told_what_is_waited_for(&cluster);
    cluster.start(3);
    told.recv_timeout(Duration::from_secs(60)).expect("a majority is back");
    writer.join().expect("the writer");
    assert_eq!(fs::read_to_string(&file).expect("read"), "before and after");
    cluster.start(2);
    cluster.wait_identical(1, 3);
    cluster.wait_healed(1, 60);
    mount.unmount();
}

fn administrator_is_told_what_is_waited_for(cluster: &Cluster) {
    let words = ["volume", "set", "v", "read-ahead", "64"];
    let set = words.into_iter().fold(cluster.shoal(1), |command, word| command.arg(word)).start();
    let mount = cluster.mount_command(&cluster.credentials("tester"), &cluster.local().join("late")).start();
    for (command, why) in [(set, "cannot be changed now"), (mount, "has led for")] {
        let outcome = command.wait();
        assert!(outcome.status.is_some_and(|status| status.code() == Some(2)), "{outcome}");
        let said = "note: waiting for a majority of the servers: n2 and n3 do not answer";
        assert!(outcome.stderr.starts_with(said) && outcome.stderr.contains(why), "{outcome}");
    }
}

#[test]
fn programs_that_wait_without_a_majority_can_be_killed() {
    let (mut cluster, mount, file) = without_a_majority();
    // Until the lease has run out, some calls are answered from caches.
    std::thread::sleep(Duration::from_secs(12));
    let lines = [
        "mkdir new",
        "touch other",
        "truncate --size=3 file",
        "mv file moved",
        "rm file",
        "cat file",
        "df .",
        "ls .",
    ];
    let start = |line: &&str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        // The program itself must not need the mount to begin.
        command.args(words.map(|word| match word.starts_with('-') {
            true => PathBuf::from(word),
            false => mount.path().join(word),
        }));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program")
    };
    let mut programs: Vec<(&str, Child)> = lines.iter().map(|line| (*line, start(line))).collect();
    std::thread::sleep(Duration::from_secs(1));
    for (line, program) in &mut programs {
        assert!(program.try_wait().expect("a child").is_none(), "'{line}' did not wait for servers");
        program.kill().expect("it runs");
    }
    let begun = Instant::now();
    for (line, mut program) in programs {
        while program.try_wait().expect("a child").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10), "'{line}' was killed, and does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    cluster.start(2);
    cluster.start(3);
    // What was killed has had no effect.
    assert_eq!(fs::read_to_string(&file).expect("read"), "before");
    assert_eq!(fs::read_dir(mount.path()).expect("list").count(), 1);
    cluster.wait_healed(1, 60);
    mount.unmount();
}

/// Takes a lock of its own, waits for a line, and makes a call about locks.
const LOCKS: &str = "
import fcntl, sys, time
path, offset, call = sys.argv[1:]
file = open(path, 'r+')
fcntl.lockf(file, fcntl.LOCK_EX, 1, int(offset))
print('ready', flush=True)
sys.stdin.readline()
eval(call)
";

#[test]
fn programs_with_locks_can_be_killed_without_a_majority_and_leave_none() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let file = mount.path().join("file");
    fs::write(&file, "before").expect("write");
    const ENDS: &str = "None";
    let calls = [
        ENDS,
        "time.sleep(100)",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 100)",
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 200)",
        "fcntl.lockf(file, fcntl.LOCK_UN)",
        "fcntl.fcntl(file, fcntl.F_GETLK, struct.pack('hhqqi', 1, 0, 300, 1, 0))",
    ];
    let python = |offset: usize, call: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("import struct{LOCKS}")]).arg(&file).arg(offset.to_string()).arg(call);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3")
    };
    let mut programs: Vec<Child> = calls.iter().enumerate().map(|(n, call)| python(n, call)).collect();
    for program in &mut programs {
        let mut line = String::new();
        BufReader::new(program.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }
    cluster.kill(2);
    cluster.kill(3);
    // Locks are in the leader's memory: it grants them until it steps down.
    std::thread::sleep(Duration::from_secs(5));
    for program in &mut programs {
        program.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
    }
    std::thread::sleep(Duration::from_secs(1));
    for (program, call) in programs.iter_mut().zip(calls) {
        let has_ended = program.try_wait().expect("a child").is_some();
        assert!(call == ENDS || !has_ended, "'{call}' did not wait for servers");
        program.kill().expect("it runs");
    }
    let begun = Instant::now();
    for (mut program, call) in programs.into_iter().zip(calls) {
        while program.try_wait().expect("a child").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10), "'{call}' was killed, and does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    cluster.start(2);
    cluster.start(3);
    let all = "fcntl.lockf(file, fcntl.LOCK_EX), fcntl.flock(file, fcntl.LOCK_EX)";
    let mut last = Command::new("timeout");
    last.args(["30", "python3", "-c", LOCKS])
        .arg(&file)
        .args(["500", all])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    assert!(last.status().expect("timeout").success(), "locks of killed programs are left");
    cluster.wait_healed(1, 60);
    mount.unmount();
}

#[test]
fn all_nodes_die_at_once_and_nothing_that_was_synced_is_lost() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let content: Vec<u8> = (0..6 << 20).map(|n| (n % 251) as u8).collect();
    for n in 0..50 {
        fs::write(mount.path().join(format!("f{n}")), format!("content {n}")).expect("write");
    }
    let large = mount.path().join("large");
    fs::write(&large, &content).expect("write");
    File::open(&large).expect("open").sync_all().expect("fsync");
    for node in 1..=3 {
        cluster.kill(node);
    }
    for node in 1..=3 {
        cluster.start(node);
    }
    // The mount still works.
    fs::write(mount.path().join("later"), "later").expect("write");
    mount.unmount();
    let mount = cluster.mount();
    for n in 0..50 {
        let found = fs::read_to_string(mount.path().join(format!("f{n}"))).expect("read");
        assert_eq!(found, format!("content {n}"));
    }
    assert!(fs::read(mount.path().join("large")).expect("read") == content);
    assert_eq!(fs::read_to_string(mount.path().join("later")).expect("read"), "later");
    mount.unmount();
    cluster.wait_identical(1, 3);
}
