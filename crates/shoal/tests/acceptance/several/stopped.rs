//! A mount's process is stopped for so long that the other mount continues without it.

use crate::harness::{Shared, plain};
use crate::mmap::Mapping;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// An answer from a cache comes within this time.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Longest wait for a mount that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a call on a thread of its own, because it may block. Sends the result as text, or `None` if it
/// failed.
fn look<T: std::fmt::Debug>(
    what: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Receiver<Option<String>> {
    let (tell, seen) = channel();
    std::thread::spawn(move || tell.send(what().ok().map(|seen| format!("{seen:?}"))));
    seen
}

fn names(dir: &Path) -> std::io::Result<usize> {
    fs::read_dir(dir)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

/// Waits until a mount whose session was ended works again.
fn wait_for_content(path: &Path, content: &[u8]) {
    let begun = Instant::now();
    while fs::read(path).ok().as_deref() != Some(content) {
        assert!(begun.elapsed() < PATIENCE, "the mount does not work again");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn stopped_mount_shows_no_stale_data_once_its_session_has_ended() {
    if plain() {
        return;
    }
    let shared = Shared::start("stopped", 2);
    let (one, other) = (shared.path(0), shared.path(1).to_owned());
    fs::create_dir(one.join("dir")).expect("mkdir");
    for name in ["file", "mapped", "gone", "dir/one"] {
        fs::write(one.join(name), "old").expect("written");
    }
    let listed = || (names(&other.join("dir")).expect("listed"), fs::read(other.join("file")).expect("read"));
    assert_eq!((listed(), listed()), ((1, b"old".into()), (1, b"old".into())));
    fs::metadata(other.join("gone")).expect("there");
    assert!(!other.join("new").exists());
    let open = File::open(other.join("file")).expect("opens");
    let mapped = File::options().read(true).write(true).open(other.join("mapped")).expect("opens");
    let mapping = Mapping::of(&mapped, 3, libc::MAP_SHARED);
    drop(mapped);
    // Its close sends a FLUSH, unlike that of a file that is open for reading.
    let written = File::options().write(true).open(other.join("file")).expect("opens");
    assert_eq!(fs::read(other.join("mapped")).expect("read"), b"old");
    assert!(mapping.is_there());
    let dir = File::open(other.join("dir")).expect("opens");

    // Declared last: it is dropped first if the test fails, and files of the mount can be closed.
    let stopped = shared.stop(1);
    // The child inherits the open files. execve(2) closes them, and their FLUSH is not answered. Links of its
    // /proc directory cannot be read meanwhile, which must not hold up the guard.
    let child = std::thread::spawn(|| Command::new("true").status());
    let begun = Instant::now();
    for name in ["file", "mapped"] {
        fs::write(one.join(name), "newer").expect("written");
    }
    fs::write(one.join("new"), "").expect("written");
    fs::remove_file(one.join("gone")).expect("removed");
    fs::remove_file(one.join("dir/one")).expect("removed");
    println!("the other mount went on after {:?}", begun.elapsed());
    let path = |name: &str| -> PathBuf { other.join(name) };
    let (by_name, gone, new, listing) = (path("file"), path("gone"), path("new"), path("dir"));
    let through = open.try_clone().expect("doubled");
    let looks = [
        ("content by name", look(move || fs::read(by_name))),
        ("content of an open file", look(move || open.read_at(&mut [0; 3], 0))),
        ("the size of an open file", look(move || through.metadata().map(|seen| seen.len()))),
        ("a name that is gone", look(move || fs::metadata(gone).map(|seen| seen.len()))),
        ("a name that is new", look(move || fs::metadata(new).map(|seen| seen.len()))),
        ("a listing", look(move || names(&listing))),
        ("an open directory", look(move || dir.metadata().map(|seen| seen.len()))),
    ];
    std::thread::sleep(AT_ONCE);
    for (what, seen) in &looks {
        let seen = seen.try_recv();
        assert!(seen.is_err(), "{what} was shown: {seen:?}");
    }
    assert!(!mapping.is_there(), "a mapping shows what was");

    assert!(!child.is_finished(), "the program does not wait for the stopped mount");
    drop(stopped);
    assert!(child.join().expect("no panic").expect("a status").success());
    drop(written);
    for (what, seen) in looks {
        let seen = seen.recv_timeout(PATIENCE);
        assert_ne!(seen, Err(RecvTimeoutError::Timeout), "{what} hangs");
    }
    wait_for_content(&path("file"), b"newer");
    assert_eq!(names(&path("dir")).expect("listed"), 0);
    assert!(path("new").exists() && !path("gone").exists());
    drop(mapping);
    shared.finish();
}
