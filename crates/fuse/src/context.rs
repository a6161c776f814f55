//! The context of a request of the kernel: its kind, inode and calling thread, and the kernel locks that it
//! holds. Made when the request is read, and passed along until it is answered.

use shoal_channel::Request;
use shoal_client::Caller;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::fmt;

macro_rules! ops {
    ($($op:ident = $name:literal,)*) => {
        /// The kinds of requests.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Op { $($op,)* }

        impl Op {
            pub(crate) const ALL: &[Op] = &[$(Op::$op,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Op::$op => $name,)* }
            }
        }
    };
}

ops! {
    Lookup = "lookup",
    Forget = "forget",
    Getattr = "getattr",
    Setattr = "setattr",
    Readlink = "readlink",
    Mknod = "mknod",
    Mkdir = "mkdir",
    Create = "create",
    Tmpfile = "tmpfile",
    Symlink = "symlink",
    Link = "link",
    Unlink = "unlink",
    Rmdir = "rmdir",
    Rename = "rename",
    Open = "open",
    Opendir = "opendir",
    Read = "read",
    Write = "write",
    Flush = "flush",
    Release = "release",
    Releasedir = "releasedir",
    Getlk = "getlk",
    Setlk = "setlk",
    Setlkw = "setlkw",
    Fsync = "fsync",
    Fsyncdir = "fsyncdir",
    Readdir = "readdir",
    Readdirplus = "readdirplus",
    Statfs = "statfs",
    Getxattr = "getxattr",
    Listxattr = "listxattr",
    Setxattr = "setxattr",
    Removexattr = "removexattr",
    Access = "access",
    Lseek = "lseek",
    Fallocate = "fallocate",
    CopyFileRange = "copy_file_range",
    Ioctl = "ioctl",
    Poll = "poll",
    Bmap = "bmap",
}

impl Op {
    /// Whether the call goes on if its caller was killed while it waits. It may be carried out already, and
    /// wait for bricks, or until changes or a lock's release are durable. What OPEN has opened is closed.
    pub(crate) fn goes_on_without_its_caller(self) -> bool {
        matches!(self, Op::Read | Op::Fsync | Op::Fsyncdir | Op::Open | Op::Flush)
    }

    /// Whether the request names an inode that the kernel has, and no name: if the inode does not exist, it
    /// was removed.
    pub(crate) fn is_of_inode(self) -> bool {
        use Op::{
            CopyFileRange, Fallocate, Getattr, Getxattr, Ioctl, Listxattr, Lseek, Read, Removexattr, Setattr,
            Setxattr, Write,
        };
        matches!(
            self,
            Getattr
                | Setattr
                | Read
                | Write
                | Getxattr
                | Listxattr
                | Setxattr
                | Removexattr
                | Lseek
                | Fallocate
                | CopyFileRange
                | Ioctl
        )
    }
}

/// A write to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub ino: InodeId,
    pub offset: u64,
    pub len: u64,
}

/// The kernel locks that a request holds while it is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    /// No lock that a notification needs.
    Nothing,
    /// The inode lock of a directory or another inode.
    Dir(InodeId),
    /// Directories in which thread `by` changes names; equal if it is only one.
    Names { dirs: [InodeId; 2], by: u32 },
    /// Locked pages of a file.
    Pages(Write),
}

impl Holds {
    /// The locks of a thread that changes names in one directory.
    pub(crate) fn names(dir: InodeId, by: u32) -> Holds {
        Holds::Names { dirs: [dir, dir], by }
    }

    /// The locks of a thread that looks a name up, perhaps in order to change names in these directories.
    pub(crate) fn of_looks(by: u32, dirs: &Option<Vec<InodeId>>) -> Holds {
        match dirs.as_deref() {
            Some([dir]) => Holds::names(*dir, by),
            Some([one, other]) => Holds::Names { dirs: [*one, *other], by },
            _ => Holds::Nothing,
        }
    }
}

/// A request of the kernel while it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub op: Op,
    /// The inode that it is about; of requests about names, their directory.
    pub ino: InodeId,
    /// The calling thread; 0 if that is not known.
    pub thread: u32,
    pub uid: u32,
    pub gid: u32,
    /// The kernel locks that the request holds.
    pub holds: Holds,
    /// When the request was read from the kernel.
    pub begun: Instant,
    /// The copy of the counters in which it is counted: that of the thread that has read it.
    pub shard: usize,
    /// It is counted for no inode.
    pub is_unnamed: bool,
    /// It continues on another thread.
    pub is_slow: bool,
}

impl Context {
    /// Of a request that is read now.
    pub(crate) fn new(op: Op, ino: InodeId) -> Context {
        Context {
            op,
            ino,
            thread: 0,
            uid: 0,
            gid: 0,
            holds: Holds::Nothing,
            begun: Instant::now(),
            shard: 0,
            is_unnamed: false,
            is_slow: false,
        }
    }

    /// Of a request with this header.
    pub(crate) fn by(self, req: &Request) -> Context {
        Context { thread: req.pid(), uid: req.uid(), gid: req.gid(), ..self }
    }

    /// The request is counted for no inode.
    pub(crate) fn unnamed(self) -> Context {
        Context { is_unnamed: true, ..self }
    }

    /// The request continues on another thread.
    pub(crate) fn slow(self) -> Context {
        Context { is_slow: true, ..self }
    }

    /// The inode for which the request is counted.
    pub(crate) fn counted(&self) -> Option<InodeId> {
        (!self.is_unnamed).then_some(self.ino)
    }

    /// The user on whose behalf a file is made.
    pub(crate) fn caller(&self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.op.name().to_uppercase())?;
        if let Some(ino) = self.counted() {
            write!(f, " of inode {}", ino.0)?;
        }
        match self.thread {
            0 => Ok(()),
            thread => write!(f, " by process {thread}"),
        }
    }
}
