//! The queue of background work, which changes fill and one thread empties, and its counters.

use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::SessionId;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of work that are due.
#[derive(Default, Clone, Debug)]
pub(crate) struct Work {
    /// Dead inodes are queued.
    pub(crate) reap: bool,
    /// There is garbage.
    pub(crate) collect: bool,
    /// There are new candidates for compaction.
    pub(crate) compact: bool,
    /// These sessions have ended.
    pub(crate) sweep: Vec<SessionId>,
    /// Sweep all sessions for unknown copies.
    pub(crate) sweep_all: bool,
    /// Bricks are to become empty: all sessions are swept, unless a round is in progress or has just begun.
    pub(crate) sweep_soon: bool,
    /// Bricks may have returned: failed deletions are retried.
    pub(crate) bricks: bool,
}

impl Work {
    fn is_some(&self) -> bool {
        self.reap
            || self.collect
            || self.compact
            || self.sweep_all
            || self.sweep_soon
            || self.bricks
            || !self.sweep.is_empty()
    }

    fn merge(&mut self, other: Work) {
        self.reap |= other.reap;
        self.collect |= other.collect;
        self.compact |= other.compact;
        self.sweep_all |= other.sweep_all;
        self.sweep_soon |= other.sweep_soon;
        self.bricks |= other.bricks;
        self.sweep.extend(other.sweep);
    }
}

#[derive(Default)]
struct Queue {
    work: Work,
    busy: bool,
    stop: bool,
}

/// Counters of completed work.
#[derive(Default)]
pub(crate) struct Completed {
    pub(crate) steps: AtomicU64,
    pub(crate) reap_steps: AtomicU64,
    pub(crate) blocks_collected: AtomicU64,
    pub(crate) blocks_swept: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
}

/// The queue of work, and its counters.
#[derive(Default)]
pub(crate) struct Background {
    state: Mutex<Queue>,
    wake: Condvar,
    idle: Condvar,
    pub(crate) done: Completed,
}

impl Background {
    /// Adds work.
    pub(crate) fn add(&self, work: Work) {
        if work.is_some() {
            self.state.lock().work.merge(work);
            self.wake.notify_all();
        }
    }

    /// Name, value pairs.
    pub(crate) fn stats(&self) -> Vec<(&'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("background_steps_total", get(&self.done.steps)),
            ("background_reap_steps_total", get(&self.done.reap_steps)),
            ("background_collected_blocks_total", get(&self.done.blocks_collected)),
            ("background_swept_blocks_total", get(&self.done.blocks_swept)),
            ("background_compacted_blocks_total", get(&self.done.compactions)),
            ("background_compacted_bytes_total", get(&self.done.compacted_bytes)),
        ]
    }

    /// Waits until no work is left that frees space, or until `until`.
    pub(crate) fn wait_idle(&self, until: Instant) {
        let mut state = self.state.lock();
        while (state.busy || state.work.reap || state.work.collect) && !state.stop {
            if self.idle.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Queues all work: an earlier leader may have left some.
    pub(crate) fn begin(&self) {
        let work = Work {
            reap: true,
            collect: true,
            sweep_all: true,
            sweep_soon: false,
            compact: true,
            bricks: true,
            sweep: Vec::new(),
        };
        *self.state.lock() = Queue { work, ..Queue::default() };
    }

    /// Ends the thread after the current step.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
        self.idle.notify_all();
    }

    /// Whether the thread is to end.
    pub(crate) fn stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits for work, or until `until`; `None` to end.
    pub(crate) fn next(&self, until: Instant) -> Option<Work> {
        let mut state = self.state.lock();
        state.busy = false;
        self.idle.notify_all();
        while !state.stop && !state.work.is_some() {
            if self.wake.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        if state.stop {
            return None;
        }
        let work = std::mem::take(&mut state.work);
        // Compaction needs room before it frees any: `wait_idle` does not wait for it.
        state.busy = work.reap || work.collect;
        Some(work)
    }

    /// Sleeps, unless the thread is to end.
    pub(crate) fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.stop && !self.wake.wait_until(&mut state, until).timed_out() {}
    }
}
