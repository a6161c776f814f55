//! `shoal top`: what a volume does at this moment, from whichever node one asks.

use crate::harness::{Cluster, sh};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of each file that is written, in blocks.
const LARGE: usize = 2 << 20;

fn names(report: &Value, rows: &str, column: &str) -> Vec<String> {
    let rows = report[rows].as_array().unwrap_or_else(|| panic!("no {rows} in {report}"));
    rows.iter().map(|row| row[column].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn profile_and_top_show_bricks_mounts_and_files_to_two_administrators() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    fs::create_dir(mount.path().join("dir")).expect("made");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u8;
            while !done.load(Ordering::Relaxed) {
                round = round.wrapping_add(1);
                fs::write(mount.path().join("dir/busy"), vec![round; LARGE]).expect("written");
                sh(mount.path(), "sync -f .").ok();
            }
        });
        let _stop = Stop(&done);
        let point = mount.path().display().to_string();

        // A second administrator looks at the same time from another node.
        let looks = scope.spawn(|| cluster.json(2, &["volume", "profile", "v", "info", "peek"]));
        let shown = cluster.shoal(1).arg("top").arg("v").arg("--once").ok();
        println!("{shown}");
        let all = shown.lines().find(|line| line.starts_with("all mounts: ")).expect("a line of all mounts");
        assert!(!all.starts_with("all mounts: 0 "), "{shown}");
        for part in [&point, &cluster.brick(3), "/dir/busy", "directory", "put "] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("note: "), "{shown}");
        let profile = looks.join().expect("it looks").expect("a profile");
        assert_eq!(profile["silent"], serde_json::json!([]), "{profile}");

        // Without a name, as JSON, from another node.
        let report = cluster.json(3, &["top", "--batch", "2"]);
        assert!(report.is_err(), "two objects are two lines: {report:?}");
        let report = cluster.json(3, &["top", "--once", "--interval", "1"]).expect("a report");
        assert_eq!((&report["volume"], &report["node"]), (&"v".into(), &"n3".into()), "{report}");
        assert!(report["total"]["written_bytes"].as_f64() > Some(0.0), "{report}");
        assert!(names(&report, "mounts", "name").iter().any(|name| name.ends_with(&point)), "{report}");
        assert!(names(&report, "files", "path").contains(&"/dir/busy".to_owned()), "{report}");
        assert_eq!(names(&report, "bricks", "name").len(), 3, "{report}");

        // As the mount sees itself.
        let own = cluster.shoal(1).arg("top").arg(mount.path()).arg("--once").arg("--interval").arg("1").ok();
        assert!(own.contains(&point) && !own.contains(" 0 MB/s written"), "{own}");
    });
    node_that_is_down_is_a_note(&mut cluster);
    let refused = cluster.shoal(1).arg("top").arg("none").arg("--once").outcome();
    assert!(refused.status.and_then(|status| status.code()) == Some(2), "{refused}");
    mount.unmount();
}

fn node_that_is_down_is_a_note(cluster: &mut Cluster) {
    cluster.kill(3);
    let shown = cluster.shoal(1).arg("top").arg("v").arg("--once").ok();
    println!("{shown}");
    assert!(shown.contains("note: node n3 does not answer"), "{shown}");
    assert!(shown.contains("its node does not answer, or does not serve it"), "{shown}");
    cluster.start(3);
}

/// Ends the load, also when an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
