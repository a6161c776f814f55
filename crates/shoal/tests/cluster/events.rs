//! `shoal events`: what has happened, from whichever node one asks.

use crate::harness::cluster::CLIENT;
use crate::harness::{Cluster, Mount, eventually, sh};
use serde_json::Value;
use std::fs;

/// Longest time for an event to be seen: an election and some looks, on a loaded machine.
const EVENT_SECONDS: u64 = 90;

/// The events that a node tells, a line of JSON each.
fn events(cluster: &Cluster, node: usize) -> Result<Vec<Value>, String> {
    let outcome = cluster.shoal(node).arg("events").arg("--json").outcome();
    let lines =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).map_err(|why| format!("{why}: {line}")));
    lines.collect()
}

/// Waits for an event of a kind with all of these words in its text, and returns its text.
#[track_caller]
fn event(cluster: &Cluster, node: usize, kind: &str, words: &[&str]) -> String {
    let mut found = String::new();
    eventually(&format!("{kind} {words:?}"), EVENT_SECONDS, || {
        let all = events(cluster, node)?;
        let texts =
            all.iter().filter(|event| event["kind"] == kind).filter_map(|event| event["text"].as_str());
        let text = texts.into_iter().find(|text| words.iter().all(|word| text.contains(word)));
        found = text.ok_or_else(|| format!("{all:?}"))?.to_owned();
        Ok(())
    });
    found
}

#[test]
fn every_node_reports_events_of_nodes_blocks_sessions_and_certificates() {
    let mut cluster = Cluster::with_volume(3);
    let one = cluster.mount_at("one", "locks=cluster");
    let other = cluster.mount_on(1);
    event(&cluster, 2, "server-started", &[]);
    event(&cluster, 2, "leader-changed", &["volume v"]);

    node_goes_and_comes_back_and_is_healed(&mut cluster, &one);
    session_is_ended_and_its_mount_tells_what_it_lost(&cluster, &one, &other);
    revoked_client_is_refused(&cluster);

    let shown = cluster.shoal(2).arg("events").ok();
    println!("{shown}");
    assert!(shown.lines().any(|line| line.contains(" UTC  n") && line.contains("  node-down ")), "{shown}");
    let all = events(&cluster, 3).expect("told");
    let times: Vec<u64> = all.iter().filter_map(|event| event["at_ms"].as_u64()).collect();
    assert!(times.is_sorted() && times.len() == all.len(), "{times:?}");
    one.unmount();
    other.unmount();
}

fn node_goes_and_comes_back_and_is_healed(cluster: &mut Cluster, one: &Mount) {
    let [enter, net] = cluster.network.on(1);
    let (program, data) = (env!("CARGO_BIN_EXE_shoal"), cluster.data(1));
    let data = data.display();
    let follow = format!(
        "SHOAL_DATA={data} {enter} {net} {program} events --follow --json >followed & pid=$!
        until grep -q node-down followed; do sleep 0.1; done
        kill $pid
        cat followed"
    );
    let followed = sh(&cluster.local(), &follow).limit(180).start();
    cluster.kill(3);
    assert_eq!(event(cluster, 1, "node-down", &[]), "node n3 does not answer");
    let lines = followed.wait().ok();
    assert!(lines.contains("node n3 does not answer"), "{lines}");
    fs::write(one.path().join("large"), vec![7; 2 << 20]).expect("written");
    sh(one.path(), "sync -f .").limit(90).ok();
    let begun = event(cluster, 2, "heal-begun", &["volume v", "lack copies"]);
    assert!(begun.starts_with("volume v: "), "{begun}");
    cluster.start(3);
    event(cluster, 3, "node-up", &["node n3 answers again"]);
    event(cluster, 3, "heal-done", &["volume v: every block is where it should be"]);
}

fn session_is_ended_and_its_mount_tells_what_it_lost(cluster: &Cluster, one: &Mount, other: &Mount) {
    fs::create_dir(other.path().join("dir")).expect("made");
    fs::write(other.path().join("dir/held"), "held").expect("written");
    let point = other.path().display().to_string();
    let paused = other.pause();
    // What the other mount had not committed is lost with its session.
    sh(one.path(), "ls dir; touch dir/mine; sync -f .").limit(90).outcome();
    let ended = event(cluster, 1, "session-ended", &[&point, "was ended: "]);
    assert!(ended.starts_with("session "), "{ended}");
    drop(paused);
    let lost = event(cluster, 2, "session-ended", &[&point, "has ended: lost ", " operations on "]);
    assert!(lost.contains(" inodes, and "), "{lost}");
    // Reports the loss, so that the end of the mount does not.
    cluster.shoal(CLIENT + 1).arg("sync").arg(other.path()).outcome();
}

fn revoked_client_is_refused(cluster: &Cluster) {
    let credentials = cluster.credentials("ghost");
    cluster.shoal(1).arg("client").arg("revoke").arg("ghost").arg("-y").ok();
    let path = cluster.local().join("never");
    let outcome = cluster.mount_command(&credentials, &path).outcome();
    assert!(outcome.status.is_none_or(|status| !status.success()), "{outcome}");
    let refused = event(cluster, 1, "refused", &["ghost", "revoked"]);
    assert!(refused.contains(&cluster.network.address(CLIENT)), "{refused}");
}
