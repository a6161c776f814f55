//! `fsx`: random operations on one file, every read compared with the expected content.

use crate::harness::{Run, Volume, long, plain, run, seed, tool};
use std::fs;
use std::path::{Path, PathBuf};

/// Operations per mix in a normal run and in a long one. Together over 100,000 in either.
const OPERATIONS: u64 = 9_000;
const OPERATIONS_LONG: u64 = 100_000;
/// Seeds per mix.
const SEEDS: u64 = 3;
const SEEDS_LONG: u64 = 8;

/// A mix of all operations, in a file that stays small enough to be kept inline in part.
pub const SMALL: &str = "flen = 262144
[opsize]
max = 65536
[weights]
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
pub const LARGE: &str = "flen = 20971520
[opsize]
max = 3000000
[weights]
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

/// Without mmap, as most programs work: small records at unaligned offsets.
const PLAIN: &str = "flen = 1048576
[opsize]
max = 5000
[weights]
read = 10
write = 20
mapread = 0
mapwrite = 0
truncate = 3
fsync = 0.1
posix_fallocate = 1
punch_hole = 3
copy_file_range = 3
";

/// Aligned records, as databases write them. Without fallocate, because fsx itself sometimes passes a length
/// of 0.
const ALIGNED: &str = "flen = 4194304
[opsize]
max = 65536
min = 4096
align = 4096
[weights]
read = 10
write = 20
mapread = 5
mapwrite = 5
truncate = 1
fsync = 0.2
fdatasync = 0.2
punch_hole = 3
copy_file_range = 3
";

/// Writes the configuration of a mix, in which the file is reopened with this weight.
pub fn configure(local: &Path, mix: &str, reopens: u32) -> PathBuf {
    let config = local.join("fsx.toml");
    fs::write(&config, format!("{mix}close_open = {reopens}\n")).expect("a configuration can be written");
    config
}

/// `fsx` with this many operations; the file is still to be passed.
pub fn fsx(config: &Path, local: &Path, seed: u64, operations: u64) -> Run {
    let fsx = run(tool("fsx")).arg("-q").arg("-f").arg(config).arg("-P").arg(local);
    let fsx = fsx.arg("-S").arg(seed.to_string()).arg("-N").arg(operations.to_string());
    fsx.limit(if long() { 7200 } else { 600 })
}

fn exercise(topic: &str, mix: &str, share: u64) {
    let mut volume = Volume::start(&format!("fsx-{topic}"));
    let local = volume.local();
    let config = configure(&local, mix, 1);
    let (seeds, operations) = if long() { (SEEDS_LONG, OPERATIONS_LONG) } else { (SEEDS, OPERATIONS) };
    let first = seed();
    let runs: Vec<_> = (first..first + seeds)
        .map(|seed| {
            let file = volume.path().join(format!("file-{seed}"));
            fsx(&config, &local, seed, operations / share).arg(file).start()
        })
        .collect();
    for run in runs {
        run.wait().ok();
    }
    if !plain() {
        volume.stop();
        volume.fsck();
    }
}

#[test]
fn fsx_finds_nothing_with_every_kind_of_operation() {
    exercise("small", SMALL, 1);
}

#[test]
fn fsx_finds_nothing_in_files_of_many_blocks() {
    // Each operation moves hundreds of times as many bytes.
    exercise("large", LARGE, 6);
}

#[test]
fn fsx_finds_nothing_with_small_records_and_no_mmap() {
    exercise("plain", PLAIN, 1);
}

#[test]
fn fsx_finds_nothing_with_aligned_records() {
    exercise("aligned", ALIGNED, 1);
}
