//! The values that calls of a mounted volume take and return.

use shoal_namespace::Dentry;
use shoal_types::{Errno, Inode, InodeId, Name};
use std::ops::{ControlFlow, Range};

/// Whether a call may wait for a server, a brick, or for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Answer from memory, or change nothing and fail with [`Failure::WouldBlock`].
    Never,
    /// Wait as long as it takes.
    Allowed,
}

impl Wait {
    /// For a call by this thread of a program, which the kernel has passed on.
    pub fn by(self, thread: u32) -> Calling {
        Calling { wait: self, thread: Some(thread) }
    }
}

/// The context of a call that changes names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calling {
    /// Whether it may wait.
    pub wait: Wait,
    /// The calling thread, 0 if unknown. `None`: the call does not come through the kernel.
    pub thread: Option<u32>,
}

impl From<Wait> for Calling {
    fn from(wait: Wait) -> Calling {
        Calling { wait, thread: None }
    }
}

/// Why a call failed. It has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The error for the caller.
    #[error(transparent)]
    Errno(#[from] Errno),
    /// The answer is not in memory and the call must not wait: repeat it on a thread that may.
    #[error("would have to wait")]
    WouldBlock,
}

/// Outcome of a call.
pub type Reply<T> = Result<T, Failure>;

/// The user on whose behalf a file is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// File-system user.
    pub uid: u32,
    /// File-system group.
    pub gid: u32,
    /// Mode bits to leave out where no default ACL says otherwise.
    pub umask: u32,
}

/// A file found or made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its inode number.
    pub ino: InodeId,
    /// Its record.
    pub inode: Inode,
}

/// The target of lseek(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// The outcome of lseek(2) for data or holes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeekResult {
    /// The offset; `None` if there are no more data (`ENXIO`).
    pub found: Option<u64>,
    /// The hole that decided this: behind `found`, or before the data found. Empty if there was none.
    pub hole: Range<u64>,
}

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Offset at which it was written.
    pub at: u64,
    /// The file is longer than before.
    pub grew: bool,
}

/// The mode of fallocate(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Mode 0, or `FALLOC_FL_KEEP_SIZE`.
    Allocate {
        /// Leave the size alone.
        keep_size: bool,
    },
    /// `FALLOC_FL_PUNCH_HOLE`; never changes the size.
    PunchHole,
    /// `FALLOC_FL_ZERO_RANGE`.
    ZeroRange {
        /// Leave the size alone.
        keep_size: bool,
    },
}

/// The outcome of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupResult {
    /// The file found.
    pub entry: Entry,
    /// For a directory: its parent in the dcache, if that is another one than it was found in.
    pub moved_from: Option<InodeId>,
    /// For a directory: an earlier parent, which the dcache may still have, if `d_splice_alias` has failed.
    pub may_be_in: Option<InodeId>,
    /// `moved_from` or `may_be_in` is set, and in the dcache the directory is an ancestor of the one in which
    /// it was found. `d_splice_alias` refuses that as a loop.
    pub is_above: bool,
    /// This is the second lookup of a thread that was refused with `ESTALE`.
    pub again: bool,
}

/// Called for each name of a listing except `.` and `..`, with its dentry, and its inode if inodes are
/// wanted. `Break` means that the name did not fit: the next listing begins with it.
pub type Visit<'a> = &'a mut dyn FnMut(&Name, Dentry, Option<&Inode>) -> ControlFlow<()>;
