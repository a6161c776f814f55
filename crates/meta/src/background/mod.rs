//! The background work of a metadata group: it reaps dead inodes, deletes unreferenced blocks and unknown
//! copies on the bricks, and merges many small extents into blocks.
//!
//! One thread does it all, in bounded steps. It sleeps until a change makes work, which the applier sees in
//! what it writes; only bricks are searched periodically, a few times a day. All decisions go through the
//! log, like commands of clients, so the thread may stop or crash between any two steps and start again.

mod collect;
mod compact;
pub(crate) mod heal;
mod reap;
mod sweep;

use crate::limits::{COMPACT_AFTER, RETRY_AFTER, SWEEP_EVERY};
use crate::open::Options;
use crate::shared::Shared;
use collect::Collector;
use compact::Compactor;
use shoal_namespace::{Fault, TreeError};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::SessionId;
use shoal_wire::{BlockError, MetaError};
use std::sync::atomic::{AtomicU64, Ordering};
use sweep::Sweeper;

/// The work that there is.
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
    /// Bricks may have returned: failed deletions are retried.
    pub(crate) bricks: bool,
}

impl Work {
    fn is_some(&self) -> bool {
        self.reap || self.collect || self.compact || self.sweep_all || self.bricks || !self.sweep.is_empty()
    }

    fn merge(&mut self, other: Work) {
        self.reap |= other.reap;
        self.collect |= other.collect;
        self.compact |= other.compact;
        self.sweep_all |= other.sweep_all;
        self.bricks |= other.bricks;
        self.sweep.extend(other.sweep);
    }
}

#[derive(Default)]
struct State {
    work: Work,
    busy: bool,
    stop: bool,
}

/// Counters of completed work.
#[derive(Default)]
pub(crate) struct Done {
    steps: AtomicU64,
    reap_steps: AtomicU64,
    blocks_collected: AtomicU64,
    blocks_swept: AtomicU64,
    compactions: AtomicU64,
    compacted_bytes: AtomicU64,
}

/// The queue of work, and its counters.
#[derive(Default)]
pub(crate) struct Background {
    state: Mutex<State>,
    wake: Condvar,
    idle: Condvar,
    done: Done,
}

/// Why a step was not finished.
pub(crate) enum Trouble {
    /// The server is stopping or has failed.
    Server(MetaError),
    /// A brick failed: try again later.
    Brick(BlockError),
}

impl From<MetaError> for Trouble {
    fn from(error: MetaError) -> Trouble {
        Trouble::Server(error)
    }
}
impl From<BlockError> for Trouble {
    fn from(error: BlockError) -> Trouble {
        Trouble::Brick(error)
    }
}
impl From<TreeError> for Trouble {
    fn from(error: TreeError) -> Trouble {
        Trouble::Server(MetaError::Failed(error.to_string()))
    }
}
impl From<Fault<TreeError>> for Trouble {
    fn from(fault: Fault<TreeError>) -> Trouble {
        match fault {
            Fault::Errno(errno) => Trouble::Server(MetaError::Errno(errno)),
            Fault::Tree(error) => error.into(),
        }
    }
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
            compact: true,
            bricks: true,
            sweep: Vec::new(),
        };
        *self.state.lock() = State { work, ..State::default() };
    }

    /// Ends the thread after the current step.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
        self.idle.notify_all();
    }

    /// Whether the thread is to end.
    fn stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits for work, or until `until`; `None` to end.
    fn next(&self, until: Instant) -> Option<Work> {
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

    /// Rests, unless the thread is to end.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.stop && !self.wake.wait_until(&mut state, until).timed_out() {}
    }
}

/// Executes the work, one bounded step at a time.
struct Worker {
    collector: Collector,
    sweeper: Sweeper,
    compactor: Compactor,
}

/// Runs until stopped.
pub(crate) fn run(shared: &Shared, options: &Options) {
    let mut worker = Worker {
        collector: Collector::default(),
        sweeper: Sweeper::new(options.sweep_every.unwrap_or(SWEEP_EVERY)),
        compactor: Compactor::new(options.compact_after.unwrap_or(COMPACT_AFTER)),
    };
    while let Some(work) = shared.background.next(worker.due()) {
        shared.background.done.steps.fetch_add(1, Ordering::Relaxed);
        let mut left = Work::default();
        let outcome = worker.step(shared, &work, &mut left);
        match outcome {
            Ok(()) => shared.background.add(left),
            // The group has no leader for a while, or too few bricks answer to tell the free space.
            Err(Trouble::Server(error @ (MetaError::Unavailable(_) | MetaError::NotLeader { .. })))
                if shared.serving().is_ok() =>
            {
                tracing::debug!(%error, "background work waits");
                shared.background.add(Work { compact: true, ..work });
                shared.background.rest(RETRY_AFTER);
            }
            Err(Trouble::Server(error)) => {
                if shared.serving().is_ok() && !matches!(error, MetaError::NotLeader { .. }) {
                    tracing::error!(%error, "background work stops");
                }
                shared.background.stop();
                return;
            }
            Err(Trouble::Brick(error)) => {
                tracing::warn!(%error, "background work waits for the brick");
                // Whichever step failed: the retry finds all of it again.
                shared.background.add(Work { compact: true, ..work });
                shared.background.rest(RETRY_AFTER);
            }
        }
    }
}

impl Worker {
    /// When the next periodic work is due.
    fn due(&self) -> Instant {
        let sweep = self.sweeper.due();
        self.compactor.due().map_or(sweep, |compact| compact.min(sweep))
    }

    fn step(&mut self, shared: &Shared, work: &Work, left: &mut Work) -> Result<(), Trouble> {
        if work.reap {
            left.reap = reap::step(shared)?;
        }
        if work.bricks {
            self.collector.bricks_are_back();
        }
        if work.collect || work.bricks {
            left.collect = self.collector.step(shared)?;
        }
        let now = Instant::now();
        if work.sweep_all {
            self.sweeper.all(now);
        }
        work.sweep.iter().for_each(|session| self.sweeper.ended(*session, now));
        // Deletions that failed for any reason are retried with a periodic round, too.
        left.bricks = self.sweeper.step(shared)?;
        if work.compact {
            self.compactor.look();
        }
        // Work that frees space goes first.
        if !left.reap && !left.collect {
            self.compactor.step(shared)?;
        }
        Ok(())
    }
}
