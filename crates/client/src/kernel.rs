//! The kernel's cache, which is in front of the client.
//!
//! The kernel answers programs from earlier replies, without a request. When the client gives back a right,
//! it invalidates what is cached under it, here and through the front end in the kernel, before it
//! acknowledges.

use shoal_types::{InodeId, Name};
use std::time::Duration;

/// An object that the kernel must not answer from its cache any more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stale {
    /// A dentry, positive or negative, and the listing of its directory.
    Name {
        /// The directory.
        dir: InodeId,
        /// The name in it.
        name: Name,
    },
    /// All dentries in a directory, also those that the client does not know of.
    Names(InodeId),
    /// Everything about an inode itself: attributes, ACLs and extended attributes, the content of a file, the
    /// target of a link, the listing of a directory.
    Node(InodeId),
    /// An inode that no program has used lately. It stays valid; the kernel is asked to forget it unless it
    /// is in use.
    Unused(InodeId),
}

/// A cache in front of the client. Set once, with [`Client::set_kernel`](crate::Client::set_kernel).
///
/// If not said otherwise, calls come from a thread of the client that holds no lock. They must not wait for a
/// request of this mount that waits for a server: the server may be waiting for this call.
pub trait KernelCache: Send + Sync + 'static {
    /// Invalidates the kernel's cache. When this returns, nothing of `stale` is answered from it any more.
    fn invalidate(&self, stale: &[Stale]);

    /// Invalidates the whole kernel cache, because the lease has run out. `inodes` are all that the kernel
    /// refers to.
    fn invalidate_all(&self, inodes: &[InodeId]);

    /// The lease was renewed: the cache may be used until this time since boot
    /// ([`since_boot`](shoal_runtime::time::since_boot)). The guard invalidates the cache then if this
    /// process is stopped. Called often.
    fn may_answer_until(&self, until: Duration) {
        // Without a cache nothing is used.
        let _ = until;
    }

    /// A call of a thread has changed names in these directories, and is about to be answered. Called under
    /// the locks of the client.
    fn has_changed(&self, thread: u32, dirs: [InodeId; 2]) {
        // Without a dcache there is nothing to wait for later.
        let _ = (thread, dirs);
    }

    /// Waits until the kernel has consumed the replies to earlier calls that changed what `concerns` selects,
    /// for a bounded time: names in directories ([`has_changed`](Self::has_changed)), and sizes of files.
    /// Other clients are about to find these changes.
    fn wait_consumed(&self, concerns: &dyn Fn(InodeId) -> bool) {
        // Without a cache there is nothing to wait for.
        let _ = concerns;
    }

    /// Revokes the write permits of these files: waits until writes in progress have arrived, and makes the
    /// kernel request one ([`acquire_write_permit`](crate::Client::acquire_write_permit)) before it writes
    /// again. No permit is given meanwhile. A write that arrives after the bounded wait has no permit.
    fn hold_writes(&self, files: &[InodeId]) {
        // Without a page cache there are no permits.
        let _ = files;
    }
}
