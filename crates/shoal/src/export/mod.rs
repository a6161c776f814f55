//! Writing a volume out as plain files, from a data directory at rest.
//!
//! **Promises.** These are preserved: content with its holes, modes, owners, nanosecond times, extended
//! attributes and ACLs, hard and symbolic links, device files, pipes and sockets. What cannot be preserved is
//! reported, and the rest goes on: a block is damaged, or the target does not support an attribute. When the
//! export returns, what it wrote is on disk.
//!
//! **Refuses** a target that is not empty.

mod content;
#[cfg(test)]
mod tests;

use crate::place::{Attributes, Directory};
use crate::walk::{self, Step};
use content::Contents;
use nix::errno::Errno;
use nix::sys::stat::{SFlag, makedev};
use nix::sys::time::TimeSpec;
use shoal_namespace::kv::KvRead;
use shoal_namespace::query::{FileRecord, Prefetch};
use shoal_types::{FileKind, InodeId, Name, Timestamp};
use shoal_wire::BlockService;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The result of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Files of any kind, directories included.
    pub files: u64,
    /// Bytes of content written.
    pub bytes: u64,
    /// Things that could not be preserved.
    pub problems: u64,
}

/// Receives the progress of an export.
pub trait Listener {
    /// One more file is written.
    fn progress(&mut self, summary: &Summary);
    /// Something could not be preserved.
    fn problem(&mut self, what: &str);
}

/// Writes everything into an empty directory.
pub fn export<S: KvRead + ?Sized>(
    store: &S,
    blocks: &dyn BlockService,
    target: &Path,
    listener: &mut dyn Listener,
) -> io::Result<Summary> {
    let root = open_empty(target)?;
    let mut export = Export {
        contents: Contents::new(store, blocks),
        directories: vec![root],
        links: HashMap::new(),
        summary: Summary::default(),
        listener,
    };
    walk::walk(store, Prefetch::Contents, &mut |place, step| match step {
        Step::Enter(name, record) => export.enter(name, record, || place.path(Some(name))),
        Step::File(name, record) => export.file(name, record, &|| place.path(Some(name))),
        Step::Leave(record) => export.leave(record, || place.path(None)),
        Step::Unreadable(what) => {
            export.problem(&what);
            Ok(())
        }
    })?;
    let summary = export.summary;
    sync_all_of(target)?;
    Ok(summary)
}

struct Export<'a, S: ?Sized> {
    contents: Contents<'a, S>,
    /// The directory being filled and those above it. `None` within one that could not be made.
    directories: Vec<Directory>,
    /// The first path of each file with several names.
    links: HashMap<InodeId, PathBuf>,
    summary: Summary,
    listener: &'a mut dyn Listener,
}

