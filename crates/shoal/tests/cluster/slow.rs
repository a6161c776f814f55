//! An operation that takes long is logged with what it waited for, on both sides, and state dumps show it
//! while it waits.

use crate::harness::{Cluster, Mount, eventually, sh};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest time for a line to appear in a log. A client that is stopped holds others up for 10 s.
const LOG_SECONDS: u64 = 60;

/// Changes something, and waits until it is durable.
const SYNCED: &str = "mkdir absent && python3 -c 'import os; os.fsync(os.open(\".\", os.O_RDONLY))'";

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// Waits until a log has a line with all of these parts, and returns it.
fn line(what: &str, log: &dyn Fn() -> String, parts: &[&str]) -> String {
    let mut found = String::new();
    eventually(what, LOG_SECONDS, || {
        let log = log();
        let line = log.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found = line.ok_or_else(|| format!("{parts:?} in {log}"))?.to_owned();
        Ok(())
    });
    println!("{found}");
    found
}

/// The number of a request that a line names: `request 4.17`.
fn request(line: &str) -> String {
    let after = line.split("request ").skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let number = after.and_then(|rest| rest.split(' ').next()).expect("a request");
    format!("request {number} ")
}

fn dump(cluster: &Cluster, path: &Path) -> String {
    cluster.shoal(1).arg("dump").arg(path).ok()
}

fn process(cluster: &Cluster, mount: &Mount) -> i32 {
    let volumes = cluster.json(1, &["volume", "status", "v", "clients"]).expect("told");
    let point = mount.path().display().to_string();
    let sessions = volumes[0]["sessions"].as_array().expect("sessions");
    let session =
        sessions.iter().find(|session| session["mountpoint"] == point.as_str()).expect("it is there");
    session["pid"].as_i64().expect("a process") as i32
}

#[test]
fn slow_operation_is_logged_on_both_sides_and_dumps_show_what_it_waits_for() {
    let mut cluster = Cluster::with_volume(3);
    let log = cluster.local().join("one.log");
    cluster.shoal(1).arg("volume").arg("set").arg("v").arg("slow-operation").arg("1").ok();
    let one = cluster.mount_at("one", &format!("log-file={}", log.display()));
    let other = cluster.mount_on(1);
    let pid = process(&cluster, &one);

    recall_of_a_stopped_client_is_named(&cluster, &one, &other, &log);
    operation_without_a_leader_shows_in_dumps(&mut cluster, &one, &log, pid);
    other.unmount();
    one.unmount();
}

/// The other mount holds a file that it does not give back, because its process is stopped.
fn recall_of_a_stopped_client_is_named(cluster: &Cluster, one: &Mount, other: &Mount, log: &Path) {
    fs::create_dir(other.path().join("dir")).expect("made");
    fs::write(other.path().join("dir/held"), "held").expect("written");
    let paused = other.pause();
    let blocked = sh(one.path(), "cat dir/held").limit(90).start();
    let slow =
        line("the mount logs it", &|| text(log), &["slow operation: ", "so far", "waits_for=\"metadata ("]);
    let number = request(&slow);
    let leader = cluster.leader(1);
    let client = other.path().display().to_string();
    line(
        "the server logs it",
        &|| cluster.whole_log(leader),
        &["slow request: ", number.as_str(), "so far", &client],
    );
    drop(paused);
    assert_eq!(blocked.wait().ok(), "held");
    line(
        "its end is logged",
        &|| text(log),
        &["slow operation: ", " took ", "hops=\"", "waited_for=\"metadata ("],
    );
    line("its end is logged", &|| cluster.whole_log(leader), &["slow request: ", number.as_str(), " took "]);
}

/// Without two of three nodes there is no leader, for as long as the test likes.
fn operation_without_a_leader_shows_in_dumps(cluster: &mut Cluster, one: &Mount, log: &Path, pid: i32) {
    let calm = dump(cluster, one.path());
    assert!(calm.contains("Mount of volume v at ") && calm.contains("metadata leader: node "), "{calm}");
    for node in [2, 3] {
        cluster.kill(node);
    }
    let blocked = sh(one.path(), SYNCED).limit(200).start();
    eventually("the mount logs another one", LOG_SECONDS, || match text(log).matches("so far").count() {
        0 | 1 => Err(text(log)),
        _ => Ok(()),
    });
    let waits = || dump(cluster, one.path());
    line("the mount's state shows it", &waits, &[" by process ", "waits for "]);
    line("the mount's state shows it", &waits, &["metadata leader: none answers"]);
    let server = dump(cluster, &cluster.data(1));
    println!("{server}");
    for part in ["Server of node n1", "of volume v: ", "brick n1:"] {
        assert!(server.contains(part), "{part} in {server}");
    }
    // SAFETY: kill(2) takes two integers; the process serves a mount of this test.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
    let told = line("the state is written", &|| text(log), &["the state was written there"]);
    let file = told.split("file=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a file");
    let dumped = text(&PathBuf::from(file));
    println!("{dumped}");
    assert!(
        dumped.contains("Requests of the kernel that wait: ") && dumped.contains("journal: "),
        "{dumped}"
    );
    for node in [2, 3] {
        cluster.start(node);
    }
    blocked.wait().ok();
}
