//! The locks of the kernel that programs and notifications wait for.

use super::Kernel;
use super::state::State;
use std::sync::Arc;

/// An inode lock that is held until this is dropped.
pub struct InodeLock {
    kernel: Arc<Kernel>,
    node: u64,
    exclusive: bool,
}

/// The rename lock of the file system, held until this is dropped.
pub struct RenameLock(Arc<Kernel>);

impl Kernel {
    /// Waits until a condition holds.
    pub(super) fn wait_until<T>(&self, mut is_so: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(done) = is_so(&mut state) {
                return done;
            }
            self.news.wait(&mut state);
        }
    }

    /// `inode_lock`, or `inode_lock_shared`. The inode is pinned.
    pub(super) fn lock(self: &Arc<Kernel>, node: u64, exclusive: bool) -> InodeLock {
        self.wait_until(|state| {
            let lock = &mut state.inode(node).lock;
            let is_free = if exclusive { *lock == 0 } else { *lock >= 0 };
            is_free.then(|| *lock = if exclusive { -1 } else { *lock + 1 })
        });
        InodeLock { kernel: self.clone(), node, exclusive }
    }

    /// The locks of several inodes, in an order that all threads keep.
    pub(super) fn lock_all(self: &Arc<Kernel>, mut nodes: Vec<u64>) -> Vec<InodeLock> {
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().map(|node| self.lock(node, true)).collect()
    }

    /// `s_vfs_rename_mutex`.
    pub(super) fn lock_rename(self: &Arc<Kernel>) -> RenameLock {
        self.wait_until(|state| (!std::mem::replace(&mut state.rename_locked, true)).then_some(()));
        RenameLock(self.clone())
    }
}

impl Drop for InodeLock {
    fn drop(&mut self) {
        let mut state = self.kernel.state.lock();
        let lock = &mut state.inode(self.node).lock;
        *lock = if self.exclusive { 0 } else { *lock - 1 };
        drop(state);
        self.kernel.news.notify_all();
    }
}

impl Drop for RenameLock {
    fn drop(&mut self) {
        self.0.state.lock().rename_locked = false;
        self.0.news.notify_all();
    }
}
