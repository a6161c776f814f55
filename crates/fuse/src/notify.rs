//! The kernel's notifications (`linux/fuse.h`).
//!
//! | notification | invalidates | waits for |
//! |---|---|---|
//! | `INVAL_ENTRY` | one dentry, positive or negative, and the directory's attributes | the directory's inode lock, exclusively |
//! | `INVAL_INODE` | attributes, ACLs, and a range of the page cache: content, listing, link target | pages being read or written |
//! | `INVAL_INODE` from offset -1 | attributes and ACLs | nothing |
//! | `PRUNE` | inodes without dentries in use, with all that is cached of them | pages being read |
//! | `INC_EPOCH` | every dentry of the mount: each is looked up again at its next use | nothing |

use crate::thread::keep_no_files_but;
use nix::errno::Errno;
use shoal_types::{InodeId, Name};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const INC_EPOCH: i32 = 8;
const PRUNE: i32 = 9;
/// The offset for an invalidation without content.
pub(crate) const NO_CONTENT: i64 = -1;
/// Length of `struct fuse_out_header`: length, code, and an unused number.
const HEADER_BYTES: usize = 16;

/// The outcome of a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotifyOutcome {
    /// The kernel has invalidated it.
    Invalidated,
    /// The kernel did not know the object.
    Unknown,
    /// The connection is closed: the mount has ended.
    Ended,
}

/// A connection to the kernel for notifications.
pub(crate) struct Notifications {
    device: File,
}

impl Notifications {
    /// Clones the connection of a mount from any of its descriptors. See
    /// [`keep_nothing_else`](Self::keep_nothing_else).
    pub(crate) fn of(conversation: &File) -> io::Result<Notifications> {
        Ok(Notifications { device: shoal_channel::clone_device(conversation)? })
    }

    /// The connection in another process, which has inherited its descriptor.
    pub(crate) fn inherited(device: File) -> Notifications {
        Notifications { device }
    }

    /// The descriptor to be inherited.
    pub(crate) fn file(&self) -> &File {
        &self.device
    }

    /// For a thread that sends notifications: closes all files but the connection, for this thread only.
    pub(crate) fn keep_nothing_else(&self) {
        keep_no_files_but(Some(self.device.as_fd()));
    }

    /// Invalidates a dentry.
    pub(crate) fn entry(&self, dir: InodeId, name: &Name) -> nix::Result<NotifyOutcome> {
        let name = name.as_bytes();
        let mut body = Vec::with_capacity(16 + name.len() + 1);
        body.extend_from_slice(&dir.0.to_ne_bytes());
        body.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        body.extend_from_slice(&0u32.to_ne_bytes());
        body.extend_from_slice(name);
        body.push(0);
        self.send(INVAL_ENTRY, &body)
    }

    /// Invalidates attributes, and content from byte `offset` on; `len` 0 means up to the end.
    pub(crate) fn inode(&self, ino: InodeId, offset: i64, len: i64) -> nix::Result<NotifyOutcome> {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&ino.0.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..].copy_from_slice(&len.to_ne_bytes());
        self.send(INVAL_INODE, &body)
    }

    /// Invalidates attributes only. Never waits.
    pub(crate) fn attributes(&self, ino: InodeId) -> nix::Result<NotifyOutcome> {
        self.inode(ino, NO_CONTENT, 0)
    }

    /// Makes the kernel forget those of these inodes that are not in use. Kernels before Linux 6.18 answer
    /// `EINVAL`.
    pub(crate) fn prune(&self, nodes: &[InodeId]) -> nix::Result<NotifyOutcome> {
        // A count, and twelve bytes that are not used yet.
        let mut body = vec![0; 16];
        body[..4].copy_from_slice(&(nodes.len() as u32).to_ne_bytes());
        body.extend(nodes.iter().flat_map(|node| node.0.to_ne_bytes()));
        self.send(PRUNE, &body)
    }

    /// Outdates every dentry of the mount.
    pub(crate) fn epoch(&self) -> nix::Result<NotifyOutcome> {
        self.send(INC_EPOCH, &[])
    }

    fn send(&self, code: i32, body: &[u8]) -> nix::Result<NotifyOutcome> {
        let len = HEADER_BYTES + body.len();
        let mut message = Vec::with_capacity(len);
        message.extend_from_slice(&(len as u32).to_ne_bytes());
        message.extend_from_slice(&code.to_ne_bytes());
        message.extend_from_slice(&0u64.to_ne_bytes());
        message.extend_from_slice(body);
        // One write is one message.
        match nix::unistd::write(&self.device, &message) {
            Ok(_) => Ok(NotifyOutcome::Invalidated),
            // `ENOTDIR`: the kernel knows the directory's node id as something else by now.
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(NotifyOutcome::Unknown),
            Err(Errno::ENODEV | Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EPERM) => {
                Ok(NotifyOutcome::Ended)
            }
            Err(error) => Err(error),
        }
    }
}
