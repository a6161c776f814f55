//! Inodes of which the kernel has nothing: they were dropped, and have not been asked about since.
//!
//! To drop them again would do harm: a question may be on its way that we have not read yet, and its answer would be passed over. A read(2) then goes on with
//! the size of before the *first* drop. As long as whatever is dropped was asked about since the last time, the kernel has taken a size in since.

use crate::limits::RECENT_DROPS_MAX;
use shoal_types::InodeId;
use std::collections::{HashMap, HashSet};

/// A drop under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DropId(u64);

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Empty {
    dropping: HashMap<InodeId, DropId>,
    empty: HashSet<InodeId>,
    last_id: u64,
    skips: u64,
}

impl Empty {
    /// The kernel is about to be told to drop all of an inode.
    pub(super) fn begin(&mut self, ino: InodeId) -> DropId {
        self.last_id += 1;
        let id = DropId(self.last_id);
        self.dropping.insert(ino, id);
        id
    }

    /// It has dropped it, if `dropped`.
    pub(super) fn end(&mut self, ino: InodeId, id: DropId, dropped: bool) {
        // Otherwise it was asked about meanwhile, or is dropped once more.
        if self.dropping.get(&ino) == Some(&id) {
            self.dropping.remove(&ino);
            if dropped {
                if self.empty.len() >= RECENT_DROPS_MAX {
                    self.empty.clear();
                }
                self.empty.insert(ino);
            }
        }
    }

    /// The kernel asks about it, and may keep what it is told.
    pub(super) fn is_asked_about(&mut self, ino: InodeId) {
        self.dropping.remove(&ino);
        self.empty.remove(&ino);
    }

    /// Whether there is nothing to drop.
    pub(super) fn skips(&mut self, ino: InodeId) -> bool {
        let skips = self.empty.contains(&ino);
        self.skips += u64::from(skips);
        skips
    }

    /// How often there was nothing to drop.
    pub(super) fn skipped(&self) -> u64 {
        self.skips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(8);

    fn dropped(empty: &mut Empty) {
        let id = empty.begin(FILE);
        empty.end(FILE, id, true);
    }

    #[test]
    fn what_was_dropped_is_not_dropped_again_before_it_is_asked_about() {
        let mut empty = Empty::default();
        assert!(!empty.skips(FILE));
        dropped(&mut empty);
        assert!(empty.skips(FILE) && empty.skips(FILE));
        empty.is_asked_about(FILE);
        assert!(!empty.skips(FILE));
        assert_eq!(empty.skipped(), 2);
    }

    #[test]
    fn what_is_asked_about_while_it_is_dropped_is_dropped_again() {
        let mut empty = Empty::default();
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
        let mut empty = Empty::default();
        let id = empty.begin(FILE);
        empty.end(FILE, id, false);
        assert!(!empty.skips(FILE) && empty.dropping.is_empty());
    }
}
