//! The directory in the root of the target in which files are filled before they get their names.

use super::bricks::Bricks;
use super::{Destination, at};
use crate::place::{Directory, Place};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Its name is this and a number of the machine and its bricks, since several machines may import at once.
const PREFIX: &str = ".shoal-import";
/// The one that is being filled.
const FILE: &str = "file";
/// Another run may remove the directory between its opening and its locking; its end is waited for no longer.
const ATTEMPTS_MAX: u32 = 3;

/// Held by one run at a time.
pub struct Work {
    directory: Directory,
    name: OsString,
    lock: Flock<File>,
}

impl Work {
    /// Makes and locks it. What an import that was killed has left in it is removed.
    pub fn open(bricks: &Bricks, target: &Destination) -> io::Result<Work> {
        let name = name(bricks);
        let open = || {
            for _ in 0..ATTEMPTS_MAX {
                if let Some(work) = Work::try_open(&name, target)? {
                    work.clear()?;
                    return Ok(work);
                }
            }
            Err(in_use())
        };
        open().map_err(|error| at(&target.path.join(&name), error))
    }

    /// `None` if it was removed before it was locked.
    fn try_open(name: &OsStr, target: &Destination) -> io::Result<Option<Work>> {
        let is_new = match target.root.make_directory(name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            made => made.is_ok(),
        };
        let directory = match target.root.beneath(Path::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let stat = directory.itself()?.metadata()?;
        // A user who made it could exchange the files in it.
        let me = nix::unistd::geteuid();
        let is_others = stat.uid() != me.as_raw() || !is_new && stat.mode() & 0o077 != 0;
        // Where files have no owners, a new one may seem to be another's.
        let has_owners = || -> io::Result<bool> {
            Ok(nix::unistd::fchown(File::open(directory.path())?, Some(me), None).is_ok())
        };
        if is_others && (!is_new || has_owners()?) {
            return Err(io::Error::other(
                "it has the name of a directory of an import, and is none: remove it",
            ));
        }
        let lock = Flock::lock(File::open(directory.path())?, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => in_use(),
            errno => errno.into(),
        })?;
        match target.place(Path::new(name))?.metadata() {
            Ok(named) if (named.dev(), named.ino()) == (stat.dev(), stat.ino()) => {
                Ok(Some(Work { directory, name: name.to_owned(), lock }))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(None),
        }
    }

    /// The name under which a file is filled; nothing has it.
    pub fn place(&self) -> io::Result<Place> {
        let place = self.directory.place(Path::new(FILE))?;
        match remove(&place.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(place),
        }
    }

    fn clear(&self) -> io::Result<()> {
        fs::read_dir(self.directory.path())?.try_for_each(|entry| remove(&entry?.path()))
    }

    /// Removes it, for the next run or another one that waits.
    pub fn remove(self, target: &Destination) -> io::Result<()> {
        let removed = self.clear().and_then(|()| fs::remove_dir(target.root.path().join(&self.name)));
        drop(self.lock);
        removed.map_err(|error| at(&target.path.join(&self.name), error))
    }
}

/// Whether an import into a directory is in progress, or was killed.
pub fn is_in_progress(target: &Path) -> bool {
    let entries = fs::read_dir(target).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| is_work(&name))
}

/// Whether a name in the root of a target is of such a directory.
pub fn is_work(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
}

/// Removes a file or an empty directory.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir(path),
        removed => removed,
    }
}

fn in_use() -> io::Error {
    let what = "another run copies the same files to the same place: wait until it has ended";
    io::Error::new(io::ErrorKind::ResourceBusy, what)
}

fn name(bricks: &Bricks) -> OsString {
    let mut hasher = DefaultHasher::new();
    nix::unistd::gethostname().ok().hash(&mut hasher);
    bricks.bricks.iter().for_each(|brick| brick.path.hash(&mut hasher));
    format!("{PREFIX}-{:016x}", hasher.finish()).into()
}
