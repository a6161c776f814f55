//! Inodes that were invalidated, and that the kernel has not requested since (`docs/KERNEL_CACHE.md`, hazard
//! 7).
//!
//! Another invalidation would do harm: a GETATTR may be in flight that has not been read from `/dev/fuse`,
//! and its reply would be ignored. A read(2) then continues with the size from before the *first*
//! invalidation. If an inode is invalidated again only after a request for it, the kernel has accepted a size
//! in between.

use crate::limits::RECENT_INVALIDATIONS_MAX;
use shoal_types::InodeId;
use std::collections::{HashMap, HashSet};

/// An invalidation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InvalidationId(u64);

/// The inodes of which the kernel has nothing cached.
#[derive(Default, Debug)]
pub(super) struct AlreadyInvalidated {
    in_progress: HashMap<InodeId, InvalidationId>,
    empty: HashSet<InodeId>,
    last_id: u64,
    skips: u64,
}

impl AlreadyInvalidated {
    /// The whole of an inode is about to be invalidated.
    pub(super) fn begin(&mut self, ino: InodeId) -> InvalidationId {
        self.last_id += 1;
        let id = InvalidationId(self.last_id);
        self.in_progress.insert(ino, id);
        id
    }

    /// The invalidation has returned; `dropped`: the kernel knew the inode.
    pub(super) fn end(&mut self, ino: InodeId, id: InvalidationId, dropped: bool) {
        // Otherwise the inode was requested meanwhile, or another invalidation of it has begun.
        if self.in_progress.get(&ino) == Some(&id) {
            self.in_progress.remove(&ino);
            if dropped {
                if self.empty.len() >= RECENT_INVALIDATIONS_MAX {
                    self.empty.clear();
                }
                self.empty.insert(ino);
            }
        }
    }

    /// The kernel requests the inode, and may cache the reply.
    pub(super) fn is_asked_about(&mut self, ino: InodeId) {
        self.in_progress.remove(&ino);
        self.empty.remove(&ino);
    }

    /// Whether the kernel has nothing cached of the inode, so that its invalidation is skipped.
    pub(super) fn skips(&mut self, ino: InodeId) -> bool {
        let skips = self.empty.contains(&ino);
        self.skips += u64::from(skips);
        skips
    }

    /// Number of invalidations skipped.
    pub(super) fn skipped(&self) -> u64 {
        self.skips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(8);

    fn dropped(empty: &mut AlreadyInvalidated) {
        let id = empty.begin(FILE);
        empty.end(FILE, id, true);
    }

    #[test]
    fn what_was_dropped_is_not_dropped_again_before_it_is_asked_about() {
        let mut empty = AlreadyInvalidated::default();
        assert!(!empty.skips(FILE));
        dropped(&mut empty);
        assert!(empty.skips(FILE) && empty.skips(FILE));
        empty.is_asked_about(FILE);
        assert!(!empty.skips(FILE));
        assert_eq!(empty.skipped(), 2);
    }

    #[test]
    fn inode_requested_during_its_invalidation_is_invalidated_again() {
        let mut empty = AlreadyInvalidated::default();
        let id = empty.begin(FILE);
        empty.is_asked_about(FILE);
        empty.end(FILE, id, true);
        assert!(!empty.skips(FILE));
        let (one, other) = (empty.begin(FILE), empty.begin(FILE));
        empty.end(FILE, one, true);
        assert!(!empty.skips(FILE), "the other is not done");
        empty.end(FILE, other, true);
        assert!(empty.skips(FILE));
    }

    #[test]
    fn what_the_kernel_did_not_know_may_be_on_its_way_to_it() {
        let mut empty = AlreadyInvalidated::default();
        let id = empty.begin(FILE);
        empty.end(FILE, id, false);
        assert!(!empty.skips(FILE) && empty.in_progress.is_empty());
    }
}
