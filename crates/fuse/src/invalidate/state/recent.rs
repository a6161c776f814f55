//! Inodes that were invalidated recently.

use crate::limits::{RECENT, RECENT_DROPS_MAX};
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::collections::HashMap;

/// An invalidation: its number, and when it began.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    number: u64,
    at: Instant,
}

/// Inodes that were invalidated recently.
#[derive(Default, Debug)]
pub(super) struct Recent {
    nodes: HashMap<InodeId, Dropped>,
    /// The last invalidation that did not fit in the table: it counts for all inodes.
    all: Option<Dropped>,
    last_number: u64,
}

impl Recent {
    pub(super) fn note(&mut self, ino: InodeId) {
        self.last_number += 1;
        let dropped = Dropped { number: self.last_number, at: Instant::now() };
        if self.nodes.len() >= RECENT_DROPS_MAX {
            self.nodes.retain(|_, before| dropped.at - before.at < RECENT);
        }
        if self.nodes.len() >= RECENT_DROPS_MAX {
            self.all = Some(dropped);
            self.nodes.clear();
        } else {
            self.nodes.insert(ino, dropped);
        }
    }

    /// The number of the last invalidation of an inode, if it was recent.
    pub(super) fn last(&self, ino: InodeId) -> Option<u64> {
        let drops = self.nodes.get(&ino).into_iter().chain(&self.all);
        drops.filter(|dropped| dropped.at.elapsed() < RECENT).map(|dropped| dropped.number).max()
    }
}
