//! Keeps the store and the log in bounds: this thread flushes the store so that the log can be truncated.
//! When room is short, it has the store reclaim the space of deleted records.

use crate::core::Core;
use crate::limits::{BLOB_GARBAGE_PERCENT_MAX, RECLAIM_RESERVE_PART, RECLAIM_TIME_MAX};
use crate::machine::Machine;
use shoal_namespace::kv::{KvStore, StoreError};
use shoal_runtime::time::Instant;
use std::sync::atomic::Ordering;

/// Runs until stopped.
pub(crate) fn run<M: Machine>(core: &Core<M>) {
    while let Some(reclaim) = core.flush_tasks.next() {
        let (begun, removed) = (Instant::now(), core.removed.load(Ordering::Relaxed));
        if let Err(error) = flush(core) {
            core.flush_tasks.stop();
            return core.fail(&error.to_string());
        }
        // Their files take space as long as they exist, whether or not the store still uses them.
        core.checkpoints.prune();
        let (blobs, garbage) = (core.store.blob_bytes(), core.store.blob_garbage_bytes());
        let wasteful = garbage > core.sizes.log_bytes && garbage * 100 > blobs * BLOB_GARBAGE_PERCENT_MAX;
        if reclaim || wasteful {
            let room = core.sizes.reserve_bytes / RECLAIM_RESERVE_PART;
            if let Err(error) = core.store.reclaim(room, RECLAIM_TIME_MAX) {
                // A failed reclaim loses no data; the store reports an error if it cannot go on.
                tracing::warn!(%error, "reclaiming the space of deleted records failed");
            }
            core.flush_tasks.reclaimed(removed, begun.elapsed());
        }
    }
}

/// Makes everything applied durable in the store and has the log truncated.
pub(crate) fn flush<M: Machine>(core: &Core<M>) -> Result<(), StoreError> {
    // Read first: what is applied during the flush may or may not be part of it.
    let applied = core.applied();
    core.store.flush()?;
    // Before the driver learns it, which may request the next flush at once.
    core.flush_tasks.flushed();
    core.flushed(applied);
    Ok(())
}
