//! Moves blocks to other bricks: copies several, commits their places with one command, deletes old copies.
//!
//! **Order.** A block is copied first, then its new place is committed to the log, and only then are excess
//! copies deleted. A crash at any point leaves at worst a copy that the namespace does not know.
//!
//! **One term.** All of it happens in one term of this leader. Between two of its terms another leader may
//! move a block there and back: its place is the old one again, but the copies made before are deleted.

use super::StepError;
use crate::limits::HEAL_THREADS;
use crate::shared::Shared;
use shoal_namespace::command::Placed;
use shoal_namespace::{Command, query};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::Mutex;
use shoal_types::{BlockGroup, BlockId};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Copies blocks, several at a time on each of some nodes; returns those whose bricks have changed.
pub(super) fn copy(
    page: &[BlockId],
    nodes: usize,
    one: impl Fn(BlockId) -> Result<Option<Placed>, StepError> + Sync,
) -> Result<Vec<Placed>, StepError> {
    let next = AtomicUsize::new(0);
    let (placed, trouble) = (Mutex::new(Vec::new()), Mutex::new(None));
    let work = || {
        while let Some(id) = page.get(next.fetch_add(1, Ordering::Relaxed)) {
            match one(*id) {
                Ok(Some(block)) => placed.lock().push(block),
                Ok(None) => {}
                Err(error) => drop(trouble.lock().get_or_insert(error)),
            }
        }
    };
    shoal_runtime::thread::together((HEAL_THREADS * nodes).min(page.len()), work);
    match trouble.into_inner() {
        Some(error) => Err(error),
        None => Ok(placed.into_inner()),
    }
}

/// Commits the new places of blocks to the log by a command, and deletes the copies that are in excess then.
/// Calls `moved` with the length of each block that is in its new place. Fails if this server has not led all
/// the time since `term` was read, which was before the blocks were copied.
pub(super) fn commit(
    shared: &Shared,
    term: u64,
    blocks: Vec<Placed>,
    command: impl FnOnce(Vec<Placed>) -> Command,
    mut moved: impl FnMut(&Placed, u64),
) -> Result<(), StepError> {
    if blocks.is_empty() {
        return Ok(());
    }
    // A later leader may copy blocks back to bricks where they are in excess now. If the commit below
    // succeeds, such a copy is made after this moment.
    let than = shared.bricks.moments();
    if mistake("delete old copies before the new place is committed") {
        let old = |block: &Placed| (block.id, block.from.without_all(&block.to));
        drop(shared.bricks.discard(&blocks.iter().map(old).collect::<Vec<_>>()));
    }
    shared.propose_in(term, &command(blocks.clone()))?;
    let mut excess = Vec::new();
    for block in blocks {
        let Placed { id, from, to } = block;
        let known = query::block(&shared.store, id)?;
        let (keep, placed) = match known {
            Some(block) => (block.info.group, block.info.group == to),
            None => (BlockGroup::default(), false),
        };
        if placed {
            moved(&block, known.map_or(0, |block| u64::from(block.info.len)));
        }
        // If the block was moved or deleted meanwhile, the new copies are in excess.
        let rest = if placed { from } else { to };
        let rest = rest.without_all(&keep);
        if !rest.is_empty() {
            excess.push((id, rest));
        }
    }
    // Copies left on a brick that does not answer are found by the sweep.
    if let Err(error) = than.and_then(|than| shared.bricks.discard_older(&excess, &than)) {
        tracing::debug!(%error, "deleting copies in excess failed");
    }
    Ok(())
}
