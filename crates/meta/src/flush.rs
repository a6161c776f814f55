//! Keeps the store and the log in bounds: this thread flushes the store so that the log can be truncated.
//! When room is short, it has the store reclaim the space of deleted records.

use crate::limits::*;
use crate::machine::Machine;
use crate::replica::Core;
use shoal_namespace::kv::{KvStore, StoreError};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct State {
    flush: bool,
    reclaim: bool,
    busy: bool,
    stop: bool,
    /// How much had been removed from the store, and when, at the last reclaim.
    reclaimed: Option<(u64, Instant)>,
    /// Space is not reclaimed again before this.
    rests_until: Option<Instant>,
}

/// The thread's tasks.
#[derive(Default)]
pub(crate) struct Upkeep {
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
    flushes: AtomicU64,
    reclaims: AtomicU64,
}

impl Upkeep {
    /// The log has grown: flush the store.
    pub(crate) fn ask_flush(&self) {
        let mut state = self.state.lock();
        if !state.flush {
            state.flush = true;
            self.work.notify_one();
        }
    }

    /// Room is short: reclaim space, if anything was removed since the last time. Waits until that is done,
    /// or until `until`.
    pub(crate) fn reclaim(&self, removed: u64, until: Instant) {
        let mut state = self.state.lock();
        // Overwritten records are not counted, so reclaiming is tried now and then without a removal.
        let in_vain = |(at, when): (u64, Instant)| at == removed && when.elapsed() < RECLAIM_AGAIN_AFTER;
        if !state.reclaim && state.reclaimed.is_some_and(in_vain) {
            return;
        }
        state.reclaim = true;
        self.work.notify_one();
        while (state.reclaim || state.busy) && !state.stop {
            if self.idle.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Name, value pairs.
    pub(crate) fn stats(&self) -> [(&'static str, u64); 2] {
        [
            ("store_flushes_total", self.flushes.load(Ordering::Relaxed)),
            ("store_reclaims_total", self.reclaims.load(Ordering::Relaxed)),
        ]
    }

    /// Ends the thread after the current task.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
        self.idle.notify_all();
    }

    /// Waits for a task; answers whether space is to be reclaimed, besides flushing. `None` to end.
    fn next(&self) -> Option<bool> {
        let mut state = self.state.lock();
        state.busy = false;
        self.idle.notify_all();
        loop {
            let rest = state.rests_until.filter(|until| *until > Instant::now());
            let reclaim = state.reclaim && rest.is_none();
            if state.stop {
                return None;
            }
            if state.flush || reclaim {
                state.busy = true;
                return Some(reclaim);
            }
            match rest.filter(|_| state.reclaim) {
                Some(rest) => drop(self.work.wait_until(&mut state, rest)),
                None => self.work.wait(&mut state),
            }
        }
    }

    fn reclaimed(&self, removed: u64, took: Duration) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.reclaim = false;
        state.reclaimed = Some((removed, now));
        state.rests_until = Some(now + took * RECLAIM_REST_FACTOR);
    }
}

/// Runs until stopped.
pub(crate) fn run<M: Machine>(shared: &Core<M>) {
    while let Some(reclaim) = shared.upkeep.next() {
        let (begun, removed) = (Instant::now(), shared.removed.load(Ordering::Relaxed));
        if let Err(error) = flush(shared) {
            shared.upkeep.stop();
            return shared.fail(&error.to_string());
        }
        // Their files take space as long as they exist, whether or not the store still uses them.
        shared.checkpoints.prune();
        let (blobs, garbage) = (shared.store.blob_bytes(), shared.store.blob_garbage_bytes());
        let wasteful = garbage > shared.sizes.log_bytes && garbage * 100 > blobs * BLOB_GARBAGE_PERCENT_MAX;
        if reclaim || wasteful {
            let room = shared.sizes.reserve_bytes / RECLAIM_RESERVE_PART;
            if let Err(error) = shared.store.reclaim(room, RECLAIM_TIME_MAX) {
                // A failed reclaim loses no data; the store reports an error if it cannot go on.
                tracing::warn!(%error, "giving back the room of what was deleted");
            }
            shared.upkeep.reclaims.fetch_add(1, Ordering::Relaxed);
            shared.upkeep.reclaimed(removed, begun.elapsed());
        }
    }
}

/// Makes everything applied durable in the store and has the log truncated.
pub(crate) fn flush<M: Machine>(shared: &Core<M>) -> Result<(), StoreError> {
    // Read first: what is applied during the flush may or may not be part of it.
    let applied = shared.applied();
    shared.store.flush()?;
    shared.upkeep.flushes.fetch_add(1, Ordering::Relaxed);
    // First: a caller that learns that it is done may request the next.
    shared.upkeep.state.lock().flush = false;
    shared.flushed(applied);
    Ok(())
}
