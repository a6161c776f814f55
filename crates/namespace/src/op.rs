//! The operations of the namespace, as clients record them in their journals and servers apply them.
//!
//! An operation carries everything that its outcome depends on: times, inode numbers, modes after umask and
//! inheritance.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockId, BlockInfo, Extent, FileKind, InodeFlags, InodeId, Name, Timestamp, XattrName};

/// The first version of encoded operations with inode flags and unnamed files.
pub const OPS_VERSION_FLAGS: u8 = 2;

/// One change of the namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Makes a file of any kind and its first name. `EEXIST` if the name is taken.
    Create {
        /// The directory.
        parent: InodeId,
        /// The name in it.
        name: Name,
        /// The new inode's number, from the session's grant and never used before.
        ino: InodeId,
        /// The new inode.
        new: NewInode,
    },
    /// Gives a file that is not a directory another name.
    Link {
        /// The file.
        ino: InodeId,
        /// The directory of the new name.
        parent: InodeId,
        /// The new name.
        name: Name,
        /// ctime of the file; mtime and ctime of the directory.
        time: Timestamp,
    },
    /// Removes a name of something that is not a directory.
    Unlink {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Name,
        /// ctime of the file; mtime and ctime of the directory.
        time: Timestamp,
        /// Whether the session still refers to the file: then, if this was the last name, the session holds
        /// it until [`Op::Forget`] or its own end. Otherwise it does not, even if it did before. The file
        /// dies at once if no session holds it.
        keep: bool,
    },
    /// Removes an empty directory. `ENOTEMPTY` otherwise.
    Rmdir {
        /// The directory that holds the name.
        parent: InodeId,
        /// The name.
        name: Name,
        /// mtime and ctime of the parent.
        time: Timestamp,
        /// As in [`Op::Unlink`].
        keep: bool,
    },
    /// Moves a name, see rename(2) and renameat2(2). What the new name stood for loses a name, as by unlink
    /// or rmdir. Two names of one file: nothing happens. A directory is never moved below itself (`EINVAL`).
    Rename {
        /// The directory of the old name.
        from: InodeId,
        /// The old name.
        from_name: Name,
        /// The directory of the new name.
        to: InodeId,
        /// The new name.
        to_name: Name,
        /// NOREPLACE, EXCHANGE.
        flags: RenameFlags,
        /// ctime of what moved and what was replaced; mtime and ctime of both directories.
        time: Timestamp,
        /// Whether the session still refers to the file that is replaced, as in [`Op::Unlink`].
        keep: bool,
    },
    /// Changes attributes; a change of size cuts the content off or extends it with a hole.
    SetAttr {
        /// The inode.
        ino: InodeId,
        /// What to change.
        set: SetAttr,
    },
    /// Puts content at an offset in place of whatever was there (`Some`), or makes a hole (`None`).
    /// The file grows to `size_min` if it is shorter; it never shrinks.
    Write {
        /// The file.
        ino: InodeId,
        /// Where, in bytes.
        offset: u64,
        /// Length in bytes, more than 0; equal to the content's where there is one.
        len: u64,
        /// The new content. [`Extent::Zero`] (fallocate) fills only what is not allocated yet and leaves
        /// bytes that are there alone.
        content: Option<Extent>,
        /// The file is at least this long afterwards: `offset + len` for a write, 0 with
        /// `FALLOC_FL_KEEP_SIZE`.
        size_min: u64,
        /// mtime and ctime of the file.
        time: Timestamp,
        /// Whether set-user-id, set-group-id (of group-executable files) and `security.capability` are lost,
        /// as on every write by anyone without `CAP_FSETID`.
        clear_setid: bool,
        /// The block in `content`, where this is the first operation to name it: it is declared here.
        declare: Option<(BlockId, BlockInfo)>,
    },
    /// Makes a range of one file share the content of another's (`copy_file_range(2)`, reflink).
    /// Holes become holes. Ranges in one file must not overlap (`EINVAL`).
    CloneRange {
        /// The source.
        src: InodeId,
        /// Where in it.
        src_offset: u64,
        /// The target.
        dst: InodeId,
        /// Where in it.
        dst_offset: u64,
        /// How many bytes; must lie within the source's size.
        len: u64,
        /// mtime and ctime of the target.
        time: Timestamp,
        /// As in [`Op::Write`].
        clear_setid: bool,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// The inode.
        ino: InodeId,
        /// Its full name, with prefix (`user.comment`).
        name: XattrName,
        /// Its value.
        value: Bytes,
        /// XATTR_CREATE, XATTR_REPLACE.
        how: XattrSet,
        /// ctime of the inode.
        time: Timestamp,
    },
    /// Removes an extended attribute; `ENODATA` if there is none.
    RemoveXattr {
        /// The inode.
        ino: InodeId,
        /// Its full name.
        name: XattrName,
        /// ctime of the inode.
        time: Timestamp,
    },
    /// The session does not refer to an inode any more, and does not hold it from now on. The inode dies if
    /// it has no name and no other holder. A session cannot always know what it holds: without a hold or an
    /// inode, nothing happens.
    Forget {
        /// The inode.
        ino: InodeId,
    },
    /// Merges extents: if the range holds exactly the `expected` extents, `block` takes their place. The
    /// content stays the same. If the range has changed since, nothing happens, and the block is garbage.
    Compact {
        /// The file.
        ino: InodeId,
        /// Where the range begins; it is as long as the block.
        offset: u64,
        /// What was merged, with offsets in the file.
        expected: Vec<(u64, Extent)>,
        /// The block that holds the bytes now.
        block: BlockId,
        /// Its length and place.
        info: BlockInfo,
    },
    /// Sets the inode flags, all of them. What they forbid is `EPERM` from then on.
    SetFlags {
        /// The inode.
        ino: InodeId,
        /// The flags.
        flags: InodeFlags,
        /// ctime of the inode.
        time: Timestamp,
    },
    /// Makes a file with content and without a name, see `O_TMPFILE` in open(2). The session refers to it. It
    /// may get a name by [`Op::Link`]; otherwise it dies with the last reference.
    CreateUnnamed {
        /// The directory, in which nothing changes.
        parent: InodeId,
        /// The new inode's number, as in [`Op::Create`].
        ino: InodeId,
        /// The new inode.
        new: NewInode,
    },
}

