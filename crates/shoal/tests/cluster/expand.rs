//! A cluster grows and shrinks while it is used.

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

fn count_files(dir: &std::path::Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir.join("blocks")).into_iter().flatten().flatten() {
        for run in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            count += std::fs::read_dir(run.path()).into_iter().flatten().count();
        }
    }
    count
}
