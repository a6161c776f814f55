//! Files mapped into memory, by one process and by several.

use crate::harness::{Volume, plain, sys};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared mapping of a file's beginning.
pub struct Mapping {
    start: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    pub fn of(file: &File, len: usize, flags: i32) -> Mapping {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file; nothing else refers to that memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        assert!(start != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Mapping { start, len }
    }

    /// The words of the mapping; other processes change them, hence atomics.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `len` long and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len / 8) }
    }

    /// Whether the first page is in memory, so that reading it does not wait.
    pub fn is_there(&self) -> bool {
        let mut there = 0u8;
        // SAFETY: the call writes one byte for one page.
        let asked = unsafe { libc::mincore(self.start, 1, &raw mut there) };
        assert_eq!(asked, 0, "mincore: {}", std::io::Error::last_os_error());
        there & 1 == 1
    }

    fn sync(&self) {
        // SAFETY: exactly the mapping.
        let result = unsafe { libc::msync(self.start, self.len, libc::MS_SYNC) };
        assert_eq!(result, 0, "msync: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping, which has no users any more.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("open")
}

#[test]
fn two_processes_count_in_one_shared_mapping() {
    const TURNS: u64 = 20_000;
    let mut volume = Volume::start("mmap-shared");
    let path = volume.path().join("counter");
    let file = open(&path);
    file.set_len(1 << 20).expect("truncate");
    let mapping = Mapping::of(&file, 1 << 20, libc::MAP_SHARED);
    let far = mapping.words().len() - 1;
    let count = |words: &[AtomicU64]| {
        for turn in 0..TURNS {
            words[0].fetch_add(1, Ordering::SeqCst);
            words[far].fetch_add(2, Ordering::SeqCst);
            words[(turn as usize * 512) % far].fetch_or(1 << 63, Ordering::SeqCst);
        }
    };
    // SAFETY: the child touches only the mapping, which is its own copy of the pages, and leaves by _exit.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            count(mapping.words());
            // SAFETY: ends the child at once, as a forked child must.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            count(mapping.words());
            assert_eq!(waitpid(child, None).expect("wait"), WaitStatus::Exited(child, 0));
        }
    }
    mapping.sync();
    drop((mapping, file));
    let word = |number: usize| {
        let mut bytes = [0; 8];
        open(&path).read_exact_at(&mut bytes, number as u64 * 8).expect("read");
        u64::from_ne_bytes(bytes) & !(1 << 63)
    };
    assert_eq!((word(0), word(far)), (2 * TURNS, 4 * TURNS));
    volume.remount();
    let word = |number: usize| {
        let mut bytes = [0; 8];
        open(&volume.path().join("counter")).read_exact_at(&mut bytes, number as u64 * 8).expect("read");
        u64::from_ne_bytes(bytes) & !(1 << 63)
    };
    assert_eq!((word(0), word(far)), (2 * TURNS, 4 * TURNS));
}

#[test]
fn a_mapping_and_plain_reads_and_writes_see_each_other() {
    let volume = Volume::start("mmap-coherent");
    let file = open(&volume.path().join("file"));
    file.set_len(65536).expect("truncate");
    let mapping = Mapping::of(&file, 65536, libc::MAP_SHARED);
    for number in 0..200u64 {
        let word = (number as usize * 37) % 8192;
        mapping.words()[word].store(number + 1, Ordering::SeqCst);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, word as u64 * 8).expect("read");
        assert_eq!(u64::from_ne_bytes(bytes), number + 1, "a read misses what the mapping wrote");
        file.write_all_at(&(number + 1_000_000).to_ne_bytes(), word as u64 * 8).expect("write");
        assert_eq!(
            mapping.words()[word].load(Ordering::SeqCst),
            number + 1_000_000,
            "the mapping misses a write"
        );
    }
}

#[test]
fn a_private_mapping_leaves_the_file_alone() {
    let volume = Volume::start("mmap-private");
    let path = volume.path().join("file");
    fs::write(&path, vec![b'x'; 8192]).expect("write");
    let file = open(&path);
    let mapping = Mapping::of(&file, 8192, libc::MAP_PRIVATE);
    mapping.words()[100].store(0, Ordering::SeqCst);
    drop(mapping);
    assert_eq!(fs::read(&path).expect("read"), vec![b'x'; 8192]);
}

#[test]
fn a_mapping_outlives_the_descriptor_and_the_name() {
    let mut volume = Volume::start("mmap-unlinked");
    let path = volume.path().join("file");
    fs::write(&path, vec![1; 1 << 20]).expect("write");
    let file = open(&path);
    let mapping = Mapping::of(&file, 1 << 20, libc::MAP_SHARED);
    drop(file);
    fs::remove_file(&path).expect("unlink");
    for word in mapping.words() {
        assert_eq!(word.load(Ordering::SeqCst), 0x0101_0101_0101_0101);
        word.store(2, Ordering::SeqCst);
    }
    mapping.sync();
    assert_eq!(mapping.words()[77].load(Ordering::SeqCst), 2);
    drop(mapping);
    volume.stop();
    volume.fsck();
}

#[test]
fn running_program_cannot_be_written() {
    let volume = Volume::start("exec");
    let program = volume.path().join("sleep");
    // Copied by another process: a child that a concurrent test forks must not inherit a descriptor for
    // writing.
    crate::harness::sh(volume.path(), "cp /bin/sleep sleep").ok();
    let running = crate::harness::run(&program).arg("5").start();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let refused = sys::open(&program, libc::O_WRONLY, 0).expect_err("text file busy");
    assert_eq!(refused.0, libc::ETXTBSY);
    drop(running);
    if !plain() {
        crate::harness::run(&program).arg("0").ok();
    }
}
