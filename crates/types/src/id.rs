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

/// An immutable block: the session that wrote it, and its number among the blocks of that session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// The session that wrote the block.
    pub session: SessionId,
    /// Its number in that session.
    pub seq: u64,
}

impl BlockId {
    /// The smallest id that a block of the session can have.
    pub const fn first_of(session: SessionId) -> BlockId {
        BlockId { session, seq: 0 }
    }
}

/// A machine of a cluster, numbered when it joined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// One run of a node's server. Each start of a data directory has a higher count than the one before; the
/// random part tells two processes apart that were started from copies of one directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Incarnation {
    /// Starts of the data directory so far, from 1; 0: no server (a client, or a command).
    pub starts: u64,
    /// Chosen at random by each process.
    pub instance: u64,
}

impl Incarnation {
    /// Whether this is a server at all.
    pub fn is_server(&self) -> bool {
        self.starts > 0
    }
}

/// A brick of a cluster, numbered when it was added to its volume, from 1. A brick that comes back empty is
/// another brick.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BrickId(pub u16);

/// A replica of a metadata group, from 1. A replica that lost its disk, and the vote it gave, returns as
/// another replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ReplicaId(pub u64);

/// A metadata group: the one of a volume, by the volume's identity, or the one that holds the cluster map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u128);

impl GroupId {
    /// The group that holds the cluster map.
    pub const CLUSTER: GroupId = GroupId(0);
}

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
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}
impl fmt::Display for BrickId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "brick {}", self.0)
    }
}
impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {}", self.0)
    }
}
impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == GroupId::CLUSTER { f.write_str("cluster") } else { write!(f, "{:032x}", self.0) }
    }
}
