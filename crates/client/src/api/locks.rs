//! Calls about locks of programs.

use crate::client::Client;
use crate::locks::{Lock, LockWait};
use shoal_types::{Errno, InodeId};
use shoal_wire::LockRecord;

impl Client {
    /// Takes a lock. On a conflict it fails with `EAGAIN`; with `wait` it waits, and fails with `EINTR` when
    /// the wait is given up.
    pub fn lock(&self, lock: &Lock, wait: Option<&LockWait>) -> Result<(), Errno> {
        self.current().locks.lock(lock, wait)
    }

    /// Ends the wait of [`lock`](Self::lock), unless the lock has just been granted.
    pub fn cancel_lock(&self, wait: &LockWait) {
        wait.give_up();
        self.current().locks.cancel(wait);
    }

    /// Gives up a range, held or not. `lock.kind` does not matter.
    pub fn unlock(&self, lock: &Lock) -> Result<(), Errno> {
        self.current().locks.unlock(lock)
    }

    /// A lock of another owner that conflicts with this one, if there is one.
    pub fn test_lock(&self, lock: &Lock) -> Result<Option<LockRecord>, Errno> {
        self.current().locks.test(lock)
    }

    /// Whether an owner may have locks in a file: it has requested some and not released them since.
    pub fn may_have_locks(&self, ino: InodeId, owner: u64) -> bool {
        self.current().locks.may_have(ino, owner)
    }

    /// Whether any owner may have locks in a file.
    pub fn may_be_locked(&self, ino: InodeId) -> bool {
        self.current().locks.may_be_in(ino)
    }

    /// Whether any of these owners believes to have a lock in a file that was lost with a session.
    pub fn have_lost_locks(&self, ino: InodeId, owners: impl IntoIterator<Item = u64>) -> bool {
        self.mount.with_current(|session| session.locks.have_lost(ino, owners))
    }

    /// Gives up all that these owners have in a file.
    pub fn release_locks(&self, ino: InodeId, owners: &[u64]) -> Result<(), Errno> {
        self.current().locks.release(ino, owners)
    }
}
