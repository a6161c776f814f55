//! The host: what a mount process needs from its kernel besides requests and replies. These are
//! notifications, the states of threads, and the mount as threads of the mount process use it.
//!
//! A mounted volume runs on a [`Machine`]. A simulation supplies another [`Host`].

use crate::mount_point::MountPoint;
use crate::notify::{NO_CONTENT, Notifications};
use crate::thread::{Call, is_exiting, is_killed, keep_no_files_but, reads, thread_state};
use shoal_types::{InodeId, Name};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

pub use crate::mount_point::{DirtyPages, OpenFile};
pub use crate::notify::NotifyOutcome;
pub use crate::thread::{Thread, Writing};

/// A kernel with its threads. The notifications are those of `linux/fuse.h`; they may block as there.
pub trait Host: Send + Sync + 'static {
    /// `INVAL_ENTRY`: invalidates a dentry.
    fn entry(&self, node: InodeId, name: &Name) -> io::Result<NotifyOutcome>;
    /// `INVAL_INODE`: invalidates attributes, and content from byte `offset` on; `len` 0 means up to the end.
    fn inode(&self, node: InodeId, offset: i64, len: i64) -> io::Result<NotifyOutcome>;
    /// `PRUNE`: evicts those of these inodes that are not in use. `EINVAL`: the kernel does not know it.
    fn prune(&self, nodes: &[InodeId]) -> io::Result<NotifyOutcome>;
    /// `INC_EPOCH`: outdates every dentry of the mount.
    fn epoch(&self) -> io::Result<NotifyOutcome>;
    /// The calling thread may be blocked in notifications (`true`), or in calls on files of the mount: it
    /// closes all other files.
    fn keep_nothing_else(&self, notifies: bool);

    /// The id of the calling thread.
    fn current(&self) -> u32;
    /// The state of a thread; `None` if the thread does not exist or its state cannot be read.
    fn thread_state(&self, tid: u32) -> Option<Thread>;
    /// Whether a thread of the mount process is in uninterruptible sleep in the kernel.
    fn is_blocked(&self, tid: i32) -> bool;
    /// Whether a thread was killed, and dies as soon as it gets the reply that it waits for.
    fn is_killed(&self, tid: u32) -> bool;
    /// Whether a thread is being ended, and closes its files.
    fn is_exiting(&self, tid: u32) -> bool;
    /// Whether a thread sleeps in a call that reads this file.
    fn reads(&self, tid: u32, ino: InodeId) -> bool;
    /// The call of a thread, if it is one that writes.
    fn writing(&self, tid: u32) -> Option<Writing>;
    /// Whether a thread is in lseek(2).
    fn seeks(&self, tid: u32) -> bool;

    /// Opens a file of the mount by its inode number. Fails if the kernel does not know the file.
    fn open(&self, ino: InodeId, generation: u64, flags: i32) -> io::Result<Box<dyn OpenFile>>;

    /// Invalidates attributes only. Never waits.
    fn attributes(&self, node: InodeId) -> io::Result<NotifyOutcome> {
        self.inode(node, NO_CONTENT, 0)
    }
}

/// The machine that this process runs on.
#[derive(Default)]
pub(crate) struct Machine {
    /// The connection for notifications, once the mount has begun.
    device: OnceLock<Notifications>,
    /// The mount point, once programs can use it.
    mount_point: OnceLock<MountPoint>,
}

impl Machine {
    /// The mount begins; `conversation` is its open `/dev/fuse`.
    pub(crate) fn begin(&self, conversation: &File) -> io::Result<()> {
        let notifications = Notifications::of(conversation)?;
        self.device.get_or_init(|| notifications);
        Ok(())
    }

    /// Programs can use the mount from now on, at this mount point.
    pub(crate) fn is_at(&self, mountpoint: PathBuf, device: String) {
        self.mount_point.get_or_init(|| MountPoint::new(mountpoint, device));
    }

    /// The connection for the guard process.
    pub(crate) fn device(&self) -> io::Result<File> {
        self.device.get().ok_or(io::ErrorKind::NotConnected)?.file().try_clone()
    }

    fn notify(
        &self,
        send: impl FnOnce(&Notifications) -> nix::Result<NotifyOutcome>,
    ) -> io::Result<NotifyOutcome> {
        let outcome = self.device.get().map_or(Ok(NotifyOutcome::Ended), send);
        outcome.map_err(io::Error::from)
    }
}

impl Host for Machine {
    fn entry(&self, node: InodeId, name: &Name) -> io::Result<NotifyOutcome> {
        self.notify(|kernel| kernel.entry(node, name))
    }

    fn inode(&self, node: InodeId, offset: i64, len: i64) -> io::Result<NotifyOutcome> {
        self.notify(|kernel| kernel.inode(node, offset, len))
    }

    fn prune(&self, nodes: &[InodeId]) -> io::Result<NotifyOutcome> {
        self.notify(|kernel| kernel.prune(nodes))
    }

    fn epoch(&self) -> io::Result<NotifyOutcome> {
        self.notify(Notifications::epoch)
    }

    fn keep_nothing_else(&self, notifies: bool) {
        match self.device.get() {
            Some(device) if notifies => device.keep_nothing_else(),
            _ => keep_no_files_but(None),
        }
    }

    fn current(&self) -> u32 {
        nix::unistd::gettid().as_raw() as u32
    }

    fn thread_state(&self, tid: u32) -> Option<Thread> {
        Thread::state_of(tid)
    }

    fn is_blocked(&self, tid: i32) -> bool {
        // If the state cannot be read, the thread counts as blocked, because a batch waits for it.
        thread_state(&format!("/proc/self/task/{tid}/stat")).is_none_or(|state| state == 'D')
    }

    fn is_killed(&self, tid: u32) -> bool {
        is_killed(tid)
    }

    fn is_exiting(&self, tid: u32) -> bool {
        is_exiting(tid)
    }

    fn reads(&self, tid: u32, ino: InodeId) -> bool {
        reads(tid, ino)
    }

    fn writing(&self, tid: u32) -> Option<Writing> {
        Writing::of(tid)
    }

    fn seeks(&self, tid: u32) -> bool {
        Call::of(tid).is_some_and(|call| call.number == libc::SYS_lseek)
    }

    fn open(&self, ino: InodeId, generation: u64, flags: i32) -> io::Result<Box<dyn OpenFile>> {
        let mount_point = self.mount_point.get().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(mount_point.open(ino, generation, flags)?))
    }
}

/// A shared [`Host`]. By default it is a [`Machine`] without a mount.
#[derive(Clone)]
pub(crate) struct HostRef(Arc<dyn Host>);

impl HostRef {
    pub(crate) fn new(host: Arc<dyn Host>) -> HostRef {
        HostRef(host)
    }
}

impl Default for HostRef {
    fn default() -> HostRef {
        HostRef(Arc::new(Machine::default()))
    }
}

impl Deref for HostRef {
    type Target = dyn Host;

    fn deref(&self) -> &(dyn Host + 'static) {
        &*self.0
    }
}

impl fmt::Debug for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}
