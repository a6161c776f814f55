//! Directories of the target, and which of them get the attributes of the source.
//!
//! **Model.** A directory is made for its owner alone, with a mark. When all that is in it was imported, it
//! gets the owner, mode, extended attributes and times of the source, and loses the mark. So the mark tells
//! which directories an import has not finished: one that was killed, or one of another machine that runs.
//! The root of the target gets the mark if it is empty.
//!
//! **Promises.** A directory without the mark is the users' own. Its owner, mode and attributes are compared,
//! and left as they are; what differs is reported. Its times change with each name in it, so they are not
//! compared. If this run makes a name in it, it gets the later time of both changes of content.

use super::candidates::{Candidate, Time};
use super::run::is_internal;
use super::work::{Work, is_work};
use super::{Destination, attributes, changelog, xattr};
use crate::place::{Directory, Place};
use std::ffi::CStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mark; its value identifies the source. Users cannot set it.
const MARK: &CStr = c"trusted.shoal.importing";
/// The mark of an export that root does not run.
const MARK_OF_USERS: &CStr = c"user.shoal.importing";

/// The name of the mark.
pub fn mark() -> &'static CStr {
    if nix::unistd::geteuid().is_root() { MARK } else { MARK_OF_USERS }
}

const SPLIT_BRAIN: &str = "split-brain: its copies accuse each other";
const REPLACED: &str =
    "another directory has this name since the import began with it; its owner and mode are not set";

/// Device and inode.
type Identity = (u64, u64);

/// A directory of the target, in which names are being imported.
pub struct Entered {
    identity: Identity,
    state: State,
}

enum State {
    /// An import has made it, and has not finished it.
    Unfinished,
    /// The users have it. These are its times of access and change before this run.
    Present { atime: Time, mtime: Time },
}

