//! `fsx` on one file through several mounts: its path is a symlink that leads to one mount and then to the next, and every few operations
//! it opens the file again. So what one mount has written another one verifies.

use crate::harness::{Meanwhile, Shared, long, run, seed, tool};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// How long the path leads to one mount. A few operations take that long.
const TURN: Duration = Duration::from_millis(3);
const OPERATIONS: u64 = 2_000;
const OPERATIONS_LONG: u64 = 100_000;

/// Everything at once, in a file that stays small enough to be kept inline in part.
const SMALL: &str = "flen = 262144
[opsize]
max = 65536
[weights]
close_open = 15
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 0.1
fdatasync = 0.1
posix_fallocate = 2
punch_hole = 4
sendfile = 3
posix_fadvise = 2
copy_file_range = 4
";

/// A file of many blocks, with large records.
const LARGE: &str = "flen = 20971520
[opsize]
max = 3000000
[weights]
close_open = 15
read = 10
write = 10
mapread = 4
mapwrite = 4
truncate = 2
fsync = 0.1
posix_fallocate = 2
punch_hole = 4
sendfile = 2
copy_file_range = 4
";

/// Lets a symlink lead to each of some files in turn. Returns how often it was turned.
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
    let volume = Shared::start(&format!("several-fsx-{topic}"), 3);
    let local = volume.local();
    let config = local.join("fsx.toml");
    fs::write(&config, mix).expect("a configuration can be written");
    File::create(volume.path(0).join("file")).expect("a file can be made");
    let files: Vec<_> = (0..3).map(|mount| volume.path(mount).join("file")).collect();
    let link = local.join("link");
    let operations = if long() { OPERATIONS_LONG } else { OPERATIONS } / share;
    // The third mount only reads, so that there is always somebody to be told.
    let watched = files[2].clone();
    let reader = Meanwhile::again_and_again(move || drop(fs::read(&watched).expect("the file can be read")));
    let (outcome, turns) = turning(&link, &files[..2], || {
        let fsx = run(tool("fsx")).arg("-q").arg("-f").arg(&config).arg("-P").arg(&local);
        let fsx = fsx.arg("-S").arg(seed().to_string()).arg("-N").arg(operations.to_string());
        fsx.arg(&link).limit(if long() { 7200 } else { 600 }).outcome()
    });
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
    // Each operation moves hundreds of times the bytes.
    exercise("large", LARGE, 6);
}
