//! The scrubber: reads every block of a brick periodically and slowly, so that damage is found before the
//! last good copy is needed.
//!
//! A damaged copy is replaced from another brick of its volume. Without another copy it is left as it is and
//! reported, and a reader of it gets an error.

use crate::blocks::ReplicatedBlocks;
use crate::limits::{SCRUB_BYTES_PER_SECOND, SCRUB_REST};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_brick::{Brick, ScrubOptions};
use shoal_types::{BlockId, BrickId, Timestamp};
use shoal_wire::BlockError;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What was found since the scrubber started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// How often the whole brick was read.
    pub rounds: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks that were damaged or could not be read.
    pub damaged: u64,
    /// Damaged blocks that were replaced.
    pub repaired: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// When the last round was completed.
    pub finished: Option<Timestamp>,
    /// Whether blocks are being read now: a round is in progress and not paused.
    pub reading: bool,
    /// Whether it is paused.
    pub paused: bool,
}

/// Scrubs one brick until it is dropped.
pub struct Scrubber {
    control: Arc<Control>,
    thread: Thread,
}

/// What the scrubber's thread shares with its owner.
#[derive(Default)]
struct Control {
    stop: AtomicBool,
    paused: AtomicBool,
    /// A round is to begin now, however long ago the last one was.
    wanted: AtomicBool,
    report: Mutex<ScrubReport>,
}

impl Scrubber {
    /// Starts after a while, at [`SCRUB_BYTES_PER_SECOND`].
    pub fn start(
        id: BrickId,
        brick: Arc<Brick>,
        blocks: Arc<ReplicatedBlocks>,
        after: Duration,
    ) -> std::io::Result<Scrubber> {
        let control = Arc::<Control>::default();
        let shared = control.clone();
        let work = move || {
            shared.rest(after);
            while !shared.is_over() {
                shared.round(id, &brick, &blocks);
                shared.rest(SCRUB_REST);
            }
        };
        let thread = std::thread::Builder::new().name("scrub".into()).spawn(work)?;
        Ok(Scrubber { control, thread: thread.thread().clone() })
    }

    /// What was found so far.
    pub fn report(&self) -> ScrubReport {
        let paused = self.control.paused.load(Ordering::Relaxed);
        let report = self.control.report.lock().clone();
        ScrubReport { paused, reading: report.reading && !paused, ..report }
    }

    /// Pauses, or resumes at the same block.
    pub fn pause(&self, paused: bool) {
        if self.control.paused.swap(paused, Ordering::Relaxed) != paused {
            self.thread.unpark();
        }
    }

    /// Begins a round now, unless one is in progress. A paused scrubber begins it when it is resumed.
    pub fn begin_round(&self) {
        if !self.control.report.lock().reading {
            self.control.wanted.store(true, Ordering::Relaxed);
            self.thread.unpark();
        }
    }
}

impl Drop for Scrubber {
    /// The thread ends after the block that it is reading, which is not waited for.
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Control {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until it is resumed or ended.
    fn wait_resumed(&self) {
        while self.paused.load(Ordering::Relaxed) && !self.is_over() {
            std::thread::park();
        }
    }

    /// Rests between rounds.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && !self.wanted.swap(false, Ordering::Relaxed) {
            match until.checked_duration_since(Instant::now()) {
                None => break,
                Some(rest) => std::thread::park_timeout(rest),
            }
        }
        self.wait_resumed();
    }

    fn round(&self, id: BrickId, brick: &Brick, blocks: &ReplicatedBlocks) {
        self.report.lock().reading = true;
        let options = ScrubOptions { bytes_per_second: NonZeroU64::new(SCRUB_BYTES_PER_SECOND) };
        let outcome = brick.scrub(&options, &self.stop, &mut |block, found| {
            self.report.lock().blocks += 1;
            if let Err(error) = found {
                self.damaged(id, blocks, block, error);
            }
            self.wait_resumed();
        });
        let mut report = self.report.lock();
        report.reading = false;
        match outcome {
            Ok(summary) if !summary.stopped => {
                report.rounds += 1;
                report.finished = Some(Timestamp::now());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(brick = %id, %error, "scrubbing");
                report.last_error = Some(error.to_string());
            }
        }
    }

    fn damaged(&self, id: BrickId, blocks: &ReplicatedBlocks, block: BlockId, error: BlockError) {
        tracing::error!(brick = %id, %error, "a block is damaged");
        let repaired = match error {
            BlockError::Corrupt { .. } => blocks.repair_copy(block, id),
            _ => Err(error.clone()),
        };
        let mut report = self.report.lock();
        report.damaged += 1;
        report.last_error = Some(error.to_string());
        match repaired {
            Ok(()) => {
                tracing::info!(brick = %id, %block, "repaired a damaged copy");
                report.repaired += 1;
            }
            Err(error) => tracing::warn!(brick = %id, %block, %error, "a damaged copy cannot be repaired"),
        }
    }
}
