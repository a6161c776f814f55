//! Several mounts at work in one directory. Each of their workers makes, renames, links, reads and removes
//! files of its own there, competes with the other workers for a few names, and looks at their files.
//!
//! Every content names its file, so that a reader can tell whether it is whole. What a worker has made must
//! be visible on every mount until that worker removes it. No call may fail, and the longest one is measured.
//! Only the workers of a mount that is to die end at their first error.

use super::load::pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Workers of each mount.
const WORKERS: usize = 2;
/// Files that a worker keeps.
const FILES_MAX: usize = 12;
const FILE_BYTES_MAX: u64 = 6000;
/// Names that all workers compete for.
const CONTENDED: u64 = 4;
/// One file of this many is synced.
const SYNC_EVERY: u64 = 6;
/// The load counts as hung when nothing was done for this long.
const STILL_MAX: Duration = Duration::from_secs(120);

/// The load.
pub struct Party {
    shared: Arc<Shared>,
    /// Indexed by mount.
    workers: Vec<Vec<JoinHandle<Outcome>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    longest_ms: AtomicU64,
    /// Indexed by mount.
    rounds: Vec<AtomicU64>,
}

/// What a worker has made and not removed: names, and whether they were synced.
type Known = BTreeMap<String, bool>;

/// What it has made, and the error it has ended with.
type Outcome = (Known, Option<Error>);

/// What the directory shows of each name: inode, length, links, ctime, and a digest of the content.
type Shown = BTreeMap<String, (u64, u64, u64, i64, Vec<u8>)>;

struct Worker {
    dir: PathBuf,
    mount: usize,
    number: usize,
    mortal: bool,
    known: Known,
    removed: BTreeSet<String>,
    shared: Arc<Shared>,
}

