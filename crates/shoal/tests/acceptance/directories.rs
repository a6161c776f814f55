//! Directories of many names, listed while they change.

use crate::harness::{Random, Volume, long, seed, sh};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Entries that stay while further ones are created and removed.
const STABLE: usize = 100_000;
const STABLE_LONG: usize = 1_000_000;

#[test]
fn a_listing_shows_what_stays_exactly_once_while_the_directory_changes() {
    let mut volume = Volume::start("listing");
    let dir = volume.path().join("large");
    fs::create_dir(&dir).expect("mkdir");
    let stable = if long() { STABLE_LONG } else { STABLE };
    for number in 0..stable {
        fs::File::create_new(dir.join(format!("stable-{number}"))).expect("create");
    }
    let (done, dir) = (AtomicBool::new(false), dir.as_path());
    thread::scope(|scope| {
        for worker in 0..2u64 {
            let done = &done;
            scope.spawn(move || {
                let mut random = Random::new(seed() + worker);
                while !done.load(Ordering::Relaxed) {
                    let name = |n: u64| dir.join(format!("churn-{worker}-{n}"));
                    let path = name(random.below(0..5000));
                    match random.below(0..3) {
                        0 => drop(fs::write(&path, b"x")),
                        1 => drop(fs::rename(&path, name(random.below(0..5000)))),
                        _ => drop(fs::remove_file(&path)),
                    }
                }
            });
        }
        for _ in 0..4 {
            assert_eq!(list(dir).0, stable);
        }
        done.store(true, Ordering::Relaxed);
    });
    volume.remount();
    let (seen, others) = list(&volume.path().join("large"));
    assert_eq!(seen, stable);
    assert!(others <= 10_000);
    sh(volume.path(), "rm -rf large && test -z \"$(ls -A)\"").ok();
    volume.stop();
    volume.fsck();
}

/// Lists a directory and counts its stable and its other names. Panics if a stable one is listed twice.
fn list(dir: &Path) -> (usize, usize) {
    let mut seen: HashMap<OsString, u32> = HashMap::new();
    for entry in fs::read_dir(dir).expect("opendir") {
        *seen.entry(entry.expect("readdir").file_name()).or_default() += 1;
    }
    let is_stable = |name: &OsString| name.as_bytes().starts_with(b"stable-");
    for (name, count) in &seen {
        assert!(*count == 1 || !is_stable(name), "{name:?} was listed {count} times");
    }
    let stable = seen.keys().filter(|name| is_stable(name)).count();
    (stable, seen.len() - stable)
}

/// An open directory stream of the C library: the standard library does not expose positions.
struct Stream(*mut libc::DIR);

impl Stream {
    fn open(path: &Path) -> Stream {
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path");
        // SAFETY: the string ends with NUL and lives through the call.
        let stream = unsafe { libc::opendir(path.as_ptr()) };
        assert!(!stream.is_null(), "opendir: {}", std::io::Error::last_os_error());
        Stream(stream)
    }

    fn next(&mut self) -> Option<OsString> {
        // SAFETY: the stream is open; the entry is copied before the next call.
        unsafe {
            let entry = libc::readdir(self.0);
            if entry.is_null() {
                return None;
            }
            Some(OsString::from_vec(CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec()))
        }
    }

    fn position(&self) -> i64 {
        // SAFETY: the stream is open.
        unsafe { libc::telldir(self.0) }
    }

    fn seek(&mut self, position: i64) {
        // SAFETY: the stream is open, the position came from telldir of the same directory.
        unsafe { libc::seekdir(self.0, position) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open and is not used afterwards.
        unsafe { libc::closedir(self.0) };
    }
}

#[test]
fn a_position_in_a_listing_stays_valid_while_other_names_come_and_go() {
    let volume = Volume::start("telldir");
    for number in 0..2000 {
        fs::write(volume.path().join(format!("file-{number}")), b"").expect("create");
    }
    let mut stream = Stream::open(volume.path());
    let mut first = Vec::new();
    for _ in 0..1000 {
        first.push(stream.next().expect("there are 2002 entries"));
    }
    let position = stream.position();
    let rest: Vec<OsString> = std::iter::from_fn(|| stream.next()).collect();
    assert_eq!(first.len() + rest.len(), 2002);
    for name in first.iter().filter(|name| name.as_bytes().starts_with(b"file")).take(500) {
        fs::remove_file(volume.path().join(name)).expect("unlink");
    }
    stream.seek(position);
    let again: Vec<OsString> = std::iter::from_fn(|| stream.next()).collect();
    assert_eq!(again, rest, "the rest of the listing is the same, whatever happened before it");
}

#[test]
fn a_directory_can_be_emptied_while_it_is_listed() {
    let volume = Volume::start("empty-while-listing");
    let dir = volume.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    for number in 0..5000 {
        fs::write(dir.join(number.to_string()), b"").expect("create");
    }
    for entry in fs::read_dir(&dir).expect("opendir") {
        fs::remove_file(entry.expect("readdir").path()).expect("unlink");
    }
    fs::remove_dir(&dir).expect("one pass has removed everything");
}

#[test]
fn a_directory_in_use_can_be_removed_and_is_then_empty_for_good() {
    let volume = Volume::start("removed-dir");
    let dir = volume.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let script =
        "cd dir && rmdir ../dir && test -z \"$(ls -A)\" && ! touch file 2>/dev/null && ! test -e ../dir";
    sh(volume.path(), script).ok();
    let not_empty = volume.path().join("not-empty");
    fs::create_dir_all(not_empty.join("sub")).expect("mkdir");
    assert_eq!(fs::remove_dir(&not_empty).expect_err("not empty").raw_os_error(), Some(libc::ENOTEMPTY));
}
