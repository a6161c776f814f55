//! Crash consistency: the server is killed (-9) at random moments under load.
//!
//! Writers do random steps, one system call each, and record outside the mount what they have done and what
//! was fsynced. After the restart the volume must hold, for each writer, the state after some number of its
//! steps: at least those that an fsync made durable, at most those it began. That is the promise "a crash
//! leaves a prefix, with everything fsynced in it".

mod load;
mod model;

use crate::harness::tree::{self, Tree};
use crate::harness::volume::mounted;
use crate::harness::{Random, Volume, long, plain, seed, sh};
use load::Journal;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 12;
const ROUNDS_LONG: u64 = 100;
/// Concurrent writers, each with its own order of steps.
const WRITERS: u64 = 3;
/// The load runs for this long before the kill.
const LOAD_MS_MIN: u64 = 30;
const LOAD_MS_MAX: u64 = 1500;
/// Trees of this many earlier rounds are verified again after each crash.
const ROUNDS_KEPT: usize = 2;

#[test]
fn a_crash_leaves_a_prefix_with_everything_fsynced() {
    if plain() {
        return;
    }
    let seed = seed();
    let mut random = Random::new(seed);
    let mut volume = Volume::start("crash");
    let mut earlier: VecDeque<(PathBuf, Tree)> = VecDeque::new();
    for round in 0..if long() { ROUNDS_LONG } else { ROUNDS } {
        let what = format!("SHOAL_TEST_SEED={seed}, round {round}");
        let journals = load_and_kill(&mut volume, &mut random, round);
        let steps: usize = journals.iter().map(|(_, journal)| journal.steps.len()).sum();
        volume.fsck();
        restart_perhaps_killed_again(&mut volume, &mut random);

        for (name, journal) in journals {
            let dir = volume.path().join(&name);
            let found = read_if_there(&dir);
            let survived =
                journal.survivors(&found).unwrap_or_else(|story| panic!("{what}, {name}: {story}"));
            if long() {
                let (done, synced) = (journal.steps.len(), journal.synced);
                eprintln!("{what}, {name}: {survived} of {done} steps survived, {synced} were fsynced");
            }
            earlier.push_back((PathBuf::from(name), found));
        }
        for (name, expected) in &earlier {
            let differences = tree::differences(&read_if_there(&volume.path().join(name)), expected);
            assert!(
                differences.is_empty(),
                "{what}: {} has changed since it survived:\n{differences}",
                name.display()
            );
        }
        while earlier.len() > ROUNDS_KEPT * WRITERS as usize {
            let (name, _) = earlier.pop_front().expect("there is one");
            let _ = fs::remove_dir_all(volume.path().join(name));
        }
        assert!(steps > 0, "{what}: the load did nothing");
    }
    volume.stop();
    volume.fsck();
}

/// Runs the writers, kills the server meanwhile, and returns what the writers recorded.
fn load_and_kill(volume: &mut Volume, random: &mut Random, round: u64) -> Vec<(String, Journal)> {
    let stop = AtomicBool::new(false);
    let moment = Duration::from_millis(random.below(LOAD_MS_MIN..LOAD_MS_MAX));
    let (mount, kill) = (volume.path().to_owned(), volume.killer());
    let seeds: Vec<u64> = (0..WRITERS).map(|_| random.below(0..u64::MAX)).collect();
    let journals = thread::scope(|scope| {
        let (mount, stop) = (&mount, &stop);
        let writers: Vec<_> = seeds
            .iter()
            .enumerate()
            .map(|(writer, seed)| {
                let name = format!("round-{round}-writer-{writer}");
                scope.spawn(move || (name.clone(), load::run(&mount.join(name), *seed)))
            })
            .collect();
        scope.spawn(move || noise(mount, round, stop));
        thread::sleep(moment);
        kill();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("a writer ends with its server")).collect()
    });
    volume.kill();
    journals
}

/// Background load: files that are created and removed, and large ones.
fn noise(mount: &Path, round: u64, stop: &AtomicBool) {
    let large = vec![round as u8; 9 << 20];
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let path = mount.join(format!("noise-{}", number % 7));
        // A call that fails here fails because the server is dead.
        let _ = match number % 10 {
            0 => fs::write(&path, &large),
            1..=5 => fs::write(&path, b"temporary"),
            _ => fs::remove_file(&path),
        };
    }
}

