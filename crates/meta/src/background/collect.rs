//! Deletes blocks that nothing refers to: first on the bricks, then from the list.

use super::Trouble;
use crate::limits::COLLECT_PAGE;
use crate::shared::Shared;
use shoal_namespace::{Command, query};
use shoal_types::BlockId;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Goes through the garbage list from front to end, so that it does not wade through what it has just taken off.
#[derive(Default)]
pub(crate) struct Collector {
    after: Option<BlockId>,
}

impl Collector {
    /// Deletes some blocks. Answers whether there may be more.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let garbage = query::garbage(&shared.store, self.after, COLLECT_PAGE)?;
        let Some((last, _)) = garbage.last().copied() else {
            // New garbage may lie before the place where this round began.
            return Ok(self.after.take().is_some());
        };
        let placed: Vec<_> = garbage.iter().map(|(id, info)| (*id, info.group)).collect();
        let kept: BTreeSet<BlockId> = shared.bricks.discard(&placed)?.into_iter().collect();
        let blocks: Vec<_> = placed.into_iter().map(|(id, _)| id).filter(|id| !kept.contains(id)).collect();
        shared.background.done.blocks_collected.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        shared.propose(&Command::Collected { blocks })?;
        self.after = Some(last);
        Ok(true)
    }
}
