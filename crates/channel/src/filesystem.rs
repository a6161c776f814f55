//! The trait of a file system: one method for each request, and the dispatch to them.

use crate::abi::InitFlags;
use crate::reply::*;
use crate::request::{
    CopyFileRange, Fallocate, Ioctl, LockRequest, Make, Operation, Read, Request, SetAttr, SetXattr, Write,
};
use crate::types::{FileHandle, LockOwner, NodeId, Unique};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

/// INIT of the kernel: the version and the capabilities that it offers.
#[derive(Clone, Copy, Debug)]
pub struct InitRequest {
    /// Major and minor version of its protocol.
    pub version: (u32, u32),
    /// Its capabilities.
    pub flags: InitFlags,
}

/// The reply to INIT: what the file system chooses.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The capabilities that the file system uses, out of those offered.
    pub flags: InitFlags,
    /// Largest read or write request, in bytes.
    pub request_bytes_max: u32,
    /// Read-ahead and writeback requests that may be in flight at once.
    pub background_max: u16,
}

/// A file system. Each thread that takes requests from the kernel has a value of its own, whose methods it
/// calls: a method that blocks delays further requests. Each gets the reply object of its request, which may
/// be sent later.
pub trait Filesystem: Send + Sized + 'static {
    /// The mount begins. An error ends it.
    fn init(&mut self, offer: &InitRequest) -> io::Result<Settings>;
    /// A value for one more thread that takes requests.
    fn for_thread(&self) -> Self;
    /// The mount has ended, after all threads and their values.
    fn destroy(&mut self) -> io::Result<()>;

    /// LOOKUP of a name in the directory `req.node()`.
    fn lookup(&mut self, req: &Request, name: &OsStr, reply: ReplyEntry);
    /// FORGET: the kernel drops `nlookup` references to an inode.
    fn forget(&mut self, node: NodeId, nlookup: u64);
    /// Creates a file of any type but directory.
    fn mknod(&mut self, req: &Request, make: Make<'_>, reply: ReplyEntry);
    /// Creates a directory.
    fn mkdir(&mut self, req: &Request, make: Make<'_>, reply: ReplyEntry);
    /// Creates a file, and opens it.
    fn create(&mut self, req: &Request, make: Make<'_>, reply: ReplyCreate);
    /// Creates a file without a name in a directory, and opens it (`O_TMPFILE`).
    fn tmpfile(&mut self, req: &Request, make: Make<'_>, reply: ReplyCreate);
    /// Creates a symbolic link.
    fn symlink(&mut self, req: &Request, name: &OsStr, target: &OsStr, reply: ReplyEntry);
    /// Creates another name (hard link) for the inode `node`.
    fn link(&mut self, req: &Request, node: NodeId, name: &OsStr, reply: ReplyEntry);
    /// Removes a name of a file.
    fn unlink(&mut self, req: &Request, name: &OsStr, reply: ReplyEmpty);
    /// Removes an empty directory.
    fn rmdir(&mut self, req: &Request, name: &OsStr, reply: ReplyEmpty);
    /// Renames to a name of another directory, or of the same. `flags` are those of renameat2(2).
    fn rename(
        &mut self,
        req: &Request,
        name: &OsStr,
        new_dir: NodeId,
        new_name: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    );
    /// The target of a symbolic link.
    fn readlink(&mut self, req: &Request, reply: ReplyData);
    /// Names of a directory, from an offset on.
    fn readdir(&mut self, req: &Request, offset: u64, reply: ReplyDirectory);
    /// Names of a directory with their inodes, from an offset on.
    fn readdirplus(&mut self, req: &Request, offset: u64, reply: ReplyDirectoryPlus);

    /// Attributes, for GETATTR and STATX; `handle` is an open file if the caller has named one.
    fn getattr(&mut self, req: &Request, handle: Option<FileHandle>, reply: ReplyAttr);
    /// Changes attributes.
    fn setattr(&mut self, req: &Request, set: SetAttr, reply: ReplyAttr);
    /// Sizes of the file system.
    fn statfs(&mut self, req: &Request, reply: ReplyStatfs);

    /// Reads content.
    fn read(&mut self, req: &Request, read: Read, reply: ReplyData);
    /// Writes content.
    fn write(&mut self, req: &Request, write: Write<'_>, reply: ReplyWrite);
    /// Allocates space, or frees it.
    fn fallocate(&mut self, req: &Request, what: Fallocate, reply: ReplyEmpty);
    /// Copies content from `req.node()`.
    fn copy_file_range(&mut self, req: &Request, copy: CopyFileRange, reply: ReplyWrite);
    /// Looks for data or holes (`SEEK_DATA`, `SEEK_HOLE`).
    fn lseek(&mut self, req: &Request, offset: i64, whence: i32, reply: ReplyLseek);
    /// Makes a file durable.
    fn fsync(&mut self, req: &Request, reply: ReplyEmpty);
    /// Makes the names of a directory durable.
    fn fsyncdir(&mut self, req: &Request, reply: ReplyEmpty);

    /// An extended attribute, for which the caller has `size` bytes; with 0, how large it is.
    fn getxattr(&mut self, req: &Request, name: &OsStr, size: u32, reply: ReplyXattr);
    /// The names of extended attributes, for which the caller has `size` bytes; with 0, how large they are.
    fn listxattr(&mut self, req: &Request, size: u32, reply: ReplyXattr);
    /// Sets an extended attribute.
    fn setxattr(&mut self, req: &Request, set: SetXattr<'_>, reply: ReplyEmpty);
    /// Removes an extended attribute.
    fn removexattr(&mut self, req: &Request, name: &OsStr, reply: ReplyEmpty);

    /// Opens a file. `ENOSYS` says that no such message is needed (`FUSE_NO_OPEN_SUPPORT`).
    fn open(&mut self, req: &Request, flags: i32, reply: ReplyOpen);
    /// Opens a directory. `ENOSYS` says that no such message is needed (`FUSE_NO_OPENDIR_SUPPORT`).
    fn opendir(&mut self, req: &Request, reply: ReplyOpen);
    /// A file descriptor is closed. `ENOSYS` says that no such message is needed.
    fn flush(&mut self, req: &Request, owner: LockOwner, reply: ReplyEmpty);
    /// The last descriptor of an open file is closed.
    fn release(&mut self, req: &Request, handle: FileHandle, reply: ReplyEmpty);

    /// GETLK: a lock that conflicts with this one.
    fn getlk(&mut self, req: &Request, wanted: LockRequest, reply: ReplyLock);
    /// Acquires a lock, or releases it. With `wait`, the reply is sent once the lock is granted.
    fn setlk(&mut self, req: &Request, wanted: LockRequest, wait: bool, reply: ReplyEmpty);
    /// ioctl(2); `ENOTTY` for an unknown one.
    fn ioctl(&mut self, req: &Request, ioctl: Ioctl<'_>, reply: ReplyIoctl);
    /// INTERRUPT: the caller of a request got a signal. The request should be answered soon, with `EINTR` if
    /// nothing was done. This may arrive before the request.
    fn interrupt(&mut self, unique: Unique);

    /// A request that the file system does not support. After `ENOSYS` the kernel does not send most of these
    /// again.
    fn refuse(&mut self, what: Refused, reply: ReplyEmpty);
}

/// Requests that are always refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// access(2): the kernel checks permissions itself with `default_permissions`.
    Access,
    /// poll(2).
    Poll,
    /// Blocks of a device.
    Bmap,
    /// Any other operation.
    Unknown,
}

/// Hands a request to the file system. False after DESTROY.
pub(crate) fn dispatch(
    filesystem: &mut impl Filesystem,
    req: &Request,
    operation: Operation<'_>,
    path: Arc<dyn ReplyPath>,
) -> bool {
    let due = || Reply::new(req.unique(), path);
    match operation {
        Operation::Interrupt(unique) => filesystem.interrupt(unique),
        Operation::Forget { nlookup } => filesystem.forget(req.node(), nlookup),
        Operation::BatchForget(all) => {
            all.iter().for_each(|(node, nlookup)| filesystem.forget(node, nlookup));
        }
        Operation::Destroy => {
            ReplyEmpty(due()).ok();
            return false;
        }

        Operation::Lookup { name } => filesystem.lookup(req, name, ReplyEntry(due())),
        Operation::Mknod(make) => filesystem.mknod(req, make, ReplyEntry(due())),
        Operation::Mkdir(make) => filesystem.mkdir(req, make, ReplyEntry(due())),
        Operation::Create(make) => filesystem.create(req, make, ReplyCreate(due())),
        Operation::Tmpfile(make) => filesystem.tmpfile(req, make, ReplyCreate(due())),
        Operation::Symlink { name, target } => filesystem.symlink(req, name, target, ReplyEntry(due())),
        Operation::Link { node, name } => filesystem.link(req, node, name, ReplyEntry(due())),
        Operation::Unlink { name } => filesystem.unlink(req, name, ReplyEmpty(due())),
        Operation::Rmdir { name } => filesystem.rmdir(req, name, ReplyEmpty(due())),
        Operation::Rename { name, new_dir, new_name, flags } => {
            filesystem.rename(req, name, new_dir, new_name, flags, ReplyEmpty(due()));
        }
        Operation::Readlink => filesystem.readlink(req, ReplyData(due())),
        Operation::Readdir(Read { offset, size, .. }) => {
            filesystem.readdir(req, offset, ReplyDirectory::new(due(), size));
        }
        Operation::Readdirplus(Read { offset, size, .. }) => {
            filesystem.readdirplus(req, offset, ReplyDirectoryPlus::new(due(), size));
        }

        Operation::Getattr { handle } => filesystem.getattr(req, handle, ReplyAttr::new(due(), false)),
        Operation::Statx { handle } => filesystem.getattr(req, handle, ReplyAttr::new(due(), true)),
        Operation::Setattr(set) => filesystem.setattr(req, set, ReplyAttr::new(due(), false)),
        Operation::Statfs => filesystem.statfs(req, ReplyStatfs(due())),

        Operation::Read(read) => filesystem.read(req, read, ReplyData(due())),
        Operation::Write(write) => filesystem.write(req, write, ReplyWrite(due())),
        Operation::Fallocate(what) => filesystem.fallocate(req, what, ReplyEmpty(due())),
        Operation::CopyFileRange(copy) => filesystem.copy_file_range(req, copy, ReplyWrite(due())),
        Operation::Lseek { offset, whence } => {
            filesystem.lseek(req, offset, whence, ReplyLseek(due()));
        }
        Operation::Fsync => filesystem.fsync(req, ReplyEmpty(due())),
        Operation::Fsyncdir => filesystem.fsyncdir(req, ReplyEmpty(due())),

        Operation::Getxattr { name, size } => filesystem.getxattr(req, name, size, ReplyXattr(due())),
        Operation::Listxattr { size } => filesystem.listxattr(req, size, ReplyXattr(due())),
        Operation::Setxattr(set) => filesystem.setxattr(req, set, ReplyEmpty(due())),
        Operation::Removexattr { name } => filesystem.removexattr(req, name, ReplyEmpty(due())),

        Operation::Open { flags } => filesystem.open(req, flags, ReplyOpen(due())),
        Operation::Opendir => filesystem.opendir(req, ReplyOpen(due())),
        Operation::Flush { owner } => filesystem.flush(req, owner, ReplyEmpty(due())),
        Operation::Release { handle } => filesystem.release(req, handle, ReplyEmpty(due())),
        // Directories are opened without a message, or have nothing to release.
        Operation::Releasedir => ReplyEmpty(due()).ok(),

        Operation::Getlk(wanted) => filesystem.getlk(req, wanted, ReplyLock(due())),
        Operation::Setlk { request, wait } => filesystem.setlk(req, request, wait, ReplyEmpty(due())),

        Operation::Ioctl(ioctl) => filesystem.ioctl(req, ioctl, ReplyIoctl(due())),

        Operation::Access => filesystem.refuse(Refused::Access, ReplyEmpty(due())),
        Operation::Poll => filesystem.refuse(Refused::Poll, ReplyEmpty(due())),
        Operation::Bmap => filesystem.refuse(Refused::Bmap, ReplyEmpty(due())),
        Operation::Unknown => {
            tracing::debug!(opcode = req.opcode(), "the kernel sent an unknown request");
            filesystem.refuse(Refused::Unknown, ReplyEmpty(due()));
        }
        // A second INIT on one connection.
        Operation::Init(_) => ReplyEmpty(due()).error(libc::EIO),
    }
    true
}
