//! Reading the bricks of a stopped GlusterFS volume, and copying their files into a mounted Shoal volume. The
//! way back, from a mount to a local directory, is the same with a plain tree in the place of the bricks.
//!
//! **Model.** A brick is a directory tree with the files' own names, plus what GlusterFS keeps for itself:
//! `.glusterfs`, `trusted.*` attributes, and link-to files, which say on which other brick a file is. The
//! bricks of a replica set have the same hash range in the layout of their root directory, and so the sets
//! are known without the volume's configuration. Each name is looked up on all bricks, and one copy is taken.
//!
//! **Promises.** Kept are content with its holes, owners, modes, nanosecond times, extended attributes and
//! ACLs, hard and symbolic links, devices, pipes and sockets. Bricks are only read, unless files are moved,
//! see [`free`]. A copy that another one's changelog accuses is never taken, and where replicas contradict
//! each other nothing is: they are reported. An arbiter's copy says which others are good, and is no source
//! of content itself, see [`arbiter`].
//! Users may work in the target meanwhile, and in the source of an export: no symbolic link that they make
//! there is followed.
//! Two runs of one import exclude each other by a lock ([`work`]).
//! A file appears under its name complete, by a rename, so an import that was killed is started again and
//! skips what is there. What exists and differs is reported and left alone, see [`directories`] for those.
//!
//! **Refuses** bricks of dispersed volumes, bricks in use by a server, and an incomplete set of bricks.

mod arbiter;
mod attributes;
mod bricks;
mod candidates;
mod changelog;
mod content;
mod directories;
mod free;
mod reflink;
mod run;
#[cfg(test)]
mod tests;
mod work;
mod xattr;

pub use bricks::Bricks;
pub use reflink::{Reflinks, Target, reflink};
pub use run::{Mode, import};

use crate::place::{Directory, Place};
use std::io;
use std::path::Path;

/// Files by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub directories: u64,
    pub files: u64,
    /// Further names of files that were counted already.
    pub hard_links: u64,
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub special: u64,
    /// Sizes of the files, holes included.
    pub bytes: u64,
}

/// What a move has done to the bricks; of a dry run, the bytes that it would free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Freed {
    /// Copies of files that were removed, shards included.
    pub files: u64,
    /// What they occupied.
    pub bytes: u64,
    /// Copies that differ from what the target has.
    pub kept: u64,
    /// Names of files that are on the bricks afterwards, and what those occupy.
    pub left_files: u64,
    pub left_bytes: u64,
}

/// Where the files go.
///
/// Users may work in it meanwhile: below it no symbolic link is followed, or root would change files
/// elsewhere.
pub struct Destination<'a> {
    path: &'a Path,
    root: Directory,
    /// Returns when all that was done is durable.
    flush: &'a dyn Fn() -> io::Result<()>,
}

impl<'a> Destination<'a> {
    /// Opens a directory; `flush` returns when all that was done in it is durable.
    pub fn open(path: &'a Path, flush: &'a dyn Fn() -> io::Result<()>) -> io::Result<Destination<'a>> {
        let root = Directory::open(path).map_err(|error| at(path, error))?;
        Ok(Destination { path, root, flush })
    }

    /// What a path below it, with these components, is.
    fn place(&self, relative: &Path) -> io::Result<Place> {
        self.root.place(relative)
    }
}

/// The result of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// What the bricks hold.
    pub found: Counts,
    /// Files of any kind that were in the target already, as an earlier run left them.
    pub present: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Files whose content was compared.
    pub verified: u64,
    /// Files of any kind that were not imported, or not whole.
    pub problems: u64,
    pub freed: Freed,
}

/// Receives the progress of an import.
pub trait Listener {
    /// One more file.
    fn progress(&mut self, summary: &Summary);
    /// A file was not imported, or not whole.
    fn problem(&mut self, what: &str);
    /// A brick's copy of a file was not removed.
    fn kept(&mut self, what: &str);
    /// Something that an administrator may want to know, without harm to a file.
    fn note(&mut self, what: &str);
}

/// An error with the path that it is about.
fn at(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