/// Restarts; sometimes the server is killed again during its recovery.
fn restart_perhaps_killed_again(volume: &mut Volume, random: &mut Random) {
    if random.one_in(3) {
        volume.launch();
        thread::sleep(Duration::from_millis(random.below(0..300)));
        volume.kill();
        volume.fsck();
    }
    volume.restart();
}

/// The tree of one writer; empty if the crash came before its directory was durable.
fn read_if_there(dir: &Path) -> Tree {
    let mut tree = if dir.exists() { tree::read(dir) } else { Tree::new() };
    tree.values_mut().for_each(|node| node.mtime_ns = 0);
    tree
}

#[test]
fn sqlite_keeps_every_committed_transaction_through_crashes() {
    if plain() {
        return;
    }
    let seed = seed();
    let mut random = Random::new(seed);
    let mut volume = Volume::start("crash-sqlite");
    let journal_mode = |round: u64| if round.is_multiple_of(2) { "delete" } else { "wal" };
    for round in 0..if long() { 30 } else { 4 } {
        let create = format!(
            "rm -f base.db*; sqlite3 base.db 'PRAGMA journal_mode={}; CREATE TABLE t(number INTEGER PRIMARY KEY, filler BLOB);'; sync base.db",
            journal_mode(round)
        );
        sh(volume.path(), &create).ok();
        volume.sync();
        // Each number is printed once its transaction is committed. SQLite commits by removing the rollback
        // journal; only with EXTRA does it make that removal durable, too.
        let script = "for i in $(seq 100000); do echo \"INSERT INTO t VALUES($i, randomblob(2000)); SELECT $i;\"; done |
            sqlite3 -cmd 'PRAGMA synchronous=EXTRA;' -bail base.db";
        let writer = sh(volume.path(), script).start();
        thread::sleep(Duration::from_millis(random.below(50..1200)));
        // The dead mount stays until the writer has noticed: below it is an ordinary directory, where an
        // fsync succeeds.
        volume.killer()();
        let printed = writer.wait().stdout;
        volume.kill();
        let committed = printed.lines().last().and_then(|line| line.parse::<u64>().ok()).unwrap_or(0);
        volume.fsck();
        volume.restart();
        let query = "PRAGMA integrity_check; SELECT count(*) FROM t; SELECT max(number) FROM t;";
        let answer = sh(volume.path(), &format!("sqlite3 base.db '{query}'")).ok();
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines[0], "ok", "SHOAL_TEST_SEED={seed}, round {round}");
        assert_eq!(
            lines[1],
            if lines[2].is_empty() { "0" } else { lines[2] },
            "SHOAL_TEST_SEED={seed}, round {round}"
        );
        let there: u64 = lines[1].parse().expect("a count is a number");
        // SQLite takes a directory that it cannot open for synced (`unixDelete`), as on a dead mount. So the
        // last removal of a rollback journal may not be durable.
        let durable = if journal_mode(round) == "delete" { committed.saturating_sub(1) } else { committed };
        assert!(
            there >= durable,
            "SHOAL_TEST_SEED={seed}, round {round}: {committed} committed, {there} there"
        );
    }
}

#[test]
fn what_was_synced_is_there_after_a_crash_and_an_unmounted_volume_lost_nothing() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("crash-sync");
    crate::programs::make_tree(&volume.local().join("tree"), 400);
    let copy = format!("cp -a {}/tree one", volume.local().display());
    sh(volume.path(), &copy).ok();
    volume.sync();
    volume.kill();
    volume.fsck();
    volume.restart();
    tree::assert_same(&volume.path().join("one"), &volume.local().join("tree"), true);
    sh(volume.path(), &copy.replace("one", "two")).ok();
    volume.stop();
    volume.restart();
    volume.kill();
    volume.fsck();
    volume.restart();
    tree::assert_same(&volume.path().join("two"), &volume.local().join("tree"), true);
}

#[test]
fn server_killed_while_it_starts_leaves_no_hung_mount() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("crash-start");
    fs::write(volume.path().join("file"), b"content").expect("write");
    volume.stop();
    for round in 0..60 {
        volume.launch();
        // Just after mounting a server is most likely to wait for itself.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !mounted(volume.path()) && Instant::now() < deadline {}
        thread::sleep(Duration::from_micros(40 * round));
        volume.kill();
    }
    volume.fsck();
    volume.restart();
    assert_eq!(fs::read(volume.path().join("file")).expect("read"), b"content");
}
