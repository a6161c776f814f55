//! The calls of a mounted volume. Every name below is that of the system call it serves.

use bytes::Bytes;
use shoal_namespace::{Dentry, RenameFlags, SetAttr, XattrSet};
use shoal_types::{Cookie, Errno, Inode, InodeId, Name, Statfs};
use std::ops::ControlFlow;

/// Whether a call may wait for a server, a brick, or for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Answer from memory or fail with [`Failure::WouldBlock`], having done nothing.
    Never,
    /// Wait as long as it takes.
    Allowed,
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

/// On whose behalf a file is made.
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
    /// Its number.
    pub ino: InodeId,
    /// Its record.
    pub inode: Inode,
}

/// Where lseek(2) should go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
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

/// What a listing hands out per name: the name, what it stands for, and its inode if inodes were asked for.
/// `.` and `..` are not among them. Breaking off means "this one did not fit": it is listed again next time.
pub type Visit<'a> = &'a mut dyn FnMut(&Name, Dentry, Option<&Inode>) -> ControlFlow<()>;

impl crate::Client {
    /// Finds a name; `None` if there is none. A file found gains a kernel reference (see [`forget`](Self::forget)).
    pub fn lookup(&self, wait: Wait, parent: InodeId, name: &[u8]) -> Reply<Option<Entry>> { todo!() }
    /// The kernel drops `count` of its references to an inode. An unlinked file dies with the last one.
    pub fn forget(&self, ino: InodeId, count: u64) { todo!() }
    /// Attributes of an inode.
    pub fn getattr(&self, wait: Wait, ino: InodeId) -> Reply<Inode> { todo!() }
    /// Changes attributes. `set.ctime` is filled in by the client; `None` in atime/mtime leaves them (the front end
    /// resolves UTIME_NOW). With `set.clear_setid` set-id bits are cleared.
    pub fn setattr(&self, wait: Wait, ino: InodeId, set: SetAttr) -> Reply<Inode> { todo!() }
    /// Target of a symbolic link.
    pub fn readlink(&self, wait: Wait, ino: InodeId) -> Reply<Bytes> { todo!() }
    /// mknod(2), mkdir(2), open(2) with `O_CREAT|O_EXCL`: makes a file of the kind in `mode`'s `S_IFMT` bits. Applies umask, default
    /// ACLs and set-group-id inheritance. The file gains a kernel reference.
    pub fn create(&self, wait: Wait, caller: &Caller, parent: InodeId, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> { todo!() }
    /// symlink(2). The link gains a kernel reference.
    pub fn symlink(&self, wait: Wait, caller: &Caller, parent: InodeId, name: &[u8], target: &[u8]) -> Reply<Entry> { todo!() }
    /// link(2). The file gains a kernel reference.
    pub fn link(&self, wait: Wait, ino: InodeId, parent: InodeId, name: &[u8]) -> Reply<Entry> { todo!() }
    /// unlink(2).
    pub fn unlink(&self, wait: Wait, parent: InodeId, name: &[u8]) -> Reply<()> { todo!() }
    /// rmdir(2).
    pub fn rmdir(&self, wait: Wait, parent: InodeId, name: &[u8]) -> Reply<()> { todo!() }
    /// renameat2(2).
    pub fn rename(&self, wait: Wait, from: InodeId, from_name: &[u8], to: InodeId, to_name: &[u8], flags: RenameFlags) -> Reply<()> { todo!() }
    /// pread(2): up to `len` bytes as a sequence of parts; fewer only at the end of the file.
    pub fn read(&self, wait: Wait, ino: InodeId, offset: u64, len: u32) -> Reply<Vec<Bytes>> { todo!() }
    /// pwrite(2): all of `data` or nothing. `clear_setid`: the writer lacks `CAP_FSETID` (`FUSE_WRITE_KILL_SUIDGID`).
    pub fn write(&self, wait: Wait, ino: InodeId, offset: u64, data: &[u8], clear_setid: bool) -> Reply<()> { todo!() }
    /// fallocate(2).
    pub fn fallocate(&self, wait: Wait, ino: InodeId, offset: u64, len: u64, what: Fallocate) -> Reply<()> { todo!() }
    /// copy_file_range(2): shares content instead of copying it. Answers how much was done (less at the source's end).
    pub fn copy_file_range(&self, wait: Wait, src: InodeId, src_offset: u64, dst: InodeId, dst_offset: u64, len: u64) -> Reply<u64> { todo!() }
    /// lseek(2) with `SEEK_DATA` and `SEEK_HOLE`.
    pub fn lseek(&self, wait: Wait, ino: InodeId, offset: u64, what: Seek) -> Reply<u64> { todo!() }
    /// fsync(2) of a file or directory, syncfs(2): everything done before is durable when this returns. Reports, once per
    /// inode, a write that was lost.
    pub fn fsync(&self, ino: InodeId) -> Result<(), Errno> { todo!() }
    /// Shows names after a cookie in the order of cookies until the end (then answers true) or until the visitor breaks off.
    /// With `inodes`, every name *accepted* by the visitor gains a kernel reference (readdirplus).
    pub fn readdir(&self, wait: Wait, dir: InodeId, after: Cookie, inodes: bool, visit: Visit<'_>) -> Reply<bool> { todo!() }
    /// getxattr(2); `ENODATA` if there is none.
    pub fn getxattr(&self, wait: Wait, ino: InodeId, name: &[u8]) -> Reply<Bytes> { todo!() }
    /// listxattr(2).
    pub fn listxattr(&self, wait: Wait, ino: InodeId) -> Reply<Vec<Name>> { todo!() }
    /// setxattr(2). Setting `system.posix_acl_access` also sets the mode bits it implies.
    pub fn setxattr(&self, wait: Wait, ino: InodeId, name: &[u8], value: &[u8], how: XattrSet) -> Reply<()> { todo!() }
    /// removexattr(2).
    pub fn removexattr(&self, wait: Wait, ino: InodeId, name: &[u8]) -> Reply<()> { todo!() }
    /// statfs(2).
    pub fn statfs(&self, wait: Wait) -> Reply<Statfs> { todo!() }
}
