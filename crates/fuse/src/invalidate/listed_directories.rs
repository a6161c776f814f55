//! Directories that were listed since their names have changed (`docs/KERNEL_CACHE.md`, hazard 21). A listing
//! may be in progress, or have been given up halfway.
//!
//! The table has a fixed size. Of directories that share a slot only the last one is recorded.

use super::Invalidator;
use crate::limits::LISTING_SLOTS;
use crate::slot_table::SlotTable;
use shoal_runtime::planted::mistake;
use shoal_types::InodeId;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// No directory.
const NONE: u64 = 0;

/// Directories that were listed.
#[derive(Debug)]
pub(super) struct ListedDirectories(SlotTable<AtomicU64>);

impl ListedDirectories {
    pub(super) fn new() -> ListedDirectories {
        ListedDirectories(SlotTable::new(LISTING_SLOTS))
    }

    fn add(&self, dir: InodeId) {
        self.0.of(dir).store(dir.0, SeqCst);
    }

    /// Returns whether the directory was there.
    fn remove(&self, dir: InodeId) -> bool {
        let slot = self.0.of(dir);
        slot.load(SeqCst) == dir.0 && slot.compare_exchange(dir.0, NONE, SeqCst, SeqCst).is_ok()
    }
}

impl Invalidator {
    /// A reply to READDIR is about to be sent.
    pub(crate) fn record_listing(&self, dir: InodeId) {
        self.listed_directories.add(dir);
    }

    /// Names of a directory have changed. If it was listed, its cached listing and its attributes are
    /// invalidated. Returns whether they were.
    pub(super) fn ends_listings(&self, dir: InodeId) -> bool {
        if !self.listed_directories.remove(dir) || mistake("complete a listing after a change") {
            return false;
        }
        self.invalidate_directories(self.nodes.of(dir));
        true
    }

    /// Invalidates attributes and cached listings of changed directories, by their node ids.
    pub(super) fn invalidate_directories(&self, nodes: Vec<InodeId>) {
        let Some(kernel) = self.kernel() else { return };
        for node in nodes {
            // Offset 0 invalidates the pages of a listing as well.
            if let Err(error) = kernel.inode(node, 0, 0) {
                tracing::error!(%error, %node, "the kernel refuses to invalidate a changed directory");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_ends_a_listing_once() {
        let listings = ListedDirectories::new();
        let (dir, other) = (InodeId(7), InodeId(8));
        assert!(!listings.remove(dir));
        listings.add(dir);
        assert!(!listings.remove(other));
        assert!(listings.remove(dir) && !listings.remove(dir));
    }
}
