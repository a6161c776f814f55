//! `fsx` on one file through several mounts. Its path is a symlink that leads to one mount and then to the
//! next, and fsx reopens the file every few operations. So what was written through one mount is verified
//! through another.

use crate::fsx::{LARGE, SMALL, configure, fsx};
use crate::harness::{Meanwhile, Shared, long, seed};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// How long the symlink leads to one mount. A few operations take that long.
const TURN: Duration = Duration::from_millis(3);
const OPERATIONS: u64 = 2_000;
const OPERATIONS_LONG: u64 = 100_000;

/// The weight with which the file is reopened, through another mount.
const REOPENS: u32 = 15;

/// Points a symlink to each target in turn. Returns how often it was moved.
fn turning<T>(link: &Path, targets: &[std::path::PathBuf], work: impl FnOnce() -> T) -> (T, u64) {
    let next = link.with_extension("next");
    let (link, targets) = (link.to_owned(), targets.to_vec());
    let turn = move |target: &Path| {
        symlink(target, &next).expect("a symlink can be made");
        fs::rename(&next, &link).expect("it can replace another one");
    };
    turn(&targets[0]);
    let mut turns = targets.into_iter().cycle();
    let meanwhile = Meanwhile::again_and_again(move || {
        std::thread::sleep(TURN);
        turn(&turns.next().expect("there are targets"));
    });
    let done = work();
    (done, meanwhile.rounds())
}

fn exercise(topic: &str, mix: &str, share: u64) {
    // fsx opens the file on one mount before it has closed it on the other, and maps it: with locks=cluster
    // one of the mappings is refused.
    let volume = Shared::start_with(&format!("several-fsx-{topic}"), 3, "locks=local");
    let local = volume.local();
    let config = configure(&local, mix, REOPENS);
    File::create(volume.path(0).join("file")).expect("a file can be made");
    let files: Vec<_> = (0..3).map(|mount| volume.path(mount).join("file")).collect();
    let link = local.join("link");
    let operations = if long() { OPERATIONS_LONG } else { OPERATIONS } / share;
    // The third mount only reads, so that there is always a cache to invalidate.
    let watched = files[2].clone();
    let reader = Meanwhile::again_and_again(move || drop(fs::read(&watched).expect("the file can be read")));
    let (outcome, turns) =
        turning(&link, &files[..2], || fsx(&config, &local, seed(), operations).arg(&link).outcome());
    outcome.ok();
    assert!(reader.rounds() > 0 && turns > 10, "only {turns} turns");
    let contents: Vec<Vec<u8>> =
        files.iter().map(|file| fs::read(file).expect("the file can be read")).collect();
    assert!(contents.iter().all(|content| content == &contents[0]), "the mounts show different bytes");
    volume.finish();
}

#[test]
fn fsx_finds_nothing_though_it_opens_its_file_on_one_mount_and_then_on_another() {
    exercise("small", SMALL, 1);
}

#[test]
fn fsx_finds_nothing_in_a_file_of_many_blocks_on_one_mount_and_then_on_another() {
    // Each operation moves hundreds of times as many bytes.
    exercise("large", LARGE, 6);
}