impl Party {
    /// Begins in a directory, which is created. The mounts in `mortal` are to die.
    pub fn start(mounts: &[&Path], name: &str, mortal: &[usize]) -> Party {
        fs::create_dir(mounts[0].join(name)).expect("the directory of all");
        let rounds = mounts.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { rounds, ..Shared::default() });
        let begin = |mount: usize, number: usize| {
            let worker = Worker {
                dir: mounts[mount].join(name),
                mount,
                number: mount * WORKERS + number,
                mortal: mortal.contains(&mount),
                known: Known::new(),
                removed: BTreeSet::new(),
                shared: shared.clone(),
            };
            std::thread::spawn(move || worker.run())
        };
        let workers =
            (0..mounts.len()).map(|mount| (0..WORKERS).map(|number| begin(mount, number)).collect());
        Party { workers: workers.collect(), shared }
    }

    /// Waits until each of these mounts has done `rounds` more rounds.
    pub fn advance(&self, mounts: &[usize], rounds: u64) {
        let done = |mount: usize| self.shared.rounds[mount].load(Ordering::Relaxed);
        let goals: Vec<u64> = mounts.iter().map(|mount| done(*mount) + rounds).collect();
        let until = Instant::now() + STILL_MAX;
        while mounts.iter().zip(&goals).any(|(mount, goal)| done(*mount) < *goal) {
            for mount in mounts {
                assert!(!self.workers[*mount].iter().any(JoinHandle::is_finished), "a worker has given up");
            }
            assert!(
                Instant::now() < until,
                "mounts {mounts:?} stand still: no {rounds} rounds in {STILL_MAX:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it. Returns what each mount's workers have made, and the duration of the longest call on the
    /// mounts that were not to die.
    pub fn stop(mut self) -> (Vec<Made>, Duration) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let made = std::mem::take(&mut self.workers).into_iter().map(|workers| {
            let mut made = Made { known: Known::new(), errors: Vec::new() };
            for worker in workers {
                let (known, error) = worker.join().expect("no call may fail, and none may be wrong");
                made.known.extend(known);
                made.errors.extend(error);
            }
            made
        });
        let made = made.collect();
        (made, Duration::from_millis(self.shared.longest_ms.load(Ordering::Relaxed)))
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// What the workers of a mount have made.
pub struct Made {
    known: Known,
    errors: Vec<Error>,
}

impl Made {
    /// Each of its workers has ended with this error.
    pub fn all_ended_with(&self, errno: i32) {
        assert_eq!(self.errors.len(), WORKERS, "{:?}", self.errors);
        let text = Error::from_raw_os_error(errno).to_string();
        assert!(self.errors.iter().all(|error| error.to_string().contains(&text)), "{:?}", self.errors);
    }

    /// All of it is there.
    pub fn is_in(&self, shown: &Shown) {
        self.all(shown, |_| true);
    }

    /// What was synced is there.
    pub fn synced_is_in(&self, shown: &Shown) {
        self.all(shown, |synced| synced);
    }

    fn all(&self, shown: &Shown, wanted: impl Fn(bool) -> bool) {
        for (name, _) in self.known.iter().filter(|(_, synced)| wanted(**synced)) {
            let Some((.., content)) = shown.get(name) else {
                panic!("{name} is gone: {:?}", shown.keys());
            };
            assert_eq!(file_of(content).as_deref(), name.get(4..), "{name} has another content");
        }
    }
}

/// Everything in a directory. Each file must be whole.
pub fn show(dir: &Path) -> Shown {
    let mut shown = Shown::new();
    for entry in fs::read_dir(dir).expect("the directory can be listed") {
        let entry = entry.expect("a listing goes on");
        let name = entry.file_name().into_string().expect("ours are ASCII");
        let meta = fs::symlink_metadata(entry.path()).expect("what is listed when all is quiet is there");
        let content = fs::read(entry.path()).expect("and can be read");
        let at = meta.ctime() * 1_000_000_000 + meta.ctime_nsec();
        let node = (meta.ino(), meta.size(), meta.nlink(), at, content);
        assert!(shown.insert(name.clone(), node).is_none(), "{name} is listed twice");
    }
    shown
}

/// A content that names its file: a line, and bytes derived from it.
fn content(worker: usize, round: u64) -> Vec<u8> {
    let mut bytes = format!("{worker}.{round}\n").into_bytes();
    let seed = (worker as u64) << 32 | round;
    bytes.extend(pattern(seed, (round * 7919 + worker as u64 * 613) % FILE_BYTES_MAX));
    bytes
}

/// The file of which this is the whole content.
fn file_of(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let title = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let (worker, round) = title.split_once('.')?;
    (content(worker.parse().ok()?, round.parse().ok()?) == bytes).then(|| title.to_owned())
}

/// A name may have been removed.
fn there<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

impl Worker {
    fn run(mut self) -> Outcome {
        for round in 0.. {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            match self.round(round) {
                Ok(()) => {}
                Err(error) if self.mortal => {
                    println!("worker {} of the mount that is to die ends with: {error}", self.number);
                    return (self.known, Some(error));
                }
                Err(error) => panic!("worker {} on mount {}: {error}", self.number, self.mount),
            }
            self.shared.rounds[self.mount].fetch_add(1, Ordering::Relaxed);
        }
        (self.known, None)
    }

    /// Runs a call and records its duration.
    fn timed<T>(
        &self,
        what: &str,
        name: &str,
        call: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let outcome = call(&self.dir.join(name));
        if !self.mortal {
            self.shared.longest_ms.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        outcome.map_err(|error| Error::new(error.kind(), format!("{what} of {name}: {error}")))
    }

    fn round(&mut self, round: u64) -> Result<(), Error> {
        let title = format!("{}.{round}", self.number);
        let (new, name, link) = (format!("new{title}"), format!("file{title}"), format!("link{title}"));
        let bytes = content(self.number, round);
        let synced = round.is_multiple_of(SYNC_EVERY);
        let mut file = self.timed("create", &new, |path| File::create_new(path))?;
        self.timed("write", &new, |_| file.write_all(&bytes))?;
        self.timed("rename", &new, |path| fs::rename(path, self.dir.join(&name)))?;
        if synced {
            self.timed("fsync", &name, |_| file.sync_all())?;
        }
        self.removed.insert(new);
        self.known.insert(name.clone(), synced);
        if round.is_multiple_of(3) {
            self.timed("link", &name, |path| fs::hard_link(path, self.dir.join(&link)))?;
            self.known.insert(link, false);
        }
        while self.known.len() > FILES_MAX {
            let old = self.known.keys().nth(round as usize % self.known.len()).cloned().unwrap_or_default();
            // From now on it may be gone, even if this mount does not live to get the reply.
            self.known.remove(&old);
            self.timed("unlink", &old, |path| fs::remove_file(path))?;
            self.removed.insert(old);
        }
        self.contend(round)?;
        self.look(round)
    }

    /// Renames a file of its own over a contended one, reads one, removes one.
    fn contend(&mut self, round: u64) -> Result<(), Error> {
        let (name, mine) = (format!("all{}", round % CONTENDED), format!("mine{}.{round}", self.number));
        let bytes = content(self.number, round);
        self.timed("write", &mine, |path| fs::write(path, &bytes))?;
        self.timed("rename", &mine, |path| fs::rename(path, self.dir.join(&name)))?;
        self.removed.insert(mine);
        let other = format!("all{}", (round / 3) % CONTENDED);
        if let Some(found) = self.timed("read", &other, |path| there(fs::read(path)))? {
            assert!(file_of(&found).is_some(), "{other} is not whole: {} bytes", found.len());
        }
        if round.is_multiple_of(5) {
            self.timed("unlink", &other, |path| there(fs::remove_file(path)))?;
        }
        Ok(())
    }

    /// The names that it has made are listed, those that it has removed are not, and a file of another worker
    /// has the content that belongs to its name.
    fn look(&self, round: u64) -> Result<(), Error> {
        let list = |path: &Path| fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect();
        let listed: Vec<std::ffi::OsString> = self.timed("readdir", "", list)?;
        let names: BTreeSet<String> = listed.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        assert_eq!(listed.len(), names.len(), "a name is listed twice: {listed:?}");
        if let Some(name) = self.known.keys().find(|name| !names.contains(*name)) {
            let there = fs::symlink_metadata(self.dir.join(name)).map(|meta| meta.ino());
            let again = fs::read_dir(&self.dir)?.flatten().any(|entry| entry.file_name() == **name);
            panic!(
                "in round {round} {name} of this worker is not listed; by name: inode {there:?}; listed now: {again}; it was {listed:?}"
            );
        }
        if let Some(name) = names.intersection(&self.removed).next() {
            panic!("{name} is listed, and this worker has removed it");
        }
        let ours = |name: &&String| name.starts_with("file") || name.starts_with("link");
        let theirs: Vec<&String> = names.iter().filter(ours).collect();
        let Some(name) = theirs.get(round as usize * 31 % theirs.len().max(1)) else { return Ok(()) };
        let mine = self.known.contains_key(*name);
        match self.timed("read", name, |path| there(fs::read(path)))? {
            Some(found) => {
                assert_eq!(file_of(&found).as_deref(), name.get(4..), "{name} has another content")
            }
            None => assert!(!mine, "{name} of this worker is not there"),
        }
        Ok(())
    }
}