impl Op {
    /// When it was done, where that is known.
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            Op::Create { new, .. } | Op::CreateUnnamed { new, .. } => Some(new.time),
            Op::SetAttr { set, .. } => set.ctime,
            Op::Link { time, .. }
            | Op::Unlink { time, .. }
            | Op::Rmdir { time, .. }
            | Op::Rename { time, .. }
            | Op::Write { time, .. }
            | Op::CloneRange { time, .. }
            | Op::SetXattr { time, .. }
            | Op::RemoveXattr { time, .. }
            | Op::SetFlags { time, .. } => Some(*time),
            Op::Forget { .. } | Op::Compact { .. } => None,
        }
    }

    /// The first version of encoded operations that has it: see [`codec`](crate::codec).
    pub fn version(&self) -> u8 {
        if matches!(self, Op::SetFlags { .. } | Op::CreateUnnamed { .. }) { OPS_VERSION_FLAGS } else { 1 }
    }
}

/// What a new inode starts with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewInode {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits after umask, ACL and set-group-id inheritance.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group, after inheritance.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Target of a symlink.
    pub target: Bytes,
    /// All four times.
    pub time: Timestamp,
    /// Generation of the number.
    pub generation: u64,
    /// Extended attributes it is born with (inherited ACLs), sorted by name.
    pub xattrs: Vec<(XattrName, Bytes)>,
}

/// Flags of renameat2(2). Both together are `EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RenameFlags {
    /// `RENAME_NOREPLACE`: `EEXIST` if the new name is taken.
    pub no_replace: bool,
    /// `RENAME_EXCHANGE`: both names must exist; they are swapped.
    pub exchange: bool,
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Content length. `EISDIR`/`EINVAL` on what has no content.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of anything; set with everything else.
    pub ctime: Option<Timestamp>,
    /// As in [`Op::Write`], for truncate and chown.
    pub clear_setid: bool,
}

/// Flags of setxattr(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum XattrSet {
    /// Create or replace.
    #[default]
    Any,
    /// `XATTR_CREATE`: `EEXIST` if it is there.
    Create,
    /// `XATTR_REPLACE`: `ENODATA` if it is not.
    Replace,
}
