//! Random operations on a small tree, so small that they keep getting in each other's way.

use crate::harness::Random;
use crate::harness::sys::{self, Sys};
use crate::harness::tree::{digest, names};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Files that are open at the same time.
const HANDLES: usize = 6;
/// Names per directory level.
const NAMES: &[&str] = &["a", "b", "c", "dd", "a-rather-long-name-to-vary-the-length"];
/// Extended attributes in play.
const XATTRS: &[&str] = &["user.a", "user.b", "trusted.c", "security.d"];
/// Files stay below this, so that a sequence is quick and still has inline, mixed and blocky ones.
const FILE_BYTES_MAX: u64 = 600_000;
/// The users of operations: mostly root, sometimes an unprivileged user.
const USERS: &[u32] = &[0, 0, 0, 0, 65534];

/// One step.
#[derive(Clone, Debug)]
pub enum Operation {
    Open { slot: usize, path: PathBuf, flags: i32, mode: u32 },
    Close { slot: usize },
    Write { slot: usize, offset: u64, len: usize, fill: u8 },
    Append { slot: usize, len: usize, fill: u8 },
    Read { slot: usize, offset: u64, len: usize },
    Ftruncate { slot: usize, len: u64 },
    Fallocate { slot: usize, mode: i32, offset: u64, len: u64 },
    CopyRange { from: usize, from_offset: u64, to: usize, to_offset: u64, len: usize },
    Fsync { slot: usize },
    Fstat { slot: usize },
    As { user: u32, what: OnPath },
}

