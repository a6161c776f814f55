//! `volume profile` and `volume top`: what bricks and mounts have done, from whichever node one asks.

use crate::harness::{Cluster, Mount, sh};
use serde_json::Value;
use std::fs;

/// Bytes of a file that is stored in blocks.
const LARGE: usize = 3 << 20;

fn ask(cluster: &Cluster, node: usize, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    cluster.json(node, &words).unwrap_or_else(|why| panic!("{line}: {why}"))
}

fn text(cluster: &Cluster, node: usize, line: &str) -> String {
    line.split(' ').fold(cluster.shoal(node), |command, word| command.arg(word)).ok()
}

/// How often a call of this name occurred.
fn calls(profile: &Value, name: &str) -> u64 {
    let all = profile["operations"].as_array().into_iter().chain(profile["metadata"].as_array()).flatten();
    all.filter(|call| call["name"] == name).filter_map(|call| call["count"].as_u64()).sum()
}

/// The profile of a mount.
fn of_mount<'a>(report: &'a Value, mount: &Mount) -> &'a Value {
    let point = mount.path().display().to_string();
    let mounts = report["mounts"].as_array().expect("mounts");
    let found = mounts.iter().find(|one| one["mount"]["mountpoint"] == point.as_str());
    found.unwrap_or_else(|| panic!("{point} in {report}"))
}

/// The listed files of a mount: path, count and bytes.
fn files(report: &Value, mount: &Mount) -> Vec<(String, u64, u64)> {
    let files = of_mount(report, mount)["files"].as_array().expect("files");
    let file = |file: &Value| {
        let number = |name: &str| file[name].as_u64().expect("a number");
        (file["path"].as_str().unwrap_or("(none)").to_owned(), number("count"), number("bytes"))
    };
    files.iter().map(file).collect()
}

#[test]
fn any_node_reports_the_profile_of_all_bricks_and_mounts() {
    let cluster = Cluster::with_volume(3);
    let one = cluster.mount_at("one", "locks=cluster");
    let other = cluster.mount_on(1);

    let started = text(&cluster, 1, "volume profile v start");
    assert_eq!(started, "Starting volume profile on v has been successful\n");
    fs::create_dir_all(one.path().join("a/b")).expect("made");
    fs::write(one.path().join("a/b/large"), vec![7; LARGE]).expect("written");
    sh(one.path(), "for n in 1 2 3 4 5; do echo $n >>a/often; done; sync -f .").ok();
    sh(other.path(), "cat a/b/large | wc -c; cat a/often; ls a >list; sync -f .").ok();

    intervals_are_the_same_from_every_node(&cluster, &one, &other);
    busiest_files_are_named_with_their_paths(&cluster, &one, &other);
    mounts_and_bricks_that_do_not_answer_are_listed(cluster, one, other);
}

fn intervals_are_the_same_from_every_node(cluster: &Cluster, one: &Mount, other: &Mount) {
    let peeked = ask(cluster, 2, "volume profile v info peek");
    let report = ask(cluster, 3, "volume profile v info");
    for report in [&peeked, &report] {
        let bricks = report["bricks"].as_array().expect("bricks");
        assert_eq!((bricks.len(), &report["silent"]), (3, &serde_json::json!([])), "{report}");
        for brick in bricks {
            let interval = &brick["profiled"]["interval"];
            assert!(calls(interval, "put") >= 1, "{report}");
            assert!(interval["writes"]["bytes"].as_u64() >= Some(LARGE as u64), "{report}");
            assert!(brick["profiled"]["interval_number"] == 1, "{report}");
        }
        let read = |brick: &Value| brick["profiled"]["interval"]["reads"]["bytes"].as_u64();
        assert!(bricks.iter().filter_map(read).sum::<u64>() >= LARGE as u64, "{report}");
        let (writer, reader) = (&of_mount(report, one)["profiled"], &of_mount(report, other)["profiled"]);
        assert!(writer["interval"]["writes"]["bytes"].as_u64() >= Some(LARGE as u64), "{report}");
        assert!(
            calls(&writer["interval"], "create") >= 2 && calls(&writer["interval"], "commit") >= 1,
            "{report}"
        );
        assert!(reader["interval"]["reads"]["bytes"].as_u64() >= Some(LARGE as u64), "{report}");
    }
    let next = ask(cluster, 1, "volume profile v info");
    for brick in next["bricks"].as_array().expect("bricks") {
        let profiled = &brick["profiled"];
        assert_eq!(
            (&profiled["interval_number"], calls(&profiled["interval"], "put")),
            (&2.into(), 0),
            "{next}"
        );
        assert!(calls(&profiled["cumulative"], "put") >= 1, "{next}");
    }
    let writer = &of_mount(&next, one)["profiled"];
    assert_eq!(
        (calls(&writer["interval"], "create"), &writer["interval"]["writes"]["bytes"]),
        (0, &0.into())
    );

    let shown = text(cluster, 2, "volume profile v info cumulative");
    println!("{shown}");
    for part in
        ["Brick: n1:/", "Cumulative Stats:\n", "Block Size:", "%-latency", " PUT\n", "Mount: ", " CREATE\n"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("Interval"), "{shown}");
    assert_eq!(
        text(cluster, 1, "volume profile v stop"),
        "Stopping volume profile on v has been successful\n"
    );
}

