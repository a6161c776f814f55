//! The cache in front of the client: the kernel's.
//!
//! The kernel answers programs from what it was told before, without asking. When the session gives up the right to
//! something, the client drops it from its own cache and has the front end make the kernel drop it, too, before it
//! acknowledges.

use crate::Client;
use shoal_types::{InodeId, Name};
use std::sync::Arc;
use std::time::Duration;

/// Something that is no longer to be answered from a cache.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stale {
    /// What a name in a directory stands for, be it a file or nothing. The listing of the directory goes with it.
    Name {
        /// The directory.
        dir: InodeId,
        /// The name in it.
        name: Name,
    },
    /// What all names in a directory stand for, those included of which nothing is known here.
    Names(InodeId),
    /// All that is known of an inode itself: its attributes, ACLs and extended attributes; the content of a file, the
    /// target of a link, the listing of a directory.
    Node(InodeId),
}

/// A cache in front of the client. Set once, with [`Client::set_kernel`].
///
/// Calls come from a thread of the client that holds no lock, if nothing else is said. They must not wait for requests of this mount that
/// themselves wait for a server: the server may be waiting for this very call.
pub trait KernelCache: Send + Sync + 'static {
    /// Makes the kernel forget. When this returns, nothing of it is answered from the kernel's cache any more.
    fn forget(&self, stale: &[Stale]);

    /// Makes the kernel forget everything: the right to all of it has run out. `inodes` are all that it refers to.
    fn forget_all(&self, inodes: &[InodeId]);

    /// Until when what it caches may be used, in the time since the machine was started ([`since_boot`](shoal_runtime::time::since_boot)): later by now than it was said before. Who is to see to it that nothing is used any longer
    /// should this process be stopped has to know it. Called often.
    fn may_answer_until(&self, until: Duration) {
        // Without a cache nothing is used.
        let _ = until;
    }

    /// A call of this thread has changed something, and will be answered. Called with the locks of the client held.
    fn has_changed(&self) {}

    /// Returns when the kernel has taken in what was changed of names in these directories by calls that have been carried out ([`has_changed`](Self::has_changed)), or when that takes too long. Others are about
    /// to find it so.
    fn settle_names(&self, concerns: &dyn Fn(InodeId) -> bool) {
        // Without a cache there is nothing to take in.
        let _ = concerns;
    }

    /// Sees to it that what is being written to these files has come, and that the kernel asks ([`Client::expect_write`]) before it writes to them again. Nobody is
    /// answered meanwhile. Where that takes long, what comes then is not what was asked for.
    fn hold_writes(&self, files: &[InodeId]) {
        // Without a cache that is written to first there is nothing to hold.
        let _ = files;
    }
}

impl Client {
    /// Names the cache in front of this client. The first one stays.
    pub fn set_kernel(&self, kernel: Arc<dyn KernelCache>) {
        self.mount.set_kernel(kernel);
    }

    /// Whether the kernel refers to an inode: an answer has named it, perhaps one that is still on its way, and it was not
    /// yet forgotten.
    pub fn refers(&self, ino: InodeId) -> bool {
        self.mount.with_current(|shell| shell.state.lock().core.referred(ino))
    }
}
