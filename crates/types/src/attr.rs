//! An inode's attributes: all that is known of it besides its content and its names.

use crate::{InodeId, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FileKind {
    /// A file with content.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The `S_IFMT` bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }

    /// The kind in the `S_IFMT` bits of a mode; no bits at all mean a regular file, as in mknod(2).
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::Regular,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// Permission bits, see inode(7).
pub mod mode {
    /// Set-user-id.
    pub const SETUID: u32 = 0o4000;
    /// Set-group-id; on a directory: new files inherit the group.
    pub const SETGID: u32 = 0o2000;
    /// Only owners may remove names.
    pub const STICKY: u32 = 0o1000;
    /// The group may execute: without it, SETGID on a file does not mean set-group-id.
    pub const GROUP_EXEC: u32 = 0o010;
    /// All bits that chmod(2) changes.
    pub const ALL: u32 = 0o7777;
}

/// Inode flags, see ioctl_iflags(2) and chattr(1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct InodeFlags(pub u16);

impl InodeFlags {
    /// `FS_IMMUTABLE_FL`: neither the inode nor, if it is a directory, its names change.
    pub const IMMUTABLE: InodeFlags = InodeFlags(1 << 0);
    /// `FS_APPEND_FL`: content is only appended; a directory only gains names.
    pub const APPEND: InodeFlags = InodeFlags(1 << 1);
    /// `FS_NODUMP_FL`: kept for dump(8), without effect here.
    pub const NODUMP: InodeFlags = InodeFlags(1 << 2);
    /// `FS_NOATIME_FL`: kept, without effect: no access time is recorded anyway.
    pub const NOATIME: InodeFlags = InodeFlags(1 << 3);
    /// All flags that programs see and set.
    pub const ALL: InodeFlags = InodeFlags((1 << 4) - 1);
    /// The file was made without a name (`O_TMPFILE`) and has had none yet: it may get one, unlike a file
    /// that has lost its last name (the kernel's `I_LINKABLE`).
    pub const LINKABLE: InodeFlags = InodeFlags(1 << 15);
    /// Flags that only a caller with `CAP_LINUX_IMMUTABLE` changes.
    pub const PRIVILEGED: InodeFlags = InodeFlags(Self::IMMUTABLE.0 | Self::APPEND.0);

    /// Whether one of these flags is set.
    pub fn intersects(self, others: InodeFlags) -> bool {
        self.0 & others.0 != 0
    }

    /// The flags in which two values differ.
    pub fn difference(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 ^ other.0)
    }

    /// Those of the flags that are also in `others`.
    pub fn only(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & others.0)
    }

    /// Whether the immutable flag is set.
    pub fn is_immutable(self) -> bool {
        self.intersects(Self::IMMUTABLE)
    }

    /// Whether the append-only flag is set.
    pub fn is_append_only(self) -> bool {
        self.intersects(Self::APPEND)
    }
}

/// A file's record in the namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "StoredInode", from = "StoredInode")]
pub struct Inode {
    /// Never changes.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub perm: u32,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of the file; for a directory 2 and one for each sub-directory. 0: unlinked, and alive only for
    /// the sessions that still refer to it.
    pub nlink: u32,
    /// Device number of a device file, in the kernel's encoding (`new_encode_dev`).
    pub rdev: u32,
    /// Content length in bytes; of a symlink, the length of its target; of a directory, 0 (see `entries`).
    pub size: u64,
    /// Bytes of content that are stored or reserved, holes excluded (`st_blocks` times 512, rounded up).
    pub allocated: u64,
    /// Directories: number of names, `.` and `..` not counted.
    pub entries: u64,
    /// Last access, as set by utimensat(2): reading does not move it.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Tells uses of the same inode number apart, for NFS handles.
    pub generation: u64,
    /// Directories: the parent directory. Other inodes: the directory of their first name, which is their
    /// first cover.
    pub parent: InodeId,
    /// Has, or once had, a second name, and so is a cover of its own.
    pub multi_link: bool,
    /// Number of extended attributes.
    pub xattrs: u32,
    /// Target of a symbolic link; empty otherwise.
    pub target: Bytes,
}

/// An [`Inode`] as it is encoded, in records and messages.
///
/// The flags are in the upper half of the word of the permission bits. So an inode without flags has the
/// bytes that it had before there were flags, and a program that knows none reads all others: it leaves the
/// upper half out.
#[derive(Serialize, Deserialize)]
struct StoredInode {
    kind: FileKind,
    perm_and_flags: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    rdev: u32,
    size: u64,
    allocated: u64,
    entries: u64,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    btime: Timestamp,
    generation: u64,
    parent: InodeId,
    multi_link: bool,
    xattrs: u32,
    target: Bytes,
}

/// Where the flags begin in [`StoredInode::perm_and_flags`].
const FLAGS_SHIFT: u32 = 16;

impl From<Inode> for StoredInode {
    fn from(inode: Inode) -> StoredInode {
        StoredInode {
            kind: inode.kind,
            perm_and_flags: inode.perm | u32::from(inode.flags.0) << FLAGS_SHIFT,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            rdev: inode.rdev,
            size: inode.size,
            allocated: inode.allocated,
            entries: inode.entries,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
            generation: inode.generation,
            parent: inode.parent,
            multi_link: inode.multi_link,
            xattrs: inode.xattrs,
            target: inode.target,
        }
    }
}

impl From<StoredInode> for Inode {
    fn from(stored: StoredInode) -> Inode {
        Inode {
            kind: stored.kind,
            perm: stored.perm_and_flags & ((1 << FLAGS_SHIFT) - 1),
            flags: InodeFlags((stored.perm_and_flags >> FLAGS_SHIFT) as u16),
            uid: stored.uid,
            gid: stored.gid,
            nlink: stored.nlink,
            rdev: stored.rdev,
            size: stored.size,
            allocated: stored.allocated,
            entries: stored.entries,
            atime: stored.atime,
            mtime: stored.mtime,
            ctime: stored.ctime,
            btime: stored.btime,
            generation: stored.generation,
            parent: stored.parent,
            multi_link: stored.multi_link,
            xattrs: stored.xattrs,
            target: stored.target,
        }
    }
}

impl Inode {
    /// `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.perm
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The cover of this inode, `ino` being its own number. A directory, and an inode that has ever had
    /// several names, is its own cover. Every other inode is covered by its directory.
    pub fn cover(&self, ino: InodeId) -> InodeId {
        if self.is_dir() || self.multi_link { ino } else { self.parent }
    }

    /// What `st_size` shows. A directory shows a size that grows with its entries, as users of local file
    /// systems expect.
    pub fn shown_size(&self) -> u64 {
        if self.is_dir() { 4096 + self.entries * 32 } else { self.size }
    }

    /// `st_blocks`: units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.allocated.div_ceil(512)
    }
}

/// Room in a volume (`struct statvfs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Statfs {
    /// Bytes that the volume can hold.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Inodes in existence.
    pub inodes: u64,
    /// Inodes that can still be created.
    pub free_inodes: u64,
}
