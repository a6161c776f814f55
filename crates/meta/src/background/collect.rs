//! Deletes blocks that nothing refers to: first on the bricks, then from the garbage list.
//!
//! Blocks on a brick that is away stay on the list, and are deferred until bricks return.

use super::StepError;
use crate::limits::{COLLECT_PAGE, DEFERRED_BLOCKS_MAX};
use crate::shared::Shared;
use shoal_namespace::{Command, query};
use shoal_types::BlockId;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Walks the garbage list from front to end, so that it does not scan the tombstones of what it has just
/// removed.
#[derive(Default)]
pub(crate) struct Collector {
    after: Option<BlockId>,
    /// Blocks that some brick has not confirmed to have deleted.
    deferred: HashSet<BlockId>,
    /// This round has found something to delete.
    found: bool,
}

impl Collector {
    /// Deletes some blocks. Returns whether there may be more.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<bool, StepError> {
        let garbage = query::garbage(&shared.store, self.after, COLLECT_PAGE)?;
        let Some((last, _)) = garbage.last().copied() else {
            self.after = None;
            // New garbage may have been added before this round's position.
            return Ok(std::mem::take(&mut self.found));
        };
        self.after = Some(last);
        let due = garbage.into_iter().filter(|(id, _)| !self.deferred.contains(id));
        let placed: Vec<_> = due.map(|(id, info)| (id, info.group)).collect();
        if placed.is_empty() {
            return Ok(true);
        }
        self.found = true;
        if self.deferred.len() > DEFERRED_BLOCKS_MAX {
            self.deferred.clear();
        }
        self.deferred.extend(shared.bricks.discard(&placed)?);
        let gone = placed.into_iter().map(|(id, _)| id).filter(|id| !self.deferred.contains(id));
        let blocks: Vec<BlockId> = gone.collect();
        if !blocks.is_empty() {
            shared.background.done.blocks_collected.fetch_add(blocks.len() as u64, Ordering::Relaxed);
            shared.propose(&Command::Collected { blocks })?;
        }
        Ok(true)
    }

    /// All blocks of the list are to be tried again.
    pub(crate) fn bricks_are_back(&mut self) {
        self.deferred.clear();
        self.after = None;
    }
}
