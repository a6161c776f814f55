//! Disks that lose data: what was written and not flushed may be lost when the machine dies, in part and in
//! pieces.
//!
//! **Model.** A directory of files in memory. Writes and changes of names are kept beside the durable state
//! until they are flushed. At a crash a random choice for each write decides whether all of it, some of its
//! sectors or nothing has reached the disk. Changes of names reach it in their order, up to a random point.

use crate::scheduler::Scheduler;
use shoal_runtime::time::Duration;
use shoal_store::log::disk::{Disk, DiskFile, Opener};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Marks a directory whose files are in memory. Without the mark it is a new directory of the same name.
const MARK: &str = "files-are-in-memory";
/// Bytes that reach a disk atomically.
const SECTOR_BYTES: usize = 512;
/// Longest time of a flush, in microseconds ...
const SYNC_US_MAX: u64 = 1_500;
/// ... except for one flush in this many ...
const SLOW_SYNC_ONE_OF: u32 = 150;
/// ... which takes up to this long.
const SLOW_SYNC_US_MAX: u64 = 120_000;

#[derive(Default, Clone)]
struct File {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Writes and lengths that were not flushed, in order.
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    Len(usize),
}

fn carry_out(bytes: &mut Vec<u8>, what: &Pending) {
    match what {
        Pending::Write(at, written) => {
            let end = at + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at..end].copy_from_slice(written);
        }
        Pending::Len(len) => bytes.resize(*len, 0),
    }
}

#[derive(Default)]
struct Dir {
    files: Vec<File>,
    current: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    /// Names after each change that was not flushed.
    pending: Vec<BTreeMap<String, usize>>,
    /// Handles from before a crash are invalid.
    generation: u64,
    fault: DiskFault,
}

/// The fault of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DiskFault {
    /// No fault.
    #[default]
    None,
    /// Flushes fail, after a part may have reached the disk.
    FailsToSync,
    /// The disk is full.
    Full,
    /// Every flush takes long.
    Slow,
}

/// The disks of a world, by directory. They are used on one thread; the locks are there because files must be
/// `Send`.
#[derive(Default, Clone)]
pub struct Disks {
    dirs: Arc<parking_lot::Mutex<BTreeMap<PathBuf, Shared>>>,
}

type Shared = Arc<parking_lot::Mutex<Dir>>;

struct SimDisk {
    dir: Shared,
    generation: u64,
}

struct SimFile {
    dir: Shared,
    generation: u64,
    file: usize,
}

fn dead() -> io::Error {
    io::Error::other("the machine has died")
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, name)
}

thread_local! {
    /// The world of this thread, for the time that flushes take.
    static WORLD: RefCell<Option<Rc<Scheduler>>> = const { RefCell::new(None) };
}

impl Disks {
    /// From now on logs on this thread are opened on these disks.
    pub fn install(&self, world: &Rc<Scheduler>) {
        WORLD.set(Some(world.clone()));
        let disks = self.clone();
        let opener: Opener = Rc::new(move |dir: &Path| {
            if !dir.exists() {
                return Err(missing("directory"));
            }
            let mut dirs = disks.dirs.lock();
            // Directories are removed and made outside of this module.
            let mark = dir.join(MARK);
            if !mark.exists() {
                std::fs::write(mark, [])?;
                dirs.remove(dir);
            }
            let dir = dirs.entry(dir.to_owned()).or_default().clone();
            let generation = dir.lock().generation;
            Ok(Box::new(SimDisk { dir, generation }) as Box<dyn Disk>)
        });
        shoal_store::log::disk::replace(Some(opener));
    }

    /// From now on logs on this thread are opened on real disks.
    pub fn uninstall() {
        WORLD.set(None);
        shoal_store::log::disk::replace(None);
    }

    /// Sets the fault of the disk whose directories lie below this one.
    pub fn set_fault(&self, below: &Path, fault: DiskFault) {
        for (_, dir) in self.dirs.lock().iter().filter(|(path, _)| path.starts_with(below)) {
            dir.lock().fault = fault;
        }
    }

    /// Crashes the machine whose directories lie below this one.
    pub fn crash(&self, below: &Path, world: &Scheduler) {
        let dirs = self.dirs.lock();
        for (_, dir) in dirs.iter().filter(|(path, _)| path.starts_with(below)) {
            let mut dir = dir.lock();
            dir.generation += 1;
            dir.fault = DiskFault::None;
            let kept = world.below(dir.pending.len() as u64 + 1) as usize;
            let last = dir.pending.drain(..).take(kept).next_back();
            if let Some(names) = last {
                dir.durable = names;
            }
            dir.current = dir.durable.clone();
            for file in &mut dir.files {
                for what in std::mem::take(&mut file.pending) {
                    tear(&mut file.durable, &what, world);
                }
                file.current = file.durable.clone();
            }
        }
    }
}

