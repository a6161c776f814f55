//! The program on a local directory: what a local file system does is explained, a false result is refused,
//! and the program ends whatever its workers do.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Kills the tested program if it does not end by itself.
const PATIENCE_S: &str = "60";

fn witness(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", PATIENCE_S, env!("CARGO_BIN_EXE_shoal-witness")]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn dir() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_str().expect("its name is text").to_owned();
    (dir, path)
}

fn is_empty(path: &str) -> bool {
    std::fs::read_dir(path).expect("it can be listed").next().is_none()
}

#[test]
fn a_local_directory_given_twice_is_explained_and_left_clean() {
    let (_dir, path) = dir();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let history = file.path().to_str().expect("its name is text");
    let out = witness(&["run", &path, &path, "--seconds", "2", "--seed", "7", "--history", history]).output();
    let out = out.expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    assert!(text(&out).contains("explained"));
    assert!(is_empty(&path));
    let out = witness(&["check", history]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
}

#[test]
fn a_stale_answer_is_refused_and_shown() {
    let (_dir, path) = dir();
    let out =
        witness(&["run", &path, &path, "--seconds", "1", "--lie-every", "100"]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("NOT EXPLAINED") && text(&out).contains(" ** "), "{}", text(&out));
}

#[test]
fn directories_that_are_not_the_same_are_trouble() {
    let ((_one, one), (_two, two)) = (dir(), dir());
    let out = witness(&["run", &one, &two, "--seconds", "1"]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
}

#[test]
fn hammering_a_local_directory_finds_nothing_wrong() {
    let (_dir, path) = dir();
    // The machine that runs this may be busy: no call is too long here.
    let out = witness(&["hammer", &path, &path, "--seconds", "1", "--longest-ms", "60000"]).output();
    let out = out.expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    assert!(text(&out).contains("all mounts agree"));
    assert!(is_empty(&path));
}

#[test]
fn changes_are_seen_at_once_and_turns_are_counted() {
    let (_dir, path) = dir();
    let out = witness(&["visible", &path, &path, "--count", "50"]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    assert!(text(&out).contains("every completed change was seen at once"), "{}", text(&out));
    let out = witness(&["turns", &path, &path, "--seconds", "1"]).output().expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    assert!(text(&out).contains("per second"), "{}", text(&out));
    assert!(is_empty(&path));
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(Path::new("/proc").join(format!("{pid}/task/{pid}/children")));
    list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_worker(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == b"worker")
}

/// Starts a run and gives the process of one of its workers.
fn run_with_worker(arguments: &[&str]) -> (std::process::Child, u32) {
    let mut run = witness(arguments).spawn().expect("it runs");
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let workers = children(run.id()).into_iter().flat_map(children).filter(|pid| is_worker(*pid));
        if let Some(worker) = workers.max() {
            // It is working by now; if not, the test still holds.
            std::thread::sleep(Duration::from_millis(300));
            return (run, worker);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = run.kill();
    panic!("no worker was started: {:?}", run.wait());
}

fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

#[test]
fn a_worker_that_is_killed_does_not_matter() {
    let (_dir, path) = dir();
    let (run, worker) = run_with_worker(&["run", &path, &path, "--seconds", "2"]);
    signal(worker, "-KILL");
    let out = run.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
}

#[test]
fn a_worker_that_hangs_is_reported() {
    let (_dir, path) = dir();
    let (run, worker) = run_with_worker(&["run", &path, &path, "--seconds", "3", "--hang-grace", "1"]);
    signal(worker, "-STOP");
    let out = run.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("HUNG: worker"), "{}", text(&out));
}
