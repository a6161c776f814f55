//! The values that calls of a mounted volume take and return.

use shoal_namespace::Dentry;
use shoal_types::{Errno, Inode, InodeId, Name};
use std::ops::{ControlFlow, Range};

/// Whether a call may wait for a server, a brick, or for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Answer from memory or fail with [`Failure::WouldBlock`], having done nothing.
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

/// How a call is made that changes names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calling {
    /// Whether it may wait.
    pub wait: Wait,
    /// The thread of a program that makes it, 0 if unknown. `None`: not through the kernel.
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
    /// The caller gets this error.
    #[error(transparent)]
    Errno(#[from] Errno),
    /// The answer is not in memory and the call was not to wait: repeat it where it may.
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

/// What lseek(2) looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// The outcome of lseek(2) for data or holes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sought {
    /// Where it is; `None` if there are no more data (`ENXIO`).
    pub found: Option<u64>,
    /// The hole on which that rests: behind `found`, or before the data found. Empty if none was met.
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

/// What fallocate(2) should do with a range.
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
pub struct Looked {
    /// The file found.
    pub entry: Entry,
    /// For a directory: where the kernel was last told that it is, or has moved it, if that is elsewhere.
    pub moved_from: Option<InodeId>,
    /// For a directory: where the kernel was told before that it is, and may still have it.
    pub may_be_in: Option<InodeId>,
    /// `moved_from` or `may_be_in` is set, and the kernel has the directory above the one in which it was
    /// found. `d_splice_alias` refuses that as a loop.
    pub is_above: bool,
    /// This is the second lookup of a thread that was refused with `ESTALE`.
    pub again: bool,
}

/// What a listing hands out per name: the name, what it leads to, and its inode if inodes were asked for. `.`
/// and `..` are not among them. `Break` means that the name did not fit: it is listed again next time.
pub type Visit<'a> = &'a mut dyn FnMut(&Name, Dentry, Option<&Inode>) -> ControlFlow<()>;