fn busiest_files_are_named_with_their_paths(cluster: &Cluster, one: &Mount, other: &Mount) {
    let opened = files(&ask(cluster, 2, "volume top v open"), one);
    let often = opened.iter().find(|(path, ..)| path == "/a/often").unwrap_or_else(|| panic!("{opened:?}"));
    // The first one is a CREATE.
    assert!(often.1 >= 4, "{opened:?}");
    let created = files(&ask(cluster, 2, "volume top v create"), one);
    assert!(created.iter().any(|(path, ..)| path == "/a/b") && created.iter().any(|(path, ..)| path == "/a"));
    let written = files(&ask(cluster, 3, "volume top v write-perf list-cnt 1"), one);
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!((written[0].0.as_str(), written[0].2), ("/a/b/large", LARGE as u64));
    let read = files(&ask(cluster, 1, "volume top v read-perf"), other);
    assert_eq!((read[0].0.as_str(), read[0].2), ("/a/b/large", LARGE as u64), "{read:?}");
    let listed = files(&ask(cluster, 1, "volume top v readdir"), other);
    assert!(listed.iter().any(|(path, ..)| path == "/a"), "{listed:?}");
    let shown = text(cluster, 1, "volume top v write-perf");
    println!("{shown}");
    assert!(shown.contains("Mount: ") && shown.contains("  /a/b/large\n"), "{shown}");

    // A removed file has no path.
    fs::remove_file(one.path().join("a/b/large")).expect("removed");
    sh(one.path(), "sync -f .").ok();
    let written = files(&ask(cluster, 3, "volume top v write-perf list-cnt 1"), one);
    assert_eq!((written[0].0.as_str(), written[0].2), ("(none)", LARGE as u64));
    let cleared = text(cluster, 1, "volume top v clear");
    assert!(cleared.starts_with("volume top: v: success\n"), "{cleared}");
    assert_eq!(files(&ask(cluster, 1, "volume top v write"), one), []);
}

fn mounts_and_bricks_that_do_not_answer_are_listed(mut cluster: Cluster, one: Mount, other: Mount) {
    let paused = other.pause();
    cluster.kill(3);
    let report = ask(&cluster, 1, "volume profile v info");
    let point = other.path().display().to_string();
    assert_eq!(report["silent"][0]["mountpoint"], point.as_str(), "{report}");
    assert_eq!(report["mounts"].as_array().map(Vec::len), Some(1), "{report}");
    let shown = text(&cluster, 2, "volume profile v info");
    assert!(shown.contains("its node does not answer") && shown.contains("It has not answered"), "{shown}");
    drop(paused);
    cluster.start(3);
    one.unmount();
    other.unmount();
    let shown = text(&cluster, 1, "volume top v read");
    assert_eq!(shown, "Volume v is not mounted anywhere\n");
}
