//! The thread that keeps the store and the log in bounds: it flushes the store so that the log can be cut, and, when room is
//! short, has the store give back what was deleted.

use crate::limits::RECLAIM_ROUNDS;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use shoal_namespace::kv::{KvStore, StoreError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Default)]
struct State {
    flush: bool,
    reclaim: bool,
    busy: bool,
    stop: bool,
    /// Where the store was when room was last reclaimed: if nothing was applied since, there is nothing to gain.
    reclaimed_at: u64,
}

/// What the thread is asked to do.
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

    /// Room is short: give back what can be. Waits until that is done, or until a moment.
    pub(crate) fn reclaim(&self, applied: u64, until: Instant) {
        let mut state = self.state.lock();
        if !state.reclaim && state.reclaimed_at == applied {
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

    /// Ends the thread after what it is doing.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
        self.idle.notify_all();
    }

    /// Waits for something to do; answers whether room is to be given back, besides flushing. `None` to end.
    fn next(&self) -> Option<bool> {
        let mut state = self.state.lock();
        state.busy = false;
        self.idle.notify_all();
        while !state.stop && !state.flush && !state.reclaim {
            self.work.wait(&mut state);
        }
        if state.stop {
            return None;
        }
        state.busy = true;
        Some(state.reclaim)
    }

    fn done(&self, reclaimed_at: Option<u64>) {
        let mut state = self.state.lock();
        state.flush = false;
        if let Some(at) = reclaimed_at {
            state.reclaim = false;
            state.reclaimed_at = at;
        }
    }
}

/// Runs until stopped.
pub(crate) fn run(shared: &Shared) {
    while let Some(reclaim) = shared.upkeep.next() {
        let at = shared.applied();
        if let Err(error) = flush(shared) {
            shared.upkeep.stop();
            return shared.fail(&error.to_string());
        }
        if reclaim {
            shared.upkeep.reclaims.fetch_add(1, Ordering::Relaxed);
            let room = shared.grantable().unwrap_or(0);
            if let Err(error) = shared.store.reclaim(room + shared.sizes.reserve_bytes / 2, RECLAIM_ROUNDS) {
                // Room that is not given back is no loss of data; the store will say so if it cannot go on.
                tracing::warn!(%error, "giving back the room of what was deleted");
            }
        }
        shared.upkeep.done(reclaim.then_some(at));
    }
}

/// Makes everything applied durable in the store and has the log cut.
pub(crate) fn flush(shared: &Shared) -> Result<(), StoreError> {
    // Read first: what is applied during the flush may or may not be part of it.
    let applied = shared.applied();
    shared.store.flush()?;
    shared.upkeep.flushes.fetch_add(1, Ordering::Relaxed);
    shared.flushed(applied);
    Ok(())
}
