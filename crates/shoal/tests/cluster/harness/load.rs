//! A load whose every acknowledged byte is verified afterwards.
//!
//! Several threads work on files of their own, each in its own way. Each thread remembers outside of the
//! volume what was acknowledged as durable, and all of it can be compared at any time. No call may fail, and
//! the longest one is measured.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    longest_ms: Arc<AtomicU64>,
    rounds: Arc<AtomicU64>,
    workers: Vec<JoinHandle<Known>>,
}

/// Files and digests of their contents: length, and the seed of the bytes.
type Known = BTreeMap<PathBuf, (u64, u64)>;

/// Files that a thread keeps; beyond it the oldest is removed.
const FILES_MAX: usize = 60;
const SMALL_BYTES: u64 = 9000;
const LARGE_BYTES: u64 = 9 << 20;

/// Bytes that are derived from a seed.
pub fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(len as usize + 8);
    while (out.len() as u64) < len {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        out.extend_from_slice(&(state >> 16).to_le_bytes());
    }
    out.truncate(len as usize);
    out
}

struct Worker {
    dir: PathBuf,
    number: u64,
    known: Known,
    order: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
    longest_ms: Arc<AtomicU64>,
    rounds: Arc<AtomicU64>,
}

impl Load {
    /// Begins in a new directory of a mounted volume.
    pub fn start(mount: &Path, name: &str) -> Load {
        let dir = mount.join(name);
        fs::create_dir(&dir).expect("the load's directory");
        let mut load = Load {
            stop: Arc::default(),
            longest_ms: Arc::default(),
            rounds: Arc::default(),
            workers: Vec::new(),
        };
        let begin = |number: u64| {
            let worker = Worker {
                dir: dir.join(format!("w{number}")),
                number,
                known: Known::new(),
                order: Vec::new(),
                stop: load.stop.clone(),
                longest_ms: load.longest_ms.clone(),
                rounds: load.rounds.clone(),
            };
            std::thread::spawn(move || worker.run())
        };
        load.workers = (0..4).map(begin).collect();
        load
    }

    /// Waits until `rounds` more rounds were done.
    pub fn advance(&self, rounds: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + rounds;
        let until = Instant::now() + Duration::from_secs(120);
        while self.rounds.load(Ordering::Relaxed) < goal {
            if self.workers.iter().any(JoinHandle::is_finished) {
                panic!("a worker of the load has given up");
            }
            assert!(Instant::now() < until, "the load stands still: no {rounds} rounds in two minutes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Rounds done.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Ends it and returns what must be there, and the duration of the longest call.
    pub fn stop(mut self) -> (Expected, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let workers = std::mem::take(&mut self.workers);
        let known = workers.into_iter().flat_map(|worker| worker.join().expect("no call may fail"));
        (Expected(known.collect()), Duration::from_millis(self.longest_ms.load(Ordering::Relaxed)))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The files that must be there.
pub struct Expected(Known);

impl Expected {
    /// Compares all of them.
    pub fn check(&self) {
        for (path, (len, seed)) in &self.0 {
            let found = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(
                found == pattern(*seed, *len),
                "{}: {} bytes that are not the {len} written",
                path.display(),
                found.len()
            );
        }
        assert!(!self.0.is_empty());
    }
}

impl Worker {
    fn run(mut self) -> Known {
        self.timed("mkdir", |dir| fs::create_dir(dir));
        let mut round = 0;
        while !self.stop.load(Ordering::Relaxed) {
            round += 1;
            let seed = self.number << 32 | round;
            match self.number {
                0 => self.replace(round, seed),
                1 => self.append(round, seed),
                2 => self.large(round, seed),
                _ => self.read_back(round, seed),
            }
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        self.known
    }

    /// Runs a call, which must not fail, and records its duration.
    fn timed<T>(&self, what: &str, call: impl FnOnce(&Path) -> std::io::Result<T>) -> T {
        let begun = Instant::now();
        let outcome = call(&self.dir);
        self.longest_ms.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        outcome.unwrap_or_else(|error| panic!("{what} in {}: {error}", self.dir.display()))
    }

    /// A new file is renamed over an old one, as editors do.
    fn replace(&mut self, round: u64, seed: u64) {
        let (path, new) = (self.dir.join(format!("doc{}", round % 7)), self.dir.join("doc.new"));
        let len = seed % SMALL_BYTES;
        let mut file = self.timed("create", |_| File::create(&new));
        self.timed("write", |_| file.write_all(&pattern(seed, len)));
        self.timed("fsync", |_| file.sync_all());
        self.timed("rename", |_| fs::rename(&new, &path));
        self.timed("fsync of the directory", |dir| File::open(dir)?.sync_all());
        self.remember(path, len, seed);
    }

    /// A log is appended to, each part synced.
    fn append(&mut self, round: u64, seed: u64) {
        let seed = seed - round % 20;
        let path = self.dir.join(format!("log{}", round / 20));
        let whole = pattern(seed, SMALL_BYTES);
        let (from, to) = ((round % 20) * SMALL_BYTES / 20, (round % 20 + 1) * SMALL_BYTES / 20);
        let mut options = File::options();
        let file = self.timed("open", |_| options.create(true).append(true).open(&path));
        self.timed("append", |_| (&file).write_all(&whole[from as usize..to as usize]));
        self.timed("fdatasync", |_| file.sync_data());
        if round >= 20 {
            self.remember(path, to, seed);
        }
    }

    /// Large files, in blocks.
    fn large(&mut self, round: u64, seed: u64) {
        let path = self.dir.join(format!("video{}", round % 3));
        let len = LARGE_BYTES + seed % 4096;
        let bytes = pattern(seed, len);
        self.known.remove(&path);
        let file = self.timed("create", |_| File::create(&path));
        for (at, part) in bytes.chunks(1 << 20).enumerate() {
            self.timed("write", |_| file.write_all_at(part, (at as u64) << 20));
        }
        self.timed("fsync", |_| file.sync_all());
        self.remember(path, len, seed);
        self.verify(round);
    }

    /// Small files are created, read, and removed.
    fn read_back(&mut self, round: u64, seed: u64) {
        let path = self.dir.join(format!("small{round}"));
        let len = seed % (2 * SMALL_BYTES);
        let mut file = self.timed("create", |_| File::create(&path));
        self.timed("write", |_| file.write_all(&pattern(seed, len)));
        if round.is_multiple_of(4) {
            self.timed("fsync", |_| file.sync_all());
        }
        self.remember(path, len, seed);
        self.verify(round);
        if self.order.len() > FILES_MAX {
            let old = self.order.remove(0);
            if self.known.remove(&old).is_some() {
                self.timed("unlink", |_| fs::remove_file(&old));
            }
        }
        self.timed("readdir", |dir| Ok(fs::read_dir(dir)?.count()));
    }

    fn remember(&mut self, path: PathBuf, len: u64, seed: u64) {
        if self.known.insert(path.clone(), (len, seed)).is_none() {
            self.order.push(path);
        }
    }

    /// Reads one of the files.
    fn verify(&self, round: u64) {
        let Some((path, (len, seed))) = self.known.iter().nth(round as usize * 7 % self.known.len().max(1))
        else {
            return;
        };
        let mut found = Vec::new();
        self.timed("read", |_| File::open(path)?.read_to_end(&mut found));
        assert!(found == pattern(*seed, *len), "{}: not what was written", path.display());
    }
}
