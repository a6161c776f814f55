//! Provokes the kernel's first OPEN, OPENDIR and FLUSH at the beginning of a mount, and refuses them with
//! `ENOSYS`: from then on it sends none.
//!
//! Until an *existing* file is opened the kernel would send a RELEASE for every file that is created, and
//! unpacking a tree into a new mount opens none. So the mount itself opens a file, which exists only for that
//! moment, under a name that no program uses.
//!
//! A process that waits for a reply by itself cannot be killed: the threads that would answer die first, and
//! the connection stays open as long as it waits. So the file is opened by a child that has no descriptor of
//! the connection.

use crate::limits::KERNEL_CACHE;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use shoal_channel::{Attr, Entry, NodeId, ReplyEntry};
use shoal_types::InodeId;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The file's name in the root directory.
const NAME: &[u8] = b".shoal-teaches-the-kernel-to-open";
/// Its inode number, one of those reserved for the system.
const INO: InodeId = InodeId(2);

/// Whether the file is there.
#[derive(Clone, Default)]
pub(crate) struct Primer(Arc<AtomicBool>);

impl Primer {
    /// Opens the file and the root directory. If that fails, unnecessary messages are sent, and nothing else.
    pub(crate) fn run(&self, mountpoint: &Path) {
        self.0.store(true, SeqCst);
        let opened = open_elsewhere(mountpoint);
        self.0.store(false, SeqCst);
        if !matches!(opened, Ok(WaitStatus::Exited(_, 0))) {
            tracing::debug!(?opened, "the first OPEN, OPENDIR and FLUSH were not provoked");
        }
    }

    /// Whether this is a lookup of the file.
    pub(crate) fn is_meant(&self, parent: NodeId, name: &[u8]) -> bool {
        parent == NodeId::ROOT && name == NAME && self.0.load(SeqCst)
    }

    /// Answers a lookup of the file, with a name that the kernel does not cache.
    pub(crate) fn answer(&self, reply: ReplyEntry) {
        let attr = Attr { ino: INO.0, mode: libc::S_IFREG | 0o400, nlink: 1, ..Attr::default() };
        let node = crate::encode::node(INO);
        let (name_lifetime, attr_lifetime) = (Duration::ZERO, KERNEL_CACHE);
        reply.entry(&Entry { node, generation: 0, name_lifetime, attr_lifetime, attr });
    }

    /// Whether this is the file's number.
    pub(crate) fn is_own(ino: InodeId) -> bool {
        ino == INO
    }
}

/// Makes a child open the file and the root directory, and waits for it.
fn open_elsewhere(mountpoint: &Path) -> nix::Result<WaitStatus> {
    let c = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(|_| nix::Error::EINVAL);
    let root = c(mountpoint)?;
    let file = c(&mountpoint.join(std::str::from_utf8(NAME).unwrap_or_default()))?;
    // SAFETY: between fork and _exit the child makes system calls only, on strings made before.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => waitpid(child, None),
        ForkResult::Child => unsafe {
            libc::close_range(0, libc::c_uint::MAX, 0);
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let opened = libc::open(file.as_ptr(), flags) >= 0 && libc::open(root.as_ptr(), flags) >= 0;
            libc::_exit(i32::from(!opened))
        },
    }
}
