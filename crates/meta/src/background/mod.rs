//! The background work of a metadata group: it reaps dead inodes, deletes unreferenced blocks and unknown
//! copies on the bricks, and merges many small extents into blocks.
//!
//! One thread does all of it, in bounded steps. It sleeps until the applier has seen a change that makes
//! work; only the sweep of the bricks is periodic. All decisions go through the log, like commands of
//! clients, so the thread may stop or crash between any two steps and start again.

mod collect;
mod compact;
pub(crate) mod heal;
mod heal_queue;
pub(crate) mod pins;
mod place;
pub(crate) mod policies;
mod reap;
pub(crate) mod schemes;
mod sweep;
pub(crate) mod tier;

use crate::limits::{COMPACT_AFTER, RETRY_AFTER, SWEEP_EVERY};
use crate::options::Options;
use crate::shared::Shared;
use crate::tasks::Work;
use collect::Collector;
use compact::Compactor;
use shoal_namespace::{Fault, TreeError};
use shoal_runtime::time::Instant;
use shoal_wire::{BlockError, MetaError};
use std::sync::atomic::Ordering;
use sweep::Sweeper;

/// Why a step was not finished.
pub(crate) enum StepError {
    /// The server is stopping or has failed.
    Server(MetaError),
    /// A brick failed: try again later.
    Brick(BlockError),
}

impl From<MetaError> for StepError {
    fn from(error: MetaError) -> StepError {
        StepError::Server(error)
    }
}
impl From<BlockError> for StepError {
    fn from(error: BlockError) -> StepError {
        StepError::Brick(error)
    }
}
impl From<TreeError> for StepError {
    fn from(error: TreeError) -> StepError {
        StepError::Server(MetaError::Failed(error.to_string()))
    }
}
impl From<Fault<TreeError>> for StepError {
    fn from(fault: Fault<TreeError>) -> StepError {
        match fault {
            Fault::Errno(errno) => StepError::Server(MetaError::Errno(errno)),
            Fault::Tree(error) => error.into(),
        }
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
            Err(StepError::Server(error @ (MetaError::Unavailable(_) | MetaError::NotLeader { .. })))
                if shared.serving().is_ok() =>
            {
                tracing::debug!(%error, "background work is deferred");
                shared.background.add(Work { compact: true, ..work });
                shared.background.rest(RETRY_AFTER);
            }
            Err(StepError::Server(error)) => {
                if shared.serving().is_ok() && !matches!(error, MetaError::NotLeader { .. }) {
                    tracing::error!(%error, "background work stops");
                }
                shared.background.stop();
                return;
            }
            Err(StepError::Brick(error)) => {
                tracing::warn!(%error, "background work waits for a brick");
                // Any step may have failed: all of the work is queued again.
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

    fn step(&mut self, shared: &Shared, work: &Work, left: &mut Work) -> Result<(), StepError> {
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
        if work.sweep_soon {
            self.sweeper.soon(now);
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
