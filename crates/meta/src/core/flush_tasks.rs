//! The tasks of the thread that flushes the store and reclaims its space. See `flush`.

use crate::limits::{RECLAIM_AGAIN_AFTER, RECLAIM_REST_FACTOR};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Tasks {
    flush: bool,
    reclaim: bool,
    busy: bool,
    stop: bool,
    /// The count of removed records and the time, at the last reclaim.
    reclaimed: Option<(u64, Instant)>,
    /// Space is not reclaimed again before this.
    rests_until: Option<Instant>,
}

/// The tasks of the flush thread, and how often it has carried them out.
#[derive(Default)]
pub(crate) struct FlushTasks {
    state: Mutex<Tasks>,
    work: Condvar,
    idle: Condvar,
    flushes: AtomicU64,
    reclaims: AtomicU64,
}

impl FlushTasks {
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
        // Overwritten records are not counted, so reclaiming is also tried periodically without a removal.
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

    /// Waits for a task; returns whether space is to be reclaimed, besides flushing. `None`: the thread ends.
    pub(crate) fn next(&self) -> Option<bool> {
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

    /// The store has been flushed: the next flush may be requested.
    pub(crate) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.state.lock().flush = false;
    }

    /// Space was reclaimed, or that failed. `removed`: the count of removed records before.
    pub(crate) fn reclaimed(&self, removed: u64, took: Duration) {
        self.reclaims.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut state = self.state.lock();
        state.reclaim = false;
        state.reclaimed = Some((removed, now));
        state.rests_until = Some(now + took * RECLAIM_REST_FACTOR);
    }
}
