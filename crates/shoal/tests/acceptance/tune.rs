//! `shoal tune`: layers are measured on temporary mounts, of which nothing is left.

use crate::harness::command::{Run, wait_until};
use crate::harness::tree::names;
use crate::harness::volume::shoal;
use crate::harness::{Shared, Volume, plain};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Sizes that take a second.
const TINY: [&str; 6] =
    ["--suite=smallfile", "--files=12", "--file-size=2KB", "--threads=2", "--warm", "--rounds=2"];

fn tiny(run: Run, volume: &str, temporary: &Path) -> Run {
    TINY.iter().fold(run.arg("tune").arg(volume), Run::arg).env("TMPDIR", temporary)
}

/// Whether something is mounted below a directory.
fn has_mounts(dir: &Path) -> bool {
    fs::read_to_string("/proc/mounts").expect("the mount table").contains(&*dir.to_string_lossy())
}

#[test]
fn layers_of_a_volume_are_judged_and_all_temporary_mounts_are_gone() {
    if plain() {
        return;
    }
    let shared = Shared::start("tune", 1);
    let temporary = shared.local();
    let json = tiny(shared.shoal(), "v", &temporary)
        .arg("--layer=kernel-cache,cache,locks")
        .arg("--set")
        .arg("--json")
        .ok();
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let layers = report["layers"].as_array().expect("layers");
    let of = |name: &str| -> Vec<&str> { layers.iter().filter_map(|layer| layer[name].as_str()).collect() };
    assert_eq!(of("layer"), ["kernel-cache", "locks", "cache"], "{json}");
    assert_eq!(of("options"), ["kernel-cache=off", "locks=local", "cache=32"], "{json}");
    assert!(layers.iter().all(|layer| layer["seconds"].as_f64() > Some(0.0)), "{json}");
    // What it found it has set, and nothing that takes a decision.
    let set: Vec<&str> =
        report["set"].as_array().expect("settings").iter().filter_map(|set| set.as_str()).collect();
    let cache_costs = layers[2]["verdict"] == "costs";
    assert_eq!(set, if cache_costs { vec!["cache 32"] } else { vec![] }, "{json}");
    assert!(shared.ask(&["volume", "get", "v", "locks"]).contains("cluster"));

    // From elsewhere, with options of one's own.
    shared.set("locks", "local");
    let source = format!("{}:/v", shared.server());
    let text = tiny(shoal(), &source, &temporary)
        .arg("--credentials")
        .arg(shared.data().join("tls"))
        .arg("--layer=tree-read-ahead")
        .arg("--try=readers=1,waiters=3")
        .ok();
    assert!(text.contains("tree-read-ahead") && text.contains("readers=1,waiters=3"), "{text}");
    assert!(text.contains("what lies within is noise"), "{text}");
    interrupted(&shared, &temporary);
    assert!(names(&temporary).is_empty() && !has_mounts(&temporary), "{:?}", names(&temporary));
    assert!(names(shared.path(0)).is_empty(), "{:?}", names(shared.path(0)));
    shared.finish();
}

/// Ctrl-C, while a suite works.
fn interrupted(shared: &Shared, temporary: &Path) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shoal"))
        .args(["tune", "v", "--suite=smallfile", "--files=4000", "--rounds=9", "--layer=cache", "--warm"])
        .env("SHOAL_DATA", shared.data())
        .env("TMPDIR", temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("shoal tune starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !names(shared.path(0)).iter().any(|name| shared.path(0).join(name).join("work/thread-0").exists()) {
        assert!(Instant::now() < deadline, "it does not begin to work");
        std::thread::sleep(Duration::from_millis(20));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGINT)
        .expect("it is there");
    let status = wait_until(&mut child, Instant::now() + Duration::from_secs(60));
    if status.is_none() {
        let _ = child.kill();
    }
    assert_eq!(status.expect("it ends").code(), Some(2));
}

#[test]
fn volumes_and_arguments_that_cannot_be_tuned_are_refused_with_the_reason() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("tune-refused");
    let (local, data) = (volume.local(), volume.data().display().to_string());
    let refused = |word: &str, more: &[&str], why: &str| {
        let run = tiny(shoal(), word, &local).env("SHOAL_DATA", local.join("none"));
        let outcome = more.iter().fold(run, Run::arg).outcome();
        assert_eq!(outcome.status.and_then(|status| status.code()), Some(2), "{outcome}");
        assert!(outcome.stderr.contains(why), "{outcome}");
    };
    refused(&data, &[], "unmount it first");
    refused("v", &[], "there is no server");
    refused("/no/such/directory", &[], "neither a volume");
    refused("v", &["--layer=luck"], "kernel-cache");
    refused("127.0.0.1:1:/v", &["--set"], "on one of the cluster's nodes");
    volume.stop();
    refused(&data, &["--layer=locks"], "volumes of a cluster");
    refused(&data, &["--mounts=2"], "mounted only once");
    let text = tiny(shoal(), &data, &local).arg("--layer=cache").ok();
    assert!(text.contains("cache") && names(&local).is_empty() && !has_mounts(&local), "{text}");
    volume.fsck();
}
