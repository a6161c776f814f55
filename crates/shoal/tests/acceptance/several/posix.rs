//! `pjdfstest` on one mount, while another one walks through everything that it creates. So every right of
//! the first mount is recalled again and again.

use crate::harness::{Meanwhile, Shared, plain, volume};
use crate::pjdfstest::{Suite, place};
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pause between two walks. A small pause leaves the suite some time on two cores; most of its files are
/// still visited.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes read of each file. The suite makes huge ones with holes.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Lists, stats and reads everything, and returns how many files that were. A file that has vanished is no
/// error.
fn walk(dir: &Path) -> u64 {
    let mut seen = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        seen += 1;
        if meta.is_dir() {
            seen += walk(&path);
        } else if meta.is_symlink() {
            drop(fs::read_link(&path));
        } else if meta.is_file() {
            // A fifo may have taken the name: never wait for its other end.
            let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
            let mut content = Vec::new();
            drop(file.map(|file| file.take(READ_BYTES_MAX).read_to_end(&mut content)));
        }
    }
    seen
}

#[test]
fn the_posix_test_suite_passes_while_another_mount_walks_through_its_files() {
    // A short topic: the address of a socket is at most 107 bytes.
    let shared = Shared::start("posix", 2);
    let elsewhere = volume::scratch("posix-elsewhere");
    let second = if plain() { Path::new("/dev/shm") } else { elsewhere.path() };
    let place = place(shared.path(0));
    let seen = Arc::new(AtomicU64::new(0));
    let (counter, top) = (Arc::clone(&seen), shared.path(1).to_owned());
    let walker = Meanwhile::again_and_again(move || {
        counter.fetch_add(walk(&top), Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    });
    Suite { place: &place, second, scratch: elsewhere.path() }.passes(&[], include_str!("../pjdfstest.toml"));
    let (rounds, seen) = (walker.rounds(), seen.load(Ordering::Relaxed));
    println!("{rounds} walks met {seen} names");
    assert!(seen > rounds, "{rounds} walks met only {seen} names");
    shared.finish();
}