/// What is done to a name.
#[derive(Clone, Debug)]
pub enum OnPath {
    Stat(PathBuf),
    Mkdir(PathBuf, u32),
    Rmdir(PathBuf),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, u32),
    Link(PathBuf, PathBuf),
    Symlink(String, PathBuf),
    Readlink(PathBuf),
    Mknod(PathBuf, u32),
    Truncate(PathBuf, u64),
    Chmod(PathBuf, u32),
    Chown(PathBuf, u32, u32),
    Utimes(PathBuf, i64),
    SetXattr(PathBuf, &'static str, Vec<u8>, i32),
    GetXattr(PathBuf, &'static str),
    RemoveXattr(PathBuf, &'static str),
    ListXattr(PathBuf),
    List(PathBuf),
    ReadAll(PathBuf),
}

/// A directory in which steps are done, and what is open there.
pub struct World {
    top: PathBuf,
    handles: [Option<OwnedFd>; HANDLES],
}

fn path(random: &mut Random) -> PathBuf {
    let depth = random.below(1..4);
    (0..depth).map(|_| *random.pick(NAMES)).collect()
}

fn offset(random: &mut Random) -> u64 {
    let offset = random.length(FILE_BYTES_MAX * 2 / 3);
    // Boundaries are where mistakes live.
    if random.one_in(3) { offset & !4095 } else { offset }
}

fn len(random: &mut Random) -> u64 {
    random.length(FILE_BYTES_MAX / 3)
}

impl Operation {
    /// Any step.
    pub fn random(random: &mut Random) -> Operation {
        let slot = random.below(0..HANDLES as u64) as usize;
        match random.below(0..40) {
            0..=3 => {
                let access =
                    *random.pick(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR, libc::O_RDWR]);
                let more = *random.pick(&[
                    0,
                    libc::O_CREAT,
                    libc::O_CREAT,
                    libc::O_CREAT | libc::O_EXCL,
                    libc::O_CREAT | libc::O_TRUNC,
                    libc::O_TRUNC,
                    libc::O_CREAT | libc::O_APPEND,
                    libc::O_NOFOLLOW,
                    libc::O_DIRECTORY,
                ]);
                let mode = *random.pick(&[0o644, 0o600, 0o666, 0o755]);
                // Without O_NONBLOCK, opening a fifo waits for its other end.
                Operation::Open { slot, path: path(random), flags: access | more | libc::O_NONBLOCK, mode }
            }
            4 => Operation::Close { slot },
            5..=8 => {
                let (offset, len) = (offset(random), len(random) as usize);
                Operation::Write { slot, offset, len, fill: random.below(1..256) as u8 }
            }
            9 => Operation::Append { slot, len: len(random) as usize, fill: random.below(1..256) as u8 },
            10..=12 => Operation::Read { slot, offset: offset(random), len: len(random) as usize },
            13 => Operation::Ftruncate { slot, len: offset(random) },
            14 => {
                let mode = *random.pick(&[
                    0,
                    libc::FALLOC_FL_KEEP_SIZE,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    libc::FALLOC_FL_ZERO_RANGE,
                    libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                ]);
                Operation::Fallocate { slot, mode, offset: offset(random), len: len(random) }
            }
            15 => {
                let to = random.below(0..HANDLES as u64) as usize;
                let (from_offset, to_offset) = (offset(random), offset(random));
                Operation::CopyRange { from: slot, from_offset, to, to_offset, len: len(random) as usize }
            }
            16 if random.one_in(4) => Operation::Fsync { slot },
            16 | 17 => Operation::Fstat { slot },
            _ => Operation::As { user: *random.pick(USERS), what: OnPath::random(random) },
        }
    }
}

impl OnPath {
    fn random(random: &mut Random) -> OnPath {
        let path = path(random);
        let other = self::path(random);
        let xattr = *random.pick(XATTRS);
        match random.below(0..30) {
            0..=2 => OnPath::Stat(path),
            3..=5 => OnPath::Mkdir(path, *random.pick(&[0o755, 0o755, 0o777, 0o2775, 0o1777])),
            6 => OnPath::Rmdir(path),
            7 | 8 => OnPath::Unlink(path),
            9..=12 => {
                let flags = [0, 0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE];
                OnPath::Rename(path, other, *random.pick(&flags))
            }
            13 | 14 => OnPath::Link(path, other),
            15 => OnPath::Symlink((*random.pick(&["a", "../b", "nowhere", "dd/a"])).to_owned(), path),
            16 => OnPath::Readlink(path),
            17 => OnPath::Mknod(path, *random.pick(&[libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFREG]) | 0o640),
            18 => OnPath::Truncate(path, offset(random)),
            19 => OnPath::Chmod(path, *random.pick(&[0o644, 0o4755, 0o2755, 0o600, 0o777, 0o1777])),
            20 => {
                OnPath::Chown(path, *random.pick(&[0, 65534, u32::MAX]), *random.pick(&[0, 65534, u32::MAX]))
            }
            21 => OnPath::Utimes(path, random.below(0..4_000_000_000) as i64),
            22 | 23 => {
                let value = vec![random.below(0..256) as u8; random.length(120) as usize];
                OnPath::SetXattr(
                    path,
                    xattr,
                    value,
                    *random.pick(&[0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]),
                )
            }
            24 => OnPath::GetXattr(path, xattr),
            25 => OnPath::RemoveXattr(path, xattr),
            26 => OnPath::ListXattr(path),
            27 => OnPath::List(path),
            _ => OnPath::ReadAll(path),
        }
    }
}

fn show<T: std::fmt::Debug>(result: Sys<T>) -> String {
    format!("{result:?}")
}

/// What of a file's attributes must be equal in any two file systems.
fn attributes(meta: &fs::Metadata) -> String {
    let size = if meta.is_dir() { 0 } else { meta.size() };
    format!("mode {:o} nlink {} owner {}:{} size {size}", meta.mode(), meta.nlink(), meta.uid(), meta.gid())
}

impl World {
    /// An empty directory to work in.
    pub fn new(top: &Path) -> World {
        fs::create_dir_all(top).expect("a directory can be made");
        sys::chmod(top, 0o777).expect("its mode can be set");
        World { top: top.to_owned(), handles: Default::default() }
    }

    /// Closes everything.
    pub fn close_all(&mut self) {
        self.handles = Default::default();
    }

    fn with(&self, slot: usize, work: impl FnOnce(&OwnedFd) -> String) -> String {
        self.handles[slot].as_ref().map_or_else(|| "nothing open".to_owned(), work)
    }

    /// Does one step and tells what came of it.
    pub fn perform(&mut self, operation: &Operation) -> String {
        match operation {
            Operation::Open { slot, path, flags, mode } => {
                self.handles[*slot] = None;
                match sys::open(&self.top.join(path), *flags, *mode) {
                    Ok(fd) => {
                        self.handles[*slot] = Some(fd);
                        "open".to_owned()
                    }
                    Err(errno) => format!("{errno:?}"),
                }
            }
            Operation::Close { slot } => {
                self.handles[*slot] = None;
                "closed".to_owned()
            }
            Operation::Write { slot, offset, len, fill } => {
                self.with(*slot, |fd| show(sys::pwrite(fd, &vec![*fill; *len], *offset)))
            }
            Operation::Append { slot, len, fill } => self.with(*slot, |fd| {
                let end = sys::lseek(fd, 0, libc::SEEK_END);
                // Directories have positions of their own kind at their end.
                let end = if is_directory(fd) { Ok(0) } else { end };
                if end.is_ok_and(|end| end > FILE_BYTES_MAX) {
                    return "large enough".to_owned();
                }
                format!("{end:?} {}", show(sys::write(fd, &vec![*fill; *len])))
            }),
            Operation::Read { slot, offset, len } => self.with(*slot, |fd| {
                let got = sys::pread(fd, *len, *offset);
                show(got.map(|bytes| (bytes.len(), digest(&bytes))))
            }),
            Operation::Ftruncate { slot, len } => self.with(*slot, |fd| show(sys::ftruncate(fd, *len))),
            Operation::Fallocate { slot, mode, offset, len } => {
                self.with(*slot, |fd| show(sys::fallocate(fd, *mode, *offset, *len)))
            }
            Operation::CopyRange { from, from_offset, to, to_offset, len } => self.with(*from, |source| {
                self.with(*to, |target| show(copy(source, *from_offset, target, *to_offset, *len)))
            }),
            Operation::Fsync { slot } => self.with(*slot, |fd| show(sys::fsync(fd))),
            Operation::Fstat { slot } => self.with(*slot, |fd| {
                let file = fs::File::from(fd.try_clone().expect("a handle can be doubled"));
                file.metadata().map_or_else(|error| error.to_string(), |meta| attributes(&meta))
            }),
            Operation::As { user: 0, what } => what.perform(&self.top),
            Operation::As { user, what } => sys::as_user(*user, *user, || what.perform(&self.top)),
        }
    }
}

fn is_directory(fd: &OwnedFd) -> bool {
    let file = fs::File::from(fd.try_clone().expect("a handle can be doubled"));
    file.metadata().is_ok_and(|meta| meta.is_dir())
}

/// Copies all of a range; how much one call does is the file system's choice.
fn copy(source: &OwnedFd, from: u64, target: &OwnedFd, to: u64, len: usize) -> Sys<u64> {
    let mut done = 0;
    while done < len as u64 {
        match sys::copy_file_range(source, from + done, target, to + done, len - done as usize)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}

impl OnPath {
    fn perform(&self, top: &Path) -> String {
        let at = |path: &Path| top.join(path);
        let io = |result: std::io::Result<()>| show(result.map_err(sys::Errno::from));
        match self {
            OnPath::Stat(path) => match fs::symlink_metadata(at(path)) {
                Ok(meta) => attributes(&meta),
                Err(error) => show(Err::<(), _>(sys::Errno::from(error))),
            },
            OnPath::Mkdir(path, mode) => show(sys::mkdir(&at(path), *mode)),
            OnPath::Rmdir(path) => io(fs::remove_dir(at(path))),
            OnPath::Unlink(path) => io(fs::remove_file(at(path))),
            OnPath::Rename(from, to, flags) => show(sys::rename(&at(from), &at(to), *flags)),
            OnPath::Link(from, to) => io(fs::hard_link(at(from), at(to))),
            OnPath::Symlink(target, path) => io(symlink(target, at(path))),
            OnPath::Readlink(path) => show(fs::read_link(at(path)).map_err(sys::Errno::from)),
            OnPath::Mknod(path, mode) => show(sys::mknod(&at(path), *mode, 0)),
            OnPath::Truncate(path, len) => show(sys::truncate(&at(path), *len)),
            OnPath::Chmod(path, mode) => show(sys::chmod(&at(path), *mode)),
            OnPath::Chown(path, uid, gid) => show(sys::lchown(&at(path), *uid, *gid)),
            OnPath::Utimes(path, time) => {
                let set = sys::utimens(&at(path), (*time, 7), (*time, 9));
                let now = fs::symlink_metadata(at(path)).map(|meta| (meta.mtime(), meta.mtime_nsec()));
                format!("{set:?} {:?}", set.and(now.map_err(sys::Errno::from)))
            }
            OnPath::SetXattr(path, name, value, flags) => {
                show(sys::setxattr(&at(path), name.as_ref(), value, *flags))
            }
            OnPath::GetXattr(path, name) => show(sys::getxattr(&at(path), name.as_ref())),
            OnPath::RemoveXattr(path, name) => show(sys::removexattr(&at(path), name.as_ref())),
            OnPath::ListXattr(path) => show(sys::listxattr(&at(path))),
            OnPath::List(path) => match fs::read_dir(at(path)) {
                Ok(_) => format!("{:?}", names(&at(path))),
                Err(error) => show(Err::<(), _>(sys::Errno::from(error))),
            },
            OnPath::ReadAll(path) => read_all(&at(path)),
        }
    }
}

/// Reads a whole file, if it is one: a fifo would wait for its writer.
fn read_all(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => {
            show(fs::read(path).map(|bytes| (bytes.len(), digest(&bytes))).map_err(sys::Errno::from))
        }
        Ok(_) => "not a file".to_owned(),
        Err(error) => show(Err::<(), _>(sys::Errno::from(error))),
    }
}
