//! Deletes blocks that a session stored and never committed. Nobody knows of them but the brick.
//!
//! A session's blocks become known in the log with the batch that first names them. When the session has ended, no such batch can come
//! any more, so what is unknown then is garbage. The metadata group's own blocks (compaction) are swept by the thread that writes them,
//! between two of its steps.

use super::Trouble;
use crate::limits::{COLLECT_PAGE, SWEEP_PAGE};
use crate::shared::Shared;
use shoal_namespace::kv::KvStore;
use shoal_namespace::query;
use shoal_types::{BlockGroup, BlockId, SessionId};
use std::sync::atomic::Ordering;

/// Sessions with blocks on the bricks that have ended.
pub(crate) fn ended_sessions(shared: &Shared) -> Result<Vec<SessionId>, Trouble> {
    Ok(shared.bricks.stored_sessions()?)
}

/// Deletes the blocks of a session that are not known, if the session has ended.
pub(crate) fn session(shared: &Shared, session: SessionId) -> Result<(), Trouble> {
    let blocks = {
        let next = query::counters(&shared.store)?.next_session;
        // A number that was never given out is not ours to judge.
        if session >= next || query::session(&shared.store, session)?.is_some() {
            return Ok(());
        }
        shared.bricks.session_blocks(session)?
    };
    let mut unknown: Vec<BlockId> = Vec::new();
    for page in blocks.chunks(SWEEP_PAGE) {
        let state = shared.store.snapshot();
        for block in page {
            if query::block(&state, block.id)?.is_none() {
                unknown.push(block.id);
            }
        }
        if shared.background.stopped() {
            return Ok(());
        }
    }
    for page in unknown.chunks(COLLECT_PAGE) {
        let page: Vec<_> = page.iter().map(|id| (*id, BlockGroup::default())).collect();
        shared.bricks.discard(&page)?;
        shared.background.done.blocks_swept.fetch_add(page.len() as u64, Ordering::Relaxed);
    }
    if !unknown.is_empty() {
        tracing::info!(
            session = session.0,
            blocks = unknown.len(),
            "deleted blocks that were never committed"
        );
    }
    Ok(())
}
