//! Warm caches: content that was read once is read again without a request to the file system's process.

use crate::harness::volume::shoal;
use crate::harness::{Volume, plain, sh};
use std::fs;

const FILES: usize = 10_000;
const FILES_PER_DIR: usize = 100;
const FILE_BYTES: usize = 20 << 10;
/// Requests that a warm run over all files may still cause: statistics and background requests.
const REQUESTS_MAX: u64 = 100;
const TRIES: u32 = 5;

fn kernel_requests(volume: &Volume) -> u64 {
    let json = shoal().arg("stats").arg(volume.path()).arg("--json").ok();
    let stats: serde_json::Value = serde_json::from_str(&json).expect("stats --json prints JSON");
    stats["kernel_requests"].as_u64().expect("kernel_requests is a number")
}

/// The fewest requests that an action causes, of a few tries. The kernel may reclaim cached entries at any
/// time and look them up again. And read-ahead that ends after a program has closed the file invalidates its
/// access time (`fuse_invalidate_atime`).
fn fewest_requests(volume: &Volume, action: impl Fn()) -> u64 {
    let requests = |_| {
        let before = kernel_requests(volume);
        action();
        kernel_requests(volume) - before
    };
    (0..TRIES).map(requests).min().unwrap_or(0)
}

#[test]
fn a_second_tar_of_ten_thousand_files_sends_nothing() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("warm");
    for number in 0..FILES {
        let dir = volume.path().join(format!("dir-{}", number / FILES_PER_DIR));
        if number % FILES_PER_DIR == 0 {
            fs::create_dir(&dir).expect("mkdir");
        }
        fs::write(dir.join(format!("file-{number}")), vec![number as u8; FILE_BYTES]).expect("write");
    }
    volume.remount();
    let read_all =
        || sh(volume.path(), "tar cf - . | cat | wc -c").ok().trim().parse::<usize>().expect("a count");
    let before = kernel_requests(&volume);
    let first = read_all();
    let cold = kernel_requests(&volume) - before;
    assert!(first >= FILES * FILE_BYTES);
    assert!(cold >= (FILES / FILES_PER_DIR) as u64, "the first run must ask: {cold} requests");
    let read_again = || assert_eq!(read_all(), first);
    let warm = fewest_requests(&volume, read_again);
    assert!(warm <= REQUESTS_MAX, "each further run caused {warm} requests or more, the first {cold}");

    // Stat calls and listings as well, and names that do not exist.
    let look = || {
        sh(
            volume.path(),
            "find . -newer nothing 2>/dev/null; find . -type f -size +1k | wc -l; ls -lR >/dev/null",
        )
        .outcome()
    };
    drop(look());
    let warm = fewest_requests(&volume, || drop(look()));
    assert!(warm <= REQUESTS_MAX, "looking again caused {warm} requests or more each time");
}
