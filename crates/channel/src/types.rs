//! Values of requests and replies.

use crate::abi;
use std::time::Duration;

/// The kernel's number for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount (`FUSE_ROOT_ID`).
    pub const ROOT: NodeId = NodeId(1);
}

/// The file system's number for an open file (`fh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// The owner of a lock: a hash of the process's file table, or of the open file for flock(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// The number of a request on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unique(pub u64);

/// A point in time: nanoseconds count forward from the second, also before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds, below a second.
    pub nanos: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// This time.
    At(Time),
}

/// Attributes, as in stat(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// The inode number that is shown.
    pub ino: u64,
    /// In bytes.
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// When it was made; only statx(2) shows it.
    pub btime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device file, the device.
    pub rdev: u32,
    /// The size for efficient reads and writes, in bytes.
    pub blksize: u32,
}

impl From<&Attr> for abi::Attr {
    fn from(attr: &Attr) -> abi::Attr {
        let Attr { ino, size, blocks, atime, mtime, ctime, btime: _, mode, nlink, uid, gid, rdev, blksize } =
            *attr;
        abi::Attr {
            ino,
            size,
            blocks,
            atime: atime.secs as u64,
            mtime: mtime.secs as u64,
            ctime: ctime.secs as u64,
            atimensec: atime.nanos,
            mtimensec: mtime.nanos,
            ctimensec: ctime.nanos,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags: 0,
        }
    }
}

impl From<&Attr> for abi::Statx {
    fn from(attr: &Attr) -> abi::Statx {
        let time = |time: Time| abi::SxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 };
        abi::Statx {
            mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            btime: time(attr.btime),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            // The kernel's `new_decode_dev`.
            rdev_major: (attr.rdev & 0xf_ff00) >> 8,
            rdev_minor: (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00),
            ..Default::default()
        }
    }
}

/// An inode in a reply, and for how long the kernel may cache it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The kernel's number for it; 0 stands for a name that is absent.
    pub node: NodeId,
    /// Tells inodes apart that had the same number at different times.
    pub generation: u64,
    /// For how long the kernel may use the name.
    pub name_lifetime: Duration,
    /// For how long the kernel may use the attributes.
    pub attr_lifetime: Duration,
    /// The attributes.
    pub attr: Attr,
}

impl From<&Entry> for abi::EntryOut {
    fn from(entry: &Entry) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: entry.node.0,
            generation: entry.generation,
            entry_valid: entry.name_lifetime.as_secs(),
            attr_valid: entry.attr_lifetime.as_secs(),
            entry_valid_nsec: entry.name_lifetime.subsec_nanos(),
            attr_valid_nsec: entry.attr_lifetime.subsec_nanos(),
            attr: (&entry.attr).into(),
        }
    }
}

/// Sizes of the file system, as in statfs(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// The unit of the three sizes, in bytes.
    pub unit_bytes: u32,
    /// Size of the file system.
    pub blocks: u64,
    /// Free space.
    pub blocks_free: u64,
    /// Free space for users other than root.
    pub blocks_available: u64,
    /// Inodes, free ones included.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name, in bytes.
    pub name_bytes_max: u32,
}

/// A lock of a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process.
    pub pid: u32,
}