impl<S: KvRead + ?Sized> Export<'_, S> {
    fn problem(&mut self, what: &str) {
        self.summary.problems += 1;
        self.listener.problem(what);
    }

    fn done(&mut self) {
        self.summary.files += 1;
        self.listener.progress(&self.summary);
    }

    /// The directory being filled. There is always one, because every leave follows its enter.
    fn here(&self) -> io::Result<&Directory> {
        self.directories.last().ok_or_else(|| io::Error::other("left more directories than were entered"))
    }

    fn enter(&mut self, name: &Name, _: &FileRecord, path: impl Fn() -> PathBuf) -> io::Result<()> {
        // Without its directory none of the files in it can be written: give up.
        let (here, name) = (self.here()?, os(name));
        let made = here.make_directory(name).and_then(|()| here.beneath(Path::new(name)));
        let made = made.map_err(|error| named(&path(), error))?;
        self.directories.push(made);
        Ok(())
    }

    fn leave(&mut self, record: &FileRecord, path: impl Fn() -> PathBuf) -> io::Result<()> {
        if let Some(directory) = self.directories.pop() {
            // Last of all, because making the files in it changes its times.
            for problem in set_attributes(&directory, OsStr::new("."), record) {
                self.problem(&format!("{}: {problem}", path().display()));
            }
        }
        self.done();
        Ok(())
    }

    fn file(&mut self, name: &Name, record: &FileRecord, path: &dyn Fn() -> PathBuf) -> io::Result<()> {
        if record.inode.nlink > 1 && self.link(name, record, path)? {
            self.done();
            return Ok(());
        }
        let (here, name) = (self.here()?, os(name));
        let made = match record.inode.kind {
            FileKind::Regular => here.make_file(name).map(Some),
            FileKind::Symlink => {
                here.make_symlink(name, OsStr::from_bytes(&record.inode.target)).map(|()| None)
            }
            kind => {
                let flag = SFlag::from_bits_truncate(kind.mode_bits());
                here.make_node(name, flag, device(record.inode.rdev)).map(|()| None)
            }
        };
        let problems = match made {
            Ok(None) => set_attributes(here, name, record),
            Ok(Some(file)) => {
                let (bytes, mut problems) =
                    self.contents.write(record, &file).map_err(|error| named(&path(), error))?;
                self.summary.bytes += bytes;
                problems.extend(set_attributes(self.here()?, name, record));
                problems
            }
            // A full disk ends the export; a name or kind that the target does not support costs only that
            // file.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Err(named(&path(), error)),
            Err(error) => vec![error.to_string()],
        };
        for problem in problems {
            self.problem(&format!("{}: {problem}", path().display()));
        }
        self.done();
        Ok(())
    }

    /// Gives a file that was already written another name; false if it was not, or cannot have one.
    fn link(&mut self, name: &Name, record: &FileRecord, path: &dyn Fn() -> PathBuf) -> io::Result<bool> {
        let Some(first) = self.links.get(&record.ino) else {
            self.links.insert(record.ino, path());
            return Ok(false);
        };
        let root = self.directories.first().ok_or_else(|| io::Error::other("there is no directory"))?;
        let here = self.here()?;
        let link = || {
            let further = here.place(Path::new(os(name)))?;
            root.place(first.strip_prefix("/").unwrap_or(first))?.link_as(&further)
        };
        match link() {
            Ok(()) => Ok(true),
            Err(error) => {
                let what =
                    format!("{}: a copy, not a link to {}: {error}", path().display(), first.display());
                self.problem(&what);
                Ok(false)
            }
        }
    }
}

/// Opens the target of an export, and makes it if it is not there.
fn open_empty(path: &Path) -> io::Result<Directory> {
    fs::create_dir_all(path)?;
    if let Some(entry) = fs::read_dir(path)?.next() {
        let found = entry?.file_name();
        return Err(io::Error::other(format!(
            "it is not empty ({found:?} is there): choose a new directory"
        )));
    }
    Directory::open(path)
}

/// Sets a file's owner, mode, extended attributes and times to those of the original. Returns what failed.
fn set_attributes(parent: &Directory, name: &OsStr, record: &FileRecord) -> Vec<String> {
    let inode = &record.inode;
    let time = |time: Timestamp| TimeSpec::new(time.secs, i64::from(time.nanos));
    let mut xattrs = Vec::new();
    for (name, value) in &record.xattrs {
        let Ok(name) = CString::new(name.as_bytes()) else { continue };
        xattrs.push((name, Ok(value.to_vec())));
    }
    let wanted = Attributes {
        uid: inode.uid,
        gid: inode.gid,
        mode: (inode.kind != FileKind::Symlink).then_some(inode.perm),
        xattrs,
        atime: time(inode.atime),
        mtime: time(inode.mtime),
    };
    match parent.object(name) {
        Ok(object) => object.set(wanted),
        Err(error) => vec![format!("cannot set its attributes: {error}")],
    }
}

/// The kernel's `new_encode_dev`.
fn device(rdev: u32) -> u64 {
    let (major, minor) = ((rdev & 0xf_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00));
    makedev(major.into(), minor.into())
}

/// Everything on the file system that holds `path` is durable when this returns.
pub fn sync_all_of(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open.
    Errno::result(unsafe { libc::syncfs(file.as_raw_fd()) })?;
    Ok(())
}

fn os(name: &Name) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

/// An error with the path that it is about.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