/// Applies what a crash leaves of a write.
fn tear(durable: &mut Vec<u8>, what: &Pending, world: &Scheduler) {
    match (what, world.below(3)) {
        (_, 0) => carry_out(durable, what),
        (Pending::Write(at, bytes), 1) => {
            for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if world.below(2) == 0 {
                    carry_out(durable, &Pending::Write(at + number * SECTOR_BYTES, sector.to_vec()));
                }
            }
        }
        _ => {}
    }
}

impl SimDisk {
    fn with<T>(&self, act: impl FnOnce(&mut Dir) -> io::Result<T>) -> io::Result<T> {
        let mut dir = self.dir.lock();
        if dir.generation != self.generation {
            return Err(dead());
        }
        act(&mut dir)
    }

    fn change(&self, change: impl FnOnce(&mut Dir) -> io::Result<()>) -> io::Result<()> {
        self.with(|dir| {
            change(dir)?;
            let names = dir.current.clone();
            dir.pending.push(names);
            Ok(())
        })
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.with(|dir| Ok(dir.current.keys().cloned().collect()))
    }

    fn open(&self, name: &str, create_new: bool) -> io::Result<Box<dyn DiskFile>> {
        if create_new {
            self.change(|dir| {
                dir.files.push(File::default());
                let number = dir.files.len() - 1;
                match dir.current.insert(name.to_owned(), number) {
                    None => Ok(()),
                    Some(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, name)),
                }
            })?;
        }
        let file = self.with(|dir| dir.current.get(name).copied().ok_or_else(|| missing(name)))?;
        Ok(Box::new(SimFile { dir: self.dir.clone(), generation: self.generation, file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(|dir| {
            let file = dir.current.remove(from).ok_or_else(|| missing(from))?;
            dir.current.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|dir| dir.current.remove(name).map(drop).ok_or_else(|| missing(name)))
    }

    fn sync(&self) -> io::Result<()> {
        pass_time(&self.dir)?;
        self.with(|dir| {
            dir.durable = dir.current.clone();
            dir.pending.clear();
            Ok(())
        })
    }
}

/// Lets the time of a flush pass; it may fail.
fn pass_time(dir: &Shared) -> io::Result<()> {
    let Some(world) = WORLD.with_borrow(Clone::clone) else { return Ok(()) };
    let slow = dir.lock().fault == DiskFault::Slow || world.once_in(SLOW_SYNC_ONE_OF);
    let micros = world.below(if slow { SLOW_SYNC_US_MAX } else { SYNC_US_MAX });
    shoal_runtime::thread::sleep(Duration::from_micros(micros));
    match dir.lock().fault {
        DiskFault::FailsToSync => Err(io::Error::from_raw_os_error(libc::EIO)),
        _ => Ok(()),
    }
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        let mut dir = self.dir.lock();
        if dir.generation != self.generation {
            return Err(dead());
        }
        act(&mut dir.files[self.file])
    }

    fn needs_room(&self) -> io::Result<()> {
        match self.dir.lock().fault {
            DiskFault::Full => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }

    fn change(&self, what: Pending) -> io::Result<()> {
        self.with(|file| {
            carry_out(&mut file.current, &what);
            file.pending.push(what);
            Ok(())
        })
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.with(|file| Ok(file.current.len() as u64))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|file| {
            let from = offset as usize;
            let found = file.current.get(from..from + into.len());
            into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.needs_room()?;
        self.change(Pending::Write(offset as usize, bytes.to_vec()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Pending::Len(len as usize))
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        match DiskFile::len(self)? < len {
            true => self.set_len(len),
            false => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        pass_time(&self.dir)?;
        // What is written while the flush takes its time may be durable or not; here it is.
        self.with(|file| {
            let pending = std::mem::take(&mut file.pending);
            for what in &pending {
                carry_out(&mut file.durable, what);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::log::disk;

    #[test]
    fn a_directory_that_was_removed_and_made_anew_is_empty() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let dir = home.path().join("log");
        let world = Scheduler::new(1);
        Disks::default().install(&world);
        let list = || disk::open(&dir).and_then(|disk| disk.list());
        assert!(list().is_err(), "there is none");
        std::fs::create_dir(&dir).expect("new");
        disk::open(&dir).and_then(|disk| disk.open("file", true)).expect("new");
        assert_eq!(list().expect("there"), ["file"]);
        std::fs::remove_dir_all(&dir).expect("removed");
        std::fs::create_dir(&dir).expect("new");
        assert!(list().expect("there").is_empty());
        Disks::uninstall();
    }
}
