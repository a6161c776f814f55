//! What a check can find.

use shoal_types::{BlockId, InodeId, Name, SessionId};

/// Something in a volume's state that does not fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Finding {
    #[error("record {key}: {what}")]
    Damaged { key: String, what: String },
    #[error("inode {ino} counts {counted} links but has {found}")]
    LinkCount { ino: InodeId, counted: u32, found: u32 },
    #[error("directory {dir} counts {counted} names but has {found}")]
    EntryCount { dir: InodeId, counted: u64, found: u64 },
    #[error("directory {dir} has {found} names")]
    DirectoryLinks { dir: InodeId, found: u32 },
    #[error("inode {ino} has {found} names, but is not marked as having had several")]
    NotMultiLink { ino: InodeId, found: u32 },
    #[error("inode {ino} says it is in directory {parent}, but its name {name:?} is in {dir}")]
    Parent { ino: InodeId, parent: InodeId, dir: InodeId, name: Name },
    #[error("directory {dir} cannot be reached from the root")]
    Unreachable { dir: InodeId },
    #[error("name {name:?} is in {dir}, which is not there, or is no directory, or was removed")]
    NoDirectory { dir: InodeId, name: Name },
    #[error("name {name:?} in {dir} stands for inode {ino}, which is not there")]
    NoInode { dir: InodeId, name: Name, ino: InodeId },
    #[error("name {name:?} in {dir} is of another kind than its inode {ino}")]
    Kind { dir: InodeId, name: Name, ino: InodeId },
    #[error("the root directory is not there")]
    NoRoot,
    #[error("inode {ino} has no name, and no session holds it")]
    Lost { ino: InodeId },
    #[error("{session} holds inode {ino}, but {what}")]
    Hold { session: SessionId, ino: InodeId, what: &'static str },
    #[error("record of inode {ino}, which is not there: {what}")]
    NoOwner { ino: InodeId, what: &'static str },
    #[error("inode {ino}: {what}")]
    Inode { ino: InodeId, what: String },
    #[error("inode {ino}, extent at {offset}: {what}")]
    Extent { ino: InodeId, offset: u64, what: &'static str },
    #[error("inode {ino} counts {counted} extended attributes but has {found}")]
    XattrCount { ino: InodeId, counted: u64, found: u64 },
    #[error("inode {ino} counts {counted} extents but has {found}")]
    ExtentCount { ino: InodeId, counted: u64, found: u64 },
    #[error("inode {ino} counts {counted} allocated bytes but has {found}")]
    Allocated { ino: InodeId, counted: u64, found: u64 },
    #[error("{id} counts {counted} references but has {found}")]
    BlockRefs { id: BlockId, counted: u64, found: u64 },
    #[error("{id} is referred to, but nothing is known of it")]
    NoBlock { id: BlockId },
    #[error("{id} has {len} bytes, but content refers to {end}")]
    BlockLength { id: BlockId, len: u32, end: u32 },
    #[error("{id} is on the garbage list, but {what}")]
    Garbage { id: BlockId, what: &'static str },
    #[error("{id} is garbage, but not on the list")]
    NotGarbage { id: BlockId },
    #[error("{id} {what}")]
    Degraded { id: BlockId, what: &'static str },
    #[error("{id} {what}")]
    Heat { id: BlockId, what: &'static str },
    #[error("inode {ino} {what}")]
    Work { ino: InodeId, what: &'static str },
    #[error("{session}: {what}")]
    Session { session: SessionId, what: &'static str },
    #[error("the volume counts {counted} {what} but has {found}")]
    Counter { what: &'static str, counted: u64, found: u64 },
}
