//! What reads are answered with, in the namespace and on the wire.

use crate::Dentry;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockId, BlockInfo, Extent, Inode, InodeId, Name, XattrName};

/// What of a file comes along with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Prefetch {
    /// Name, number and kind only.
    Names,
    /// Inode and extended attributes too.
    Attributes,
    /// And extents, where they are few and what is inline of them is short.
    Contents,
}

/// An inode with what belongs to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its number.
    pub ino: InodeId,
    /// Its record.
    pub inode: Inode,
    /// All its extended attributes.
    pub xattrs: Vec<(XattrName, Bytes)>,
    /// All its extents, if they are few, what is inline of them is short, and contents were asked for.
    pub extents: Option<Vec<(u64, Extent)>>,
    /// Every block that these name, once.
    pub blocks: Vec<(BlockId, BlockInfo)>,
}

/// One name of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name; its cookie follows from it.
    pub name: Name,
    /// What it stands for.
    pub dentry: Dentry,
    /// More of it, as asked for.
    pub record: Option<FileRecord>,
}

/// Part of a directory, in the order of cookies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListReply {
    /// Entries after the cookie that was given. All names of one cookie come together.
    pub entries: Vec<DirEntry>,
    /// Whether the directory ends here.
    pub end: bool,
}

/// A directory on the way of a walk, whole; `None` if it is no more, or too long.
pub type WalkEntry = (InodeId, Option<Vec<DirEntry>>);

/// Directories in the requested order, until the answer is long enough. A directory in which another client
/// works may be left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WalkReply {
    /// The directories.
    pub dirs: Vec<WalkEntry>,
}

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LookupReply {
    /// The entry and its file, or `None`: there is no such name.
    pub found: Option<(Dentry, FileRecord)>,
}

/// Part of a file's content map.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExtentsReply {
    /// Whole extents with their offsets, in order.
    pub extents: Vec<(u64, Extent)>,
    /// Every block they name, once.
    pub blocks: Vec<(BlockId, BlockInfo)>,
    /// Whether there are more extents in the range.
    pub more: bool,
}
