//! `shoal bench`: every suite on a mount and on a plain directory, and what it refuses.

use crate::harness::command::wait_until;
use crate::harness::tree::names;
use crate::harness::volume::{scratch, shoal};
use crate::harness::{Shared, Volume, plain};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Sizes that take seconds.
const TINY: &str =
    "--files 24 --file-size 2KB --threads 2 --tars 5 --stream-size 512KB --record 64KB --rounds 1";

fn tiny(run: crate::harness::Run) -> crate::harness::Run {
    TINY.split(' ').fold(run.arg("bench"), |run, word| run.arg(word))
}

#[test]
fn every_suite_runs_on_a_mount_beside_a_plain_directory() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("bench");
    let local = volume.local();
    let (json, html) = (local.join("a.json"), local.join("a.html"));
    let beside = local.join("beside");
    fs::create_dir(&beside).expect("a directory");
    let suites = "small-read,untar,smallfile,stream,web,git,maildir,build";
    let text = tiny(shoal())
        .arg("--suite")
        .arg(suites)
        .arg(&beside)
        .arg(volume.path())
        .arg("--json")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .limit(300)
        .ok();
    let results: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("the results")).expect("JSON");
    let rows = results["rows"].as_array().expect("rows");
    for suite in suites.split(',') {
        let of_it: Vec<_> = rows.iter().filter(|row| row["suite"] == suite).collect();
        assert!(of_it.len() >= 4, "{suite}: {text}");
        assert!(
            of_it.iter().any(|row| row["what"].as_str().is_some_and(|what| what.contains("cold"))),
            "{text}"
        );
        for row in of_it {
            assert_eq!(row["seconds"][0].as_array().map(Vec::len), Some(1), "{row}");
            assert_eq!(row["seconds"][1].as_array().map(Vec::len), Some(1), "{row}");
            assert_eq!(row["requests_per_file"][0].as_array().map(Vec::len), Some(0), "{row}");
            assert_eq!(row["requests_per_file"][1].as_array().map(Vec::len), Some(1), "{row}");
        }
    }
    let create = rows.iter().find(|row| row["suite"] == "smallfile" && row["what"] == "create, sync");
    let requests = create.expect("smallfile creates")["requests_per_file"][1][0].as_f64();
    // A look-up and a create at the least.
    assert!(requests.is_some_and(|requests| requests >= 2.0), "{requests:?}");
    let page = fs::read_to_string(&html).expect("the page");
    assert!(page.contains("<h2>smallfile</h2>") && page.ends_with("</html>\n"));
    assert!(names(&beside).is_empty() && names(volume.path()).is_empty(), "it leaves something behind");

    let both = local.join("both.html");
    let text = shoal().arg("bench").arg("--compare").arg(&json).arg(&json).arg("--html").arg(&both).ok();
    assert!(text.contains("smallfile: create, sync"), "{text}");
    assert!(fs::read_to_string(both).expect("the page").contains("a.json: "));
    volume.stop();
    volume.fsck();
}

#[test]
fn cluster_suite_shows_its_times_by_number_of_mounts() {
    let shared = Shared::start("bench-cluster", 2);
    let local = shared.local();
    let twice = |dir: &Path, other: &Path| format!("{},{}", dir.display(), other.display());
    let text = tiny(shoal())
        .arg("--suite=cluster")
        .arg("--warm")
        .arg(twice(shared.path(0), shared.path(1)))
        .arg(twice(&local, &local))
        .ok();
    for tree in ["own trees", "common tree"] {
        for what in ["unpack, sync", "tar, data read, warm", "rm -rf, sync"] {
            let alone = format!("cluster: {tree}: {what} ");
            let both = format!("cluster: {tree}: {what} on 2 mounts at once");
            assert!(text.contains(&alone) && text.contains(&both), "{alone}: {text}");
        }
    }
    let table = text.split("mounts at work").nth(1).unwrap_or_default();
    assert!(table.matches("1.00x").count() >= 12, "{text}");
    assert!(names(shared.path(0)).is_empty() && names(&local).is_empty(), "it leaves something behind");
    shared.finish();
}

#[test]
fn invalid_arguments_are_refused_before_any_measurement() {
    let dir = scratch("bench-refused");
    let here = dir.path();
    let cases: [(&[&Path], &str); 7] = [
        (&[&here.join("none")], "is not a directory"),
        (&[Path::new("/proc")], "cannot be written to"),
        (&[here, here], "named twice"),
        (&[here, Path::new("--suite=smalfile")], "small-read, untar"),
        (&[here, Path::new("--json"), &here.join("no/such/file")], "cannot be written"),
        (&[here, Path::new("--suite=cluster")], "is one mount"),
        (&[here, Path::new("--remount=true"), Path::new("--warm")], "cannot be used with"),
    ];
    for (words, why) in cases {
        let outcome = words.iter().fold(tiny(shoal()), |run, word| run.arg(word)).outcome();
        assert_eq!(outcome.status.and_then(|status| status.code()), Some(2), "{outcome}");
        assert!(outcome.stderr.contains(why), "{words:?}: {outcome}");
        assert!(names(here).is_empty(), "{outcome}");
    }
    let outcome = shoal().arg("bench").arg(here).arg("--stream-size").arg("900TB").outcome();
    assert!(outcome.stderr.contains("smaller sizes"), "{outcome}");
}

#[test]
fn interrupted_benchmark_removes_what_it_made() {
    for signal in [nix::sys::signal::Signal::SIGINT, nix::sys::signal::Signal::SIGTERM] {
        let dir = scratch("bench-interrupted");
        let mut child = Command::new(env!("CARGO_BIN_EXE_shoal"))
            .args(["bench", "--suite", "untar,smallfile", "--files", "20000", "--rounds", "1000", "--warm"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("shoal bench starts");
        let deadline = Instant::now() + Duration::from_secs(120);
        let work = || {
            let inner = names(dir.path()).first().map(|name| dir.path().join(name).join("work/tree"));
            inner.is_some_and(|tree| tree.exists())
        };
        while !work() {
            assert!(Instant::now() < deadline, "it does not begin to unpack");
            std::thread::sleep(Duration::from_millis(20));
        }
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).expect("it is there");
        let status = wait_until(&mut child, Instant::now() + Duration::from_secs(60));
        if status.is_none() {
            let _ = child.kill();
        }
        assert_eq!(status.expect("it ends").code(), Some(2), "{signal}");
        assert!(names(dir.path()).is_empty(), "{signal}: {:?}", names(dir.path()));
        let input = format!("/dev/shm/.shoal-bench-{}-32", child.id());
        assert!(!Path::new(&input).exists(), "{input} is left");
    }
}