impl Entered {
    /// The root of the target, before anything is made in it.
    pub fn root(target: &Destination, source: &Candidate) -> io::Result<Entered> {
        let is_others = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| is_work(&entry.file_name()) || is_internal(&entry.file_name()))
        };
        let is_empty = fs::read_dir(target.root.path())?.all(is_others);
        let stat = target.root.itself()?.metadata()?;
        if is_empty {
            set_mark(&path_of(&target.root), source)?;
        }
        Entered::read(&target.root, source, is_empty.then(|| identity(&stat)))
    }

    /// Any other one. It is made unless it is there; the result tells whether it was.
    pub fn enter(
        target: &Destination,
        work: &Work,
        relative: &Path,
        source: &Candidate,
    ) -> io::Result<(Entered, bool)> {
        let place = target.place(relative)?;
        let mut made = None;
        match place.metadata() {
            Ok(stat) if stat.is_dir() => {}
            Ok(_) => {
                return Err(io::Error::other("a directory, but something else has its name in the target"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => match make(work, &place, source) {
                Ok(identity) => made = Some(identity),
                // Another machine was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
        let entered = Entered::read(&target.root.beneath(relative)?, source, made)?;
        Ok((entered, made.is_some()))
    }

    /// `made` is the identity of what this run has made.
    fn read(directory: &Directory, source: &Candidate, made: Option<Identity>) -> io::Result<Entered> {
        let stat = directory.itself()?.metadata()?;
        let identity = identity(&stat);
        let is_marked =
            || io::Result::Ok(xattr::get(&path_of(directory), mark())?.as_deref() == Some(source.identity()));
        let state = match made == Some(identity) || is_marked()? {
            true => State::Unfinished,
            false => State::Present {
                atime: (stat.atime(), stat.atime_nsec()),
                mtime: (stat.mtime(), stat.mtime_nsec()),
            },
        };
        Ok(Entered { identity, state })
    }

    /// Finishes it, after all that is in it: making a file changes its times. Returns what differs or failed.
    pub fn leave(
        self,
        target: &Destination,
        relative: &Path,
        copies: &[Candidate],
        has_new_names: bool,
    ) -> io::Result<Vec<String>> {
        let Some(best) = best(copies) else {
            return Ok(vec![format!("{SPLIT_BRAIN}; owner and mode are not set")]);
        };
        let newest = copies.iter().map(|copy| copy.mtime).max().unwrap_or(best.mtime);
        let directory = target.root.beneath(relative)?;
        let object = directory.itself()?;
        let stat = object.metadata()?;
        if identity(&stat) != self.identity {
            return Ok(vec![REPLACED.into()]);
        }
        match self.state {
            State::Unfinished => {
                let is_root = nix::unistd::geteuid().is_root();
                // A user cannot remove it from a directory that is read-only. Root keeps it until all is set.
                if !is_root {
                    remove_mark(&directory)?;
                }
                let problems = attributes::set(best, &object, newest);
                if is_root && problems.is_empty() {
                    remove_mark(&directory)?;
                }
                Ok(problems)
            }
            State::Present { atime, mtime } => {
                let problems = differing(best, &directory, &stat)?;
                if has_new_names {
                    let [atime, mtime] = [atime, mtime.max(newest)].map(attributes::timespec);
                    object.set_times(&atime, &mtime)?;
                }
                Ok(problems)
            }
        }
    }
}

/// Makes a marked directory under its name at once, so that none is ever without its mark.
fn make(work: &Work, place: &Place, source: &Candidate) -> io::Result<Identity> {
    let filled = work.place()?;
    filled.parent.make_directory(&filled.name)?;
    set_mark(&filled.path(), source)?;
    let identity = identity(&filled.metadata()?);
    filled.rename_new(place)?;
    Ok(identity)
}

fn set_mark(path: &Path, source: &Candidate) -> io::Result<()> {
    match xattr::set(path, mark(), source.identity()) {
        Err(error) if !is_without_marks(&error) => Err(error),
        _ => Ok(()),
    }
}

fn remove_mark(directory: &Directory) -> io::Result<()> {
    match xattr::remove(&path_of(directory), mark()) {
        Err(error) if !is_without_marks(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The copy of a directory that the others do not accuse.
fn best(copies: &[Candidate]) -> Option<&Candidate> {
    let accused: Vec<_> = copies.iter().map(|copy| &copy.changelog.content).collect();
    let good = changelog::good(&accused).and_then(|good| good.first().copied());
    good.or((copies.len() == 1).then_some(0)).map(|best| &copies[best])
}

/// Why a directory of the bricks must not be removed although the target has one of its name.
pub fn check(target: &Destination, relative: &Path, copies: &[Candidate]) -> io::Result<Vec<String>> {
    let directory = target.root.beneath(relative)?;
    if xattr::get(&path_of(&directory), mark())?.is_some() {
        return Ok(vec!["an import has not finished it: start that once more".into()]);
    }
    match best(copies) {
        Some(best) => differing(best, &directory, &directory.itself()?.metadata()?),
        None => Ok(vec![SPLIT_BRAIN.into()]),
    }
}

/// Whether the file system has no such attributes: then only what this run has made is finished.
fn is_without_marks(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | Unsupported)
}

/// In what a directory of the users differs from the source.
fn differing(source: &Candidate, directory: &Directory, stat: &Metadata) -> io::Result<Vec<String>> {
    let mut differing = Vec::new();
    let wanted = (source.stat.uid(), source.stat.gid(), source.mode());
    if (stat.uid(), stat.gid(), stat.mode() & 0o7777) != wanted {
        differing.push("its owner or mode in the target differs; it was left as it is".into());
    }
    differing.extend(attributes::differing(source, &path_of(directory))?);
    Ok(differing)
}

fn identity(stat: &Metadata) -> Identity {
    (stat.dev(), stat.ino())
}

fn path_of(directory: &Directory) -> PathBuf {
    directory.path().join(".")
}
