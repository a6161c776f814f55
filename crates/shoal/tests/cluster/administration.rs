//! What an administrator asks of a cluster: destructive commands, reports about mounts, tasks and disks, new
//! names, scrubbing, locks.

use crate::harness::cluster::CLIENT;
use crate::harness::{Cluster, Mount, eventually, sh};
use serde_json::Value;
use std::fs;

/// Takes a lock, reports that, and keeps it until stopped.
const HOLD: &str = "python3 -c \"
import fcntl, os, time
file = open('file', 'r+')
fcntl.lockf(file, fcntl.LOCK_EX)
open('held', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.05)\"";

/// Fails while another process has the lock.
const TRY: &str = "python3 -c \"
import fcntl
fcntl.lockf(open('file', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\"";

/// Files of one block each.
const FILES: usize = 16;

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Runs a command on the first node, which may fail; returns exit code, output and errors.
fn shoal(cluster: &Cluster, line: &str) -> (Option<i32>, String, String) {
    let outcome = words(line).into_iter().fold(cluster.shoal(1), |command, word| command.arg(word)).outcome();
    let code = outcome.status.and_then(|status| status.code());
    (code, outcome.stdout.clone(), outcome.stderr.clone())
}

#[track_caller]
fn ok(cluster: &Cluster, line: &str) -> String {
    let (code, stdout, stderr) = shoal(cluster, line);
    assert_eq!(code, Some(0), "{line}: {stdout}{stderr}");
    stdout
}

#[track_caller]
fn json(cluster: &Cluster, line: &str) -> Value {
    cluster.json(1, &words(line)).unwrap_or_else(|why| panic!("{line}: {why}"))
}

#[test]
fn administrator_sees_and_controls_what_a_cluster_does() {
    let cluster = Cluster::with_volume(3);
    let mount = cluster.mount_at("one", "locks=cluster");
    for n in 0..FILES {
        fs::write(mount.path().join(format!("block{n}")), vec![n as u8; 1 << 20]).expect("written");
    }
    sh(mount.path(), "sync -f . && echo content >file").ok();

    nothing_is_lost_without_consent(&cluster);
    mounts_are_listed_with_what_they_hold_and_locks_are_cleared(&cluster, &mount);
    volume_is_renamed_while_it_is_mounted(&cluster, &mount);
    commands_of_glusterfs_scripts_are_answered(&cluster);
    bricks_are_described_and_scrubbed(&cluster);
    rebalance_is_stopped(&cluster);

    let help = ok(&cluster, "volume set help");
    assert!(help.contains("Option: auth.allow\nDefault Value: *\nDescription: "), "{help}");
    mount_leaves_no_run_directory(mount);
    ok(&cluster, "--mode=script volume stop v");
    let (_, clients, _) = shoal(&cluster, "volume status v clients");
    assert!(clients.contains("volume v is not started"), "{clients}");
    ok(&cluster, "volume delete v --yes");
}

#[test]
fn machine_is_told_how_it_becomes_a_member_and_that_it_is_one() {
    let mut cluster = Cluster::new(1);
    let (code, said, _) = shoal(&cluster, &format!("peer probe {}", cluster.address(2)));
    assert!(
        code == Some(1) && said.contains("has not joined yet") && said.contains("peer join shoal1/"),
        "{said}"
    );
    cluster.join();
    for host in [cluster.address(2), "n2".to_owned()] {
        let (code, said, _) = shoal(&cluster, &format!("peer probe {host}"));
        assert!(code == Some(0) && said.contains("peer probe: success"), "{said}");
    }
    let token = said.split_whitespace().find(|word| word.starts_with("shoal1/")).expect("a token");
    for words in [vec!["cluster", "init"], vec!["peer", "join", token]] {
        let again = words.into_iter().fold(cluster.shoal(2), |command, word| command.arg(word)).outcome();
        let is_refused = again.status.is_some_and(|status| status.code() == Some(2));
        assert!(is_refused && again.stderr.contains("member of a cluster already"), "{again}");
    }
    // The hosts of the test have one address each, and no default route.
    let data = cluster.local().join("other");
    let init = || cluster.shoal(CLIENT).env("SHOAL_DATA", &data).arg("cluster").arg("init").arg("--no-start");
    let said = init().arg("--name").arg("other").ok();
    assert!(said.contains(&format!("({}:7470)", cluster.network.address(CLIENT))), "{said}");
}

fn mount_leaves_no_run_directory(mount: Mount) {
    let name = mount.path().parent().and_then(|dir| dir.file_name()?.to_str()).expect("a directory");
    // What is unique of it: a run directory has other punctuation.
    let unique = name.rsplit('-').next().unwrap_or_default().to_owned();
    let left = || {
        let all = fs::read_dir("/run/shoal").into_iter().flatten().flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().contains(&unique)).count()
    };
    assert_eq!(left(), 1);
    mount.unmount();
    eventually("the run directory is removed", 10, || {
        if left() == 0 { Ok(()) } else { Err("it is there".into()) }
    });
}

fn nothing_is_lost_without_consent(cluster: &Cluster) {
    let (code, _, stderr) = shoal(cluster, &format!("volume remove-brick v {} commit", cluster.brick(3)));
    assert!(code == Some(2) && stderr.contains("has to come first") && !stderr.contains("-y"), "{stderr}");
    let force = format!("volume remove-brick v {} force", cluster.brick(3));
    for line in ["volume stop v", "volume delete v", &force, "peer detach n3 force", "client revoke tester"] {
        let (code, _, stderr) = shoal(cluster, line);
        assert_eq!(code, Some(2), "{line}: {stderr}");
        assert!(stderr.contains("nothing was done") && stderr.contains("-y"), "{line}: {stderr}");
    }
    let info = json(cluster, "volume info v");
    assert_eq!((&info[0]["state"], info[0]["bricks"].as_array().map(Vec::len)), (&"started".into(), Some(3)));
}

fn mounts_are_listed_with_what_they_hold_and_locks_are_cleared(cluster: &Cluster, mount: &Mount) {
    let holder = sh(mount.path(), HOLD).limit(120).start();
    sh(mount.path(), "until test -e held; do sleep 0.05; done").limit(60).ok();
    let clients = json(cluster, "volume status v clients");
    let session = &clients[0]["sessions"][0];
    let address = cluster.network.address(CLIENT);
    let point = mount.path().display().to_string();
    assert_eq!(clients[0]["sessions"].as_array().map(Vec::len), Some(1), "{clients}");
    for (field, expected) in [
        ("address", Value::from(address.as_str())),
        ("mountpoint", point.as_str().into()),
        ("credentials", "client tester".into()),
        ("locks", 1.into()),
        ("locks_waiting", 0.into()),
    ] {
        assert_eq!(session[field], expected, "{field}: {clients}");
    }
    let text = ok(cluster, "volume status all clients");
    assert!(text.contains(&address) && text.contains("Number of clients connected: 1\n"), "{text}");

    let (_, _, refused) = shoal(cluster, "volume clear-locks v /nothing kind all posix");
    assert!(refused.contains("there is no /nothing in the volume"), "{refused}");
    let tried = sh(mount.path(), TRY).limit(60).outcome();
    assert!(tried.stderr.contains("BlockingIOError"), "{tried}");
    let cleared = ok(cluster, "volume clear-locks v /file kind granted posix");
    assert!(cleared.contains("v: /file: blocked locks=0 granted locks=1\n"), "{cleared}");
    assert!(cleared.contains(&point), "the holder is named: {cleared}");
    sh(mount.path(), TRY).limit(60).ok();
    fs::write(mount.path().join("go"), "").expect("written");
    holder.wait().ok();
}

fn volume_is_renamed_while_it_is_mounted(cluster: &Cluster, mount: &Mount) {
    ok(cluster, "volume rename v www");
    sh(mount.path(), "echo renamed >new && sync -f . && test \"$(cat file)\" = content").limit(60).ok();
    assert_eq!(json(cluster, "volume list"), serde_json::json!(["www"]));
    let (code, _, stderr) = shoal(cluster, "volume rename v other");
    assert!(code == Some(2) && stderr.contains("there are: www"), "{stderr}");
    ok(cluster, "volume rename www v");
}

fn commands_of_glusterfs_scripts_are_answered(cluster: &Cluster) {
    let (code, _, stderr) = shoal(cluster, "volume start v force");
    assert!(code == Some(0) && stderr.contains("started already"), "{stderr}");
    let (code, _, stderr) = shoal(cluster, "volume start v");
    assert!(code == Some(2) && stderr.contains("started already"), "{stderr}");
    ok(cluster, "volume reset v features.read-only");
    assert_eq!(json(cluster, "volume get v features.read-only"), serde_json::json!({"read-only": "off"}));
    let (code, _, stderr) = shoal(cluster, "volume set v features.reed-only on");
    assert!(code == Some(2) && stderr.contains("did you mean features.read-only?"), "{stderr}");
}

fn bricks_are_described_and_scrubbed(cluster: &Cluster) {
    let detail = json(cluster, "volume status v detail");
    let bricks = detail[0]["bricks"].as_array().expect("bricks");
    for brick in bricks {
        assert!(
            brick["blocks"].as_u64() >= Some(FILES as u64) && brick["file_system"].is_string(),
            "{brick}"
        );
        assert!(brick["total_bytes"].as_u64() > Some(0) && brick["inodes"].is_u64(), "{brick}");
    }
    assert!(ok(cluster, "volume status v detail").contains("Size of Blocks       : 16.00 MiB\n"));

    ok(cluster, "volume bitrot v scrub pause");
    let status = json(cluster, "volume scrub v status");
    assert_eq!(
        (&status["paused"], json(cluster, "volume get v scrub.state")),
        (&true.into(), serde_json::json!({"scrub.state": "paused"}))
    );
    ok(cluster, "volume scrub v start");
    ok(cluster, "volume scrub v resume");
    eventually("all bricks have been read through", 60, || {
        let status = cluster.json(1, &words("volume scrub v start"))?;
        let bricks = status["bricks"].as_array().ok_or("no bricks")?;
        let is_read = |brick: &Value| brick["rounds"].as_u64() >= Some(1) && brick["damaged"] == 0;
        if bricks.len() == 3 && bricks.iter().all(is_read) { Ok(()) } else { Err(status.to_string()) }
    });
    eventually("nothing is to be healed", 60, || {
        let (code, summary, stderr) = shoal(cluster, "volume heal v info summary");
        match code == Some(0) && summary.contains("Total Number of entries: 0\n") {
            true => Ok(()),
            false => Err(format!("{summary}{stderr}")),
        }
    });
    assert!(ok(cluster, "volume status v tasks").contains("There are no active volume tasks\n"));
    ok(cluster, "volume heal v full");
    let split_brain = ok(cluster, "volume heal v info split-brain");
    assert_eq!(split_brain.matches("Number of entries in split-brain: 0\n").count(), 3, "{split_brain}");
    assert_eq!(json(cluster, "volume heal v info")["degraded"], 0);
}

/// A second brick on the first node gets half of what is on the first, slowly.
fn rebalance_is_stopped(cluster: &Cluster) {
    ok(cluster, "volume set v heal.bytes-per-second 32KB");
    let second = format!("{}-2", cluster.brick(1));
    ok(cluster, &format!("volume add-brick v {second}"));
    let (code, _, stderr) = shoal(cluster, "volume rebalance v stop");
    assert!(code == Some(2) && stderr.contains("no rebalance"), "{stderr}");
    ok(cluster, "volume rebalance v start");
    let task = |tasks: &Value| {
        tasks[0]["tasks"].as_array().and_then(|tasks| {
            tasks.iter().find(|task| task["task"] == "rebalance").map(|task| task["state"].clone())
        })
    };
    let tasks = json(cluster, "volume status v tasks");
    assert_eq!(task(&tasks), Some("in-progress".into()), "{tasks}");
    let stopped = json(cluster, "volume rebalance v stop");
    assert_eq!(stopped["state"], "stopped", "{stopped}");
    eventually("the rebalance ends", 60, || {
        let tasks = cluster.json(1, &words("volume status v tasks"))?;
        let (code, _, again) = shoal(cluster, "volume rebalance v stop");
        match task(&tasks) == Some("stopped".into()) && code == Some(2) && again.contains("no rebalance") {
            true => Ok(()),
            false => Err(format!("{tasks}{again}")),
        }
    });
    let moved = json(cluster, "volume status v detail");
    let bricks = moved[0]["bricks"].as_array().expect("bricks");
    let on_second = bricks.iter().find(|brick| brick["brick"] == second.as_str());
    let blocks = on_second.and_then(|brick| brick["blocks"].as_u64()).unwrap_or(u64::MAX);
    assert!(blocks < FILES as u64 / 4, "it went on to the end: {moved}");
    ok(cluster, "volume reset v all");
}
