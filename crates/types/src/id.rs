//! Identifiers. None of them is ever reused.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An inode's number, unique in its volume for all time (`st_ino`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory of every volume (also `FUSE_ROOT_ID`).
    pub const ROOT: InodeId = InodeId(1);
    /// The first number handed out; those below are reserved for the system.
    pub const FIRST_FREE: InodeId = InodeId(16);
}

/// A mounted client, registered in the volume's metadata group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The metadata group itself, when its background work writes blocks (compaction).
    pub const SERVER: SessionId = SessionId(0);
}

/// The position of a batch in its session's journal, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct BatchSeq(pub u64);

impl BatchSeq {
    /// The batch after this one.
    pub fn next(self) -> BatchSeq {
        BatchSeq(self.0 + 1)
    }
}

/// An immutable block: the session that wrote it and a number of that session's choosing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// Who wrote the block.
    pub session: SessionId,
    /// Which of its blocks.
    pub seq: u64,
}

/// The set of bricks that hold a block's copies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct BlockGroupId(pub u32);

impl fmt::Debug for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.0)
    }
}
impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Debug for BatchSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {}", self.0)
    }
}
impl fmt::Display for BatchSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
/// A block is named `SESSION-SEQ` in hexadecimal, in messages and as a file on a brick.
impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.session.0, self.seq)
    }
}
impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {self}")
    }
}
impl fmt::Debug for BlockGroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block group {}", self.0)
    }
}
