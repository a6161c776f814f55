//! Reads a block from the bricks of its group: looks the group up if it is unknown, or outdated because the
//! block was moved, and waits for bricks that do not answer.

use crate::backoff::Backoff;
use crate::context::Context;
use crate::limits::LOCATE_TRIES;
use crate::trace::{Hop, waits};
use bytes::Bytes;
use shoal_runtime::budget::Use;
use shoal_types::{BlockGroup, BlockId, BlockRef};
use shoal_wire::{BlockError, MetaError};

/// Whether to retry while bricks do not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Persistence {
    /// Retry for as long as the session lives: a call needs the bytes.
    Wait,
    /// Give up: a call that needs the bytes will retry.
    GiveUp,
}

/// Part of a block, from a brick. [`BlockError::Missing`] if the block was deleted. `near` are blocks that
/// will be read next: if the group of this one has to be looked up, so are theirs.
pub(crate) fn read_block(
    context: &Context,
    piece: BlockRef,
    near: &[BlockRef],
    persistence: Persistence,
) -> Result<Bytes, BlockError> {
    let id = piece.id;
    let _waits = waits(Hop::Brick, || format!("block {id}"));
    let _memory = context.shared.options.memory.count(Use::Transfers, piece.len as usize);
    context.counters.gets.add(1);
    context.counters.get_bytes.add(u64::from(piece.len));
    let mut group = match context.groups.find(id) {
        Some(group) => group,
        None => locate(context, id, near)?,
    };
    let until = context.until();
    let mut backoff = Backoff::new();
    let mut moves = 0;
    loop {
        match context.shared.bricks.fetch(id, group, piece.offset, piece.len) {
            Err(BlockError::Missing(_)) if moves < LOCATE_TRIES && !context.groups.is_local() => {
                moves += 1;
                let now = locate(context, id, &[])?;
                if now == group {
                    return Err(BlockError::Missing(id));
                }
                tracing::debug!(block = %id, from = ?group, to = ?now, "a block was moved");
                group = now;
            }
            Err(error @ BlockError::Unreachable(_)) if persistence == Persistence::Wait => {
                if backoff.complains() {
                    tracing::warn!(block = %id, %error, "a read waits for bricks");
                }
                context.counters.get_waits.add(1);
                context.pause_call(backoff.pause(), until).map_err(|_| error)?;
                // It may have been copied to other bricks meanwhile.
                group = locate(context, id, &[])?;
            }
            outcome => {
                if backoff.complained() && outcome.is_ok() {
                    tracing::info!(block = %id, seconds = backoff.waited().as_secs(), "read after a wait");
                }
                return outcome;
            }
        }
    }
}

/// Looks up the group of a block. [`BlockError::Missing`] if the block was deleted.
fn locate(context: &Context, id: BlockId, near: &[BlockRef]) -> Result<BlockGroup, BlockError> {
    // The servers do not have the groups of uncommitted blocks.
    if let Some(group) = context.groups.own(id) {
        return Ok(group);
    }
    let mut ids = vec![id];
    for block in near {
        if !ids.contains(&block.id) && context.groups.find(block.id).is_none() {
            ids.push(block.id);
        }
    }
    context.counters.locates.add(1);
    let found = context.transport.meta.blocks(context.id, &ids).map_err(|error| match error {
        MetaError::Errno(errno) => BlockError::Unreachable(errno.to_string()),
        error => {
            let cause = error.to_string();
            context.refused(error);
            BlockError::Unreachable(cause)
        }
    })?;
    let places = || ids.iter().zip(&found).filter_map(|(id, info)| info.map(|info| (*id, info.group)));
    context.groups.learn(places());
    places().find(|(one, _)| *one == id).map(|(_, group)| group).ok_or(BlockError::Missing(id))
}
