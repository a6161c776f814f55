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

/// A file's record in the namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inode {
    /// Never changes.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub perm: u32,
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
