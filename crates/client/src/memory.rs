//! The parts of a session in the process's [`Budget`]: what its core has, and what it may have.

use crate::core::Core;
use crate::limits::REFERENCE_BYTES;
use shoal_runtime::budget::{Budget, Share, Use};
use std::sync::Arc;

/// What a session's core has of the budget.
pub(crate) struct CoreMemory {
    writes: Share,
    metadata: Share,
    inodes: Share,
    /// Largest size of the cache that the administrator has set, in bytes.
    cache_bytes_max: usize,
}

impl CoreMemory {
    pub(crate) fn new(budget: &Arc<Budget>, cache_bytes_max: usize) -> CoreMemory {
        let [writes, metadata, inodes] =
            [Use::Writes, Use::Metadata, Use::Inodes].map(|what| budget.share(what));
        CoreMemory { writes, metadata, inodes, cache_bytes_max }
    }

    /// Tells the core what it may have. Before a call.
    pub(crate) fn limit(&self, core: &mut Core) {
        let cache_bytes = self.cache_bytes_max.min(self.metadata.allowed());
        core.limit_memory(cache_bytes, self.writes.allowed() as u64);
    }

    /// Counts what the core has. After a call, or when something was committed.
    pub(crate) fn count(&mut self, core: &Core) {
        self.writes.set(core.unwritten_memory() as usize);
        self.metadata.set(core.cache.bytes());
        self.inodes.set(core.referred_count().inodes * REFERENCE_BYTES);
    }
}
