//! The kernel's notifications, in its own words (`linux/fuse.h`).
//!
//! | notification | what it drops | what it waits for |
//! |---|---|---|
//! | `INVAL_ENTRY` | one name, present or absent, and the directory's attributes | the directory's lock, exclusively |
//! | `INVAL_INODE` | attributes and ACLs, and the pages of a range: content, listing, link target | pages being read or written |
//! | the same from -1 on | attributes and ACLs | nothing |
//! | `PRUNE` | inodes of which no name is in use, with all that is cached of them | pages being read |
//! | `INC_EPOCH` | every name there is: each is looked up again when it is used next | nothing |

use crate::thread::keep_no_files_but;
use nix::errno::Errno;
use shoal_types::{InodeId, Name};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const INC_EPOCH: i32 = 8;
const PRUNE: i32 = 9;
/// In the place of an offset.
const NO_CONTENT: i64 = -1;
/// Length, code and an unused number.
const HEADER_BYTES: usize = 16;

/// `FUSE_DEV_IOC_CLONE`: makes an open `/dev/fuse` another end of a conversation under way.
const DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;

/// Whether the kernel had something to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    Yes,
    /// It knew nothing of it.
    Unknown,
    /// There is no kernel to tell: the mount has ended.
    Ended,
}

/// The way to the kernel.
pub(crate) struct Notifications {
    device: File,
}

impl Notifications {
    /// Of a mount, by any end of its conversation with the kernel. It gets an end of its own; see
    /// [`keep_nothing_else`](Self::keep_nothing_else).
    pub(crate) fn of(conversation: &File) -> io::Result<Notifications> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let fd = conversation.as_raw_fd() as u32;
        // SAFETY: the request reads four bytes from where it is pointed to.
        match unsafe { libc::ioctl(device.as_raw_fd(), DEV_IOC_CLONE, &raw const fd) } {
            0 => Ok(Notifications { device }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The same in another process, which has inherited it.
    pub(crate) fn inherited(device: File) -> Notifications {
        Notifications { device }
    }

    /// To be inherited.
    pub(crate) fn file(&self) -> &File {
        &self.device
    }

    /// For a thread that sends notifications: lets go of all files but the way to the kernel, for this thread only.
    pub(crate) fn keep_nothing_else(&self) {
        keep_no_files_but(Some(self.device.as_fd()));
    }

    /// Drops a name.
    pub(crate) fn entry(&self, dir: InodeId, name: &Name) -> nix::Result<Dropped> {
        let name = name.as_bytes();
        let mut body = Vec::with_capacity(16 + name.len() + 1);
        body.extend_from_slice(&dir.0.to_ne_bytes());
        body.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        body.extend_from_slice(&0u32.to_ne_bytes());
        body.extend_from_slice(name);
        body.push(0);
        self.send(INVAL_ENTRY, &body)
    }

    /// Drops attributes, and content from byte `offset` on; `len` 0 means up to the end.
    pub(crate) fn inode(&self, ino: InodeId, offset: i64, len: i64) -> nix::Result<Dropped> {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&ino.0.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..].copy_from_slice(&len.to_ne_bytes());
        self.send(INVAL_INODE, &body)
    }

    /// Drops attributes only. Never waits.
    pub(crate) fn attributes(&self, ino: InodeId) -> nix::Result<Dropped> {
        self.inode(ino, NO_CONTENT, 0)
    }

    /// Has the kernel forget those of these inodes that are not in use. Kernels before Linux 6.18 answer
    /// `EINVAL`.
    pub(crate) fn prune(&self, nodes: &[InodeId]) -> nix::Result<Dropped> {
        // A count, and twelve bytes that are not used yet.
        let mut body = vec![0; 16];
        body[..4].copy_from_slice(&(nodes.len() as u32).to_ne_bytes());
        body.extend(nodes.iter().flat_map(|node| node.0.to_ne_bytes()));
        self.send(PRUNE, &body)
    }

    /// Outdates every name.
    pub(crate) fn epoch(&self) -> nix::Result<Dropped> {
        self.send(INC_EPOCH, &[])
    }

    fn send(&self, code: i32, body: &[u8]) -> nix::Result<Dropped> {
        let len = HEADER_BYTES + body.len();
        let mut message = Vec::with_capacity(len);
        message.extend_from_slice(&(len as u32).to_ne_bytes());
        message.extend_from_slice(&code.to_ne_bytes());
        message.extend_from_slice(&0u64.to_ne_bytes());
        message.extend_from_slice(body);
        // One write is one message.
        match nix::unistd::write(&self.device, &message) {
            Ok(_) => Ok(Dropped::Yes),
            // The latter: the directory is known, but as something else by now.
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(Dropped::Unknown),
            Err(Errno::ENODEV | Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EPERM) => Ok(Dropped::Ended),
            Err(error) => Err(error),
        }
    }
}
