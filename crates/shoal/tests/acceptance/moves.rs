//! `shoal import brick --move`: killed at random moments, and the server with it, no file is ever nowhere.
//!
//! The brick is made by hand, as GlusterFS leaves it. Needs root: attributes `trusted.*`.

use crate::harness::sys::setxattr;
use crate::harness::volume::shoal;
use crate::harness::{Random, Run, Volume, long, plain, seed};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// More than are freed at a time.
const FILES: u64 = 2500;
const DIRECTORIES: u64 = 10;
/// Each file of so many has a second name.
const LINKED: u64 = 7;
const KILLS: u64 = 10;
const KILLS_LONG: u64 = 60;
/// An import is killed when it has freed so many names more, and after so long at the latest.
const FREED: std::ops::Range<u64> = 0..400;
const RUN_MAX: Duration = Duration::from_secs(20);
/// The server is killed with one import of so many.
const SERVER_KILLS: u64 = 3;

fn gfid(kind: u8, n: u64) -> [u8; 16] {
    let mut gfid = [kind; 16];
    gfid[8..].copy_from_slice(&n.to_be_bytes());
    gfid
}

fn handle(brick: &Path, gfid: [u8; 16]) -> PathBuf {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let uuid = [&gfid[..4], &gfid[4..6], &gfid[6..8], &gfid[8..10], &gfid[10..]].map(hex).join("-");
    brick.join(format!(".glusterfs/{}/{}/{uuid}", &uuid[..2], &uuid[2..4]))
}

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, OsStr::new(name), value, 0).expect("root can set attributes of a local file system");
}

fn name(n: u64) -> String {
    format!("d{}/f{n}", n % DIRECTORIES)
}

fn content(n: u64) -> Vec<u8> {
    let len = if n % 100 == 3 { 300_000 } else { n * 13 % 5000 };
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

fn make_brick(brick: &Path) {
    fs::create_dir_all(brick.join(".glusterfs")).expect("mkdir");
    let mut root = [0; 16];
    root[15] = 1;
    set(brick, "trusted.gfid", &root);
    for n in 0..DIRECTORIES {
        fs::create_dir(brick.join(format!("d{n}"))).expect("mkdir");
        set(&brick.join(format!("d{n}")), "trusted.gfid", &gfid(1, n));
    }
    for n in 0..FILES {
        let (path, gfid) = (brick.join(name(n)), gfid(2, n));
        fs::write(&path, content(n)).expect("write");
        set(&path, "trusted.gfid", &gfid);
        let handle = handle(brick, gfid);
        fs::create_dir_all(handle.parent().expect("it has one")).expect("mkdir");
        fs::hard_link(&path, handle).expect("link");
        if n % LINKED == 0 {
            fs::hard_link(&path, path.with_file_name(format!("z{n}"))).expect("link");
        }
    }
}

/// Each name is on the brick or in the volume, whole; returns how many are on the brick.
fn check(brick: &Path, volume: &Path) -> u64 {
    let mut left = 0;
    for n in 0..FILES {
        let link = format!("d{}/z{n}", n % DIRECTORIES);
        for name in [Some(name(n)), (n % LINKED == 0).then_some(link)].into_iter().flatten() {
            let expected = content(n);
            let is_there = fs::read(brick.join(&name)).is_ok_and(|found| found == expected);
            left += u64::from(is_there);
            if !is_there {
                let found = fs::read(volume.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(found == expected, "{name} is neither on the brick nor whole in the volume");
            }
        }
    }
    left
}

/// How many names of files a brick has; directories that went have none.
fn names_on(brick: &Path) -> u64 {
    let entries = |n| fs::read_dir(brick.join(format!("d{n}"))).map_or(0, Iterator::count);
    (0..DIRECTORIES).map(|n| entries(n) as u64).sum()
}

fn import(brick: &Path, volume: &Path) -> Run {
    shoal().arg("import").arg("brick").arg(brick).arg("--to").arg(volume).arg("--move")
}

#[test]
fn move_that_is_killed_loses_no_file_and_goes_on() {
    if plain() {
        return;
    }
    let seed = seed();
    let mut random = Random::new(seed);
    let mut volume = Volume::start("moves");
    let brick = volume.local().join("brick");
    make_brick(&brick);
    let names = check(&brick, volume.path());

    let refused = import(&brick, volume.path()).outcome();
    assert!(refused.stderr.contains("say -y"), "{refused}");
    let dry = import(&brick, volume.path()).arg("--dry-run").ok();
    assert!(dry.contains("would be freed"), "{dry}");
    assert_eq!(check(&brick, volume.path()), names);

    for _ in 0..if long() { KILLS_LONG } else { KILLS } {
        let goal = names_on(&brick).saturating_sub(random.below(FREED));
        let running = import(&brick, volume.path()).arg("-y").start();
        let begun = Instant::now();
        while names_on(&brick) > goal && begun.elapsed() < RUN_MAX {
            thread::sleep(Duration::from_millis(2));
        }
        let kills_server = random.one_in(SERVER_KILLS);
        if kills_server {
            volume.kill();
        }
        // Killed with -9.
        drop(running);
        if kills_server {
            volume.restart();
        }
        let left = check(&brick, volume.path());
        eprintln!("SHOAL_TEST_SEED={seed}: {left} of {names} names are left on the brick");
    }
    let done = import(&brick, volume.path()).arg("-y").ok();
    assert!(done.contains("Freed ") && done.contains(" 0 names of files are left there"), "{done}");
    assert_eq!(check(&brick, volume.path()), 0);
    assert!(!brick.join("d0").exists());
    for n in (0..FILES).step_by(LINKED as usize) {
        let stat = fs::metadata(volume.path().join(name(n))).expect("it is there");
        assert_eq!(stat.nlink(), 2, "{}", name(n));
    }
    volume.stop();
    volume.fsck();
}
