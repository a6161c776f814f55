//! A cluster grows and shrinks while it is used.

use crate::harness::load::pattern;
use crate::harness::{Cluster, Load, eventually};

#[test]
fn bricks_are_added_filled_and_drained_under_load() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let load = Load::start(mount.path(), "load");
    load.advance(60);
    let fourth = cluster.join();
    cluster.shoal(1).arg("volume").arg("add-brick").arg("v").arg(cluster.brick(fourth)).ok();
    cluster.shoal(1).arg("volume").arg("rebalance").arg("v").arg("start").ok();
    load.advance(40);
    eventually("the new brick has blocks", 90, || {
        let blocks = count_files(&cluster.brick_path(fourth));
        if blocks > 0 { Ok(()) } else { Err("it has none".into()) }
    });
    let remove = |step: &str| {
        let command = cluster.shoal(1).arg("volume").arg("remove-brick").arg("v").arg(cluster.brick(1));
        command.arg(step).arg("-y")
    };
    remove("start").ok();
    load.advance(20);
    eventually("the brick is drained", 180, || {
        let outcome = remove("commit").outcome();
        if outcome.status.is_some_and(|status| status.success()) { Ok(()) } else { Err(outcome.to_string()) }
    });
    load.advance(20);
    let (expected, stall) = load.stop();
    println!("expanded and drained: longest call {stall:?}");
    expected.check();
    cluster.wait_healed(1, 120);
    let info = cluster.json(1, &["volume", "info", "v"]).expect("volume info");
    assert!(!info.to_string().contains(&cluster.brick_path(1).display().to_string()), "{info}");
    mount.unmount();
    let mount = cluster.mount();
    expected.check();
    mount.unmount();
}

/// Files of one block each.
const SPREAD_FILES: u64 = 96;
const SPREAD_BYTES: u64 = 200_000;
/// So slow that a rebalance of these files takes longer than the restart of all servers.
const SLOW: &str = "128KB";

#[test]
fn rebalance_is_resumed_when_all_servers_restart_while_it_runs() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    for seed in 1..=SPREAD_FILES {
        let file = mount.path().join(format!("f{seed}"));
        std::fs::write(file, pattern(seed, SPREAD_BYTES)).expect("written");
    }
    mount.unmount();
    let set_rate = |cluster: &Cluster, rate: &str| {
        cluster.shoal(1).arg("volume").arg("set").arg("v").arg("heal.bytes-per-second").arg(rate).ok();
    };
    set_rate(&cluster, SLOW);
    let second = format!("{}-2", cluster.brick(1));
    let second_path = cluster.brick_path(1).with_file_name("brick1-2");
    cluster.shoal(1).arg("volume").arg("add-brick").arg("v").arg(&second).ok();
    cluster.shoal(1).arg("volume").arg("rebalance").arg("v").arg("start").ok();
    let state = |cluster: &Cluster| {
        let report = cluster.json(1, &["volume", "rebalance", "v", "status"])?;
        report["state"].as_str().map(str::to_owned).ok_or_else(|| report.to_string())
    };
    eventually("it has moved a block", 60, || {
        let blocks = count_files(&second_path);
        if blocks > 0 { Ok(()) } else { Err("none".into()) }
    });
    assert_eq!(state(&cluster).as_deref(), Ok("in-progress"));
    (1..=3).for_each(|node| cluster.kill(node));
    (1..=3).for_each(|node| cluster.start(node));

    eventually("it is resumed", 60, || match state(&cluster)?.as_str() {
        "in-progress" => Ok(()),
        other => Err(other.to_owned()),
    });
    set_rate(&cluster, "0");
    let is_completed = |cluster: &Cluster| match state(cluster)?.as_str() {
        "completed" => Ok(()),
        other => Err(other.to_owned()),
    };
    eventually("it is completed", 120, || is_completed(&cluster));
    let report = cluster.json(1, &["volume", "rebalance", "v", "status"]).expect("rebalance status");
    let number = |field: &str| report[field].as_u64();
    assert_eq!((number("examined"), number("failures")), (Some(SPREAD_FILES), Some(0)), "{report}");
    let blocks = count_files(&second_path);
    assert!(blocks as u64 > SPREAD_FILES / 4, "{blocks} of {SPREAD_FILES} blocks were moved");

    // It is not begun again, whichever replica leads after another restart of all servers.
    eventually("all nodes know that it is completed", 60, || {
        let awaited = |node: &usize| {
            let text = std::fs::read_to_string(cluster.data(*node).join("node.json")).unwrap_or_default();
            !text.contains("\"rebalances\": {}")
        };
        match (1..=3).find(awaited) {
            None => Ok(()),
            Some(node) => Err(format!("node {node} awaits it")),
        }
    });
    (1..=3).for_each(|node| cluster.kill(node));
    (1..=3).for_each(|node| cluster.start(node));
    eventually("it is completed after a restart", 60, || is_completed(&cluster));
    cluster.wait_healed(1, 120);
}

fn count_files(dir: &std::path::Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir.join("blocks")).into_iter().flatten().flatten() {
        for run in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            count += std::fs::read_dir(run.path()).into_iter().flatten().count();
        }
    }
    count
}
