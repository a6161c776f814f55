//! Inodes that were invalidated recently.

use crate::limits::{RECENT, RECENT_INVALIDATIONS_MAX};
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::collections::HashMap;

/// An invalidation: its number, and when it began.
#[derive(Clone, Copy, Debug)]
struct Invalidation {
    number: u64,
    at: Instant,
}

/// Inodes that were invalidated recently.
#[derive(Default, Debug)]
pub(super) struct Recent {
    nodes: HashMap<InodeId, Invalidation>,
    /// The last invalidation that did not fit in the table: it counts for all inodes.
    all: Option<Invalidation>,
    last_number: u64,
}

impl Recent {
    pub(super) fn note(&mut self, ino: InodeId) {
        self.last_number += 1;
        let invalidation = Invalidation { number: self.last_number, at: Instant::now() };
        if self.nodes.len() >= RECENT_INVALIDATIONS_MAX {
            self.nodes.retain(|_, before| invalidation.at - before.at < RECENT);
        }
        if self.nodes.len() >= RECENT_INVALIDATIONS_MAX {
            self.all = Some(invalidation);
            self.nodes.clear();
        } else {
            self.nodes.insert(ino, invalidation);
        }
    }

    /// The number of the last invalidation of an inode, if it was recent.
    pub(super) fn last(&self, ino: InodeId) -> Option<u64> {
        let invalidations = self.nodes.get(&ino).into_iter().chain(&self.all);
        invalidations
            .filter(|invalidation| invalidation.at.elapsed() < RECENT)
            .map(|invalidation| invalidation.number)
            .max()
    }
}
