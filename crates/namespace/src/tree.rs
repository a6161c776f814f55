//! What the operations need of a file-system tree: the trait that server and client implement.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockId, BlockInfo, Errno, Extent, FileKind, Inode, InodeId, Name, XattrName};

/// Why an operation did not happen. Nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault<E> {
    /// The caller gets this error.
    Errno(Errno),
    /// The tree could not answer: a client does not know that part yet, or a store failed.
    Tree(E),
}

impl<E> From<Errno> for Fault<E> {
    fn from(errno: Errno) -> Fault<E> {
        Fault::Errno(errno)
    }
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dentry {
    /// The inode.
    pub ino: InodeId,
    /// Its kind, for listings (`d_type`).
    pub kind: FileKind,
}

/// A tree of inodes, names, attributes and content.
///
/// Reads may fail with the tree's own error; writes may not. The operations keep the two apart: all reads
/// that can fail come before the first write.
///
/// Every method that answers with an error says so through [`Fault::Tree`]; `None` means "does not exist".
pub trait Tree {
    /// Why a read could not be answered.
    type Error;

    /// The inode's record.
    fn inode(&mut self, ino: InodeId) -> Result<Option<Inode>, Fault<Self::Error>>;
    /// Creates or replaces the record.
    fn put_inode(&mut self, ino: InodeId, inode: Inode);
    /// The inode is gone for good, with its extended attributes and content: its blocks lose their references
    /// (a store may do that part later, in bounded steps).
    fn destroy_inode(&mut self, ino: InodeId, last: &Inode);

    /// What the name stands for.
    fn dentry(&mut self, dir: InodeId, name: &Name) -> Result<Option<Dentry>, Fault<Self::Error>>;
    /// Creates or replaces the name.
    fn put_dentry(&mut self, dir: InodeId, name: &Name, dentry: Dentry);
    /// Removes the name.
    fn remove_dentry(&mut self, dir: InodeId, name: &Name);

    /// Value of an extended attribute.
    fn xattr(&mut self, ino: InodeId, name: &XattrName) -> Result<Option<Bytes>, Fault<Self::Error>>;
    /// Names and sizes of all extended attributes.
    fn xattr_sizes(&mut self, ino: InodeId) -> Result<Vec<(XattrName, usize)>, Fault<Self::Error>>;
    /// Creates or replaces the attribute.
    fn put_xattr(&mut self, ino: InodeId, name: &XattrName, value: Bytes);
    /// Removes the attribute.
    fn remove_xattr(&mut self, ino: InodeId, name: &XattrName);

    /// The extents that overlap `[start, end)`, whole, with their offsets, in order.
    fn extents(
        &mut self,
        ino: InodeId,
        start: u64,
        end: u64,
    ) -> Result<Vec<(u64, Extent)>, Fault<Self::Error>>;
    /// The extents that overlap or touch `[start, end)`, which is about to be replaced. Of inline extents
    /// within the range only the lengths are true: a store need not read their bytes.
    fn extents_to_replace(
        &mut self,
        ino: InodeId,
        start: u64,
        end: u64,
    ) -> Result<Vec<(u64, Extent)>, Fault<Self::Error>> {
        self.extents(ino, start.saturating_sub(1), end.saturating_add(1))
    }
    /// Creates or replaces the extent that begins at `offset`.
    fn put_extent(&mut self, ino: InodeId, offset: u64, extent: Extent);
    /// Removes the extent that begins at `offset`.
    fn remove_extent(&mut self, ino: InodeId, offset: u64);

    /// A block's existence is made known by a file; it has no references yet.
    fn declare_block(&mut self, ino: InodeId, id: BlockId, info: BlockInfo);
    /// One more extent refers to the block.
    fn add_block_ref(&mut self, id: BlockId);
    /// One extent fewer refers to the block; with the last one it is garbage.
    fn drop_block_ref(&mut self, id: BlockId);

    /// Whether sessions other than the acting one hold the inode: then it outlives its last name whatever
    /// this one does. A client returns false: inodes held by other sessions live on at the server, which
    /// checks again.
    fn is_held_elsewhere(&mut self, ino: InodeId) -> Result<bool, Fault<Self::Error>>;
    /// The session that acts holds the inode.
    fn hold(&mut self, ino: InodeId);
    /// The session that acts does not hold the inode, or no longer.
    fn release(&mut self, ino: InodeId);
}
