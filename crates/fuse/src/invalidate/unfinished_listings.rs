//! Listings whose end the kernel has not requested yet (`docs/KERNEL_CACHE.md`, hazard 21).
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

/// The directories that are being listed.
#[derive(Debug)]
pub(super) struct UnfinishedListings(SlotTable<AtomicU64>);

impl UnfinishedListings {
    pub(super) fn new() -> UnfinishedListings {
        UnfinishedListings(SlotTable::new(LISTING_SLOTS))
    }

    fn begin(&self, dir: InodeId) {
        self.0.of(dir).store(dir.0, SeqCst);
    }

    /// Returns whether the directory was being listed.
    fn end(&self, dir: InodeId) -> bool {
        let slot = self.0.of(dir);
        slot.load(SeqCst) == dir.0 && slot.compare_exchange(dir.0, NONE, SeqCst, SeqCst).is_ok()
    }
}

impl Invalidator {
    /// A reply to READDIR is about to be sent. One without entries ends the listing.
    pub(crate) fn is_about_to_show(&self, dir: InodeId, has_entries: bool) {
        match has_entries {
            true => self.unfinished_listings.begin(dir),
            false => _ = self.unfinished_listings.end(dir),
        }
    }

    /// Names of a directory have changed. If it is being listed, its cached listing and its attributes are
    /// invalidated. Returns whether they were.
    pub(super) fn ends_listings(&self, dir: InodeId) -> bool {
        if !self.unfinished_listings.end(dir) || mistake("complete a listing after a change") {
            return false;
        }
        if let Some(kernel) = self.kernel() {
            for node in self.nodes.of(dir) {
                if let Err(error) = kernel.inode(node, 0, 0) {
                    tracing::error!(%error, %dir, "the kernel refuses to invalidate the listing of a changed directory");
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_ends_a_listing_once() {
        let listings = UnfinishedListings::new();
        let (dir, other) = (InodeId(7), InodeId(8));
        assert!(!listings.end(dir));
        listings.begin(dir);
        assert!(!listings.end(other));
        assert!(listings.end(dir) && !listings.end(dir));
    }
}
