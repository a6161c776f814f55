//! Deletes copies that nobody knows of: blocks that a session stored and never committed, and copies on bricks that are not among
//! those that the namespace names.
//!
//! A session's blocks become known in the log with the batch that first names them. When the session has ended, no such batch can come
//! any more, so what is unknown then is garbage. The metadata group's own blocks (compaction) are swept by the thread that writes them,
//! between two of its steps. Of a block that is known, copies are in excess on bricks outside of its group, unless the healer is about
//! to add one of them.

use super::Trouble;
use crate::limits::{COLLECT_PAGE, SWEEP_PAGE};
use crate::shared::Shared;
use shoal_namespace::query;
use shoal_runtime::planted::mistake;
use shoal_types::{BlockGroup, BlockId, SessionId};
use std::sync::atomic::Ordering;

/// Sessions with blocks on the bricks.
pub(crate) fn stored_sessions(shared: &Shared) -> Result<Vec<SessionId>, Trouble> {
    Ok(shared.bricks.stored_sessions()?)
}

/// Deletes what nobody knows of among the blocks of a session.
pub(crate) fn session(shared: &Shared, session: SessionId) -> Result<(), Trouble> {
    let next = query::counters(&shared.store)?.next_session;
    // A number that was never given out is not ours to judge.
    if session >= next || mistake("leave what a dead client stored") {
        return Ok(());
    }
    let has_ended = query::session(&shared.store, session)?.is_none();
    let copies = shared.bricks.copies(session)?;
    // A server that was deposed and does not know it must not judge what the next leader has stored.
    shared.catch_up()?;
    let mut deleted = 0;
    for page in copies.chunks(SWEEP_PAGE) {
        if shared.background.stopped() {
            return Ok(());
        }
        deleted += sweep(shared, page, has_ended)?;
    }
    if deleted > 0 {
        tracing::info!(
            session = session.0,
            copies = deleted,
            "deleted copies of blocks that nobody knows of"
        );
    }
    Ok(())
}

fn sweep(shared: &Shared, page: &[(BlockId, BlockGroup)], has_ended: bool) -> Result<usize, Trouble> {
    // What the healer adds to a group, it adds before or after this, and not in between.
    let moving = shared.heal.moving();
    let mut unknown = Vec::new();
    for (id, on) in page {
        let excess = match query::block(&shared.store, *id)? {
            None if has_ended => Some(*on),
            Some(block) if !moving.contains(id) && !block.info.group.is_empty() => {
                Some(block.info.group.bricks().fold(*on, BlockGroup::without)).filter(|rest| !rest.is_empty())
            }
            _ => None,
        };
        unknown.extend(excess.map(|bricks| (*id, bricks)));
    }
    for page in unknown.chunks(COLLECT_PAGE) {
        shared.bricks.discard(page)?;
        shared.background.done.blocks_swept.fetch_add(page.len() as u64, Ordering::Relaxed);
    }
    Ok(unknown.len())
}
