//! Writing a volume out as plain files, from a data directory at rest.
//!
//! **Promises.** These are preserved: content with its holes, modes, owners, nanosecond times, extended
//! attributes and ACLs, hard and symbolic links, device files, pipes and sockets. What cannot be preserved is
//! reported, and the rest goes on: a block is damaged, or the target does not support an attribute. When the
//! export returns, what it wrote is on disk.
//!
//! **Refuses** a target that is not empty.

mod content;
mod directory;
#[cfg(test)]
mod tests;

use crate::walk::{self, Step};
use content::Contents;
use directory::Directory;
pub use directory::sync_all_of;
use shoal_namespace::kv::KvRead;
use shoal_namespace::query::{FileRecord, Prefetch};
use shoal_types::{FileKind, InodeId, Name};
use shoal_wire::BlockService;
use std::collections::HashMap;
use std::io;
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
    let root = Directory::open_empty(target)?;
    let mut export = Export {
        contents: Contents::new(store, blocks),
        directories: vec![root],
        links: HashMap::new(),
        summary: Summary::default(),
        listener,
    };
    walk::walk(store, Prefetch::Contents, &mut |position, step| match step {
        Step::Enter(name, record) => export.enter(name, record, || position.path(Some(name))),
        Step::File(name, record) => export.file(name, record, &|| position.path(Some(name))),
        Step::Leave(record) => export.leave(record, || position.path(None)),
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
        let made = self.here()?.make_directory(name).map_err(|error| named(&path(), error))?;
        self.directories.push(made);
        Ok(())
    }

    fn leave(&mut self, record: &FileRecord, path: impl Fn() -> PathBuf) -> io::Result<()> {
        if let Some(directory) = self.directories.pop() {
            // Last of all, because making the files in it changes its times.
            for problem in directory.copy_own_attributes(record) {
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
        let here = self.here()?;
        let made = match record.inode.kind {
            FileKind::Regular => here.make_file(name).map(Some),
            FileKind::Symlink => here.make_symlink(name, &record.inode.target).map(|()| None),
            kind => here.make_node(name, kind, record.inode.rdev).map(|()| None),
        };
        let problems = match made {
            Ok(None) => here.copy_attributes(name, record),
            Ok(Some(file)) => {
                let (bytes, mut problems) =
                    self.contents.write(record, &file).map_err(|error| named(&path(), error))?;
                self.summary.bytes += bytes;
                problems.extend(self.here()?.copy_attributes(name, record));
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
        match self.here()?.link(root, first, name) {
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

/// An error with the path that it is about.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
