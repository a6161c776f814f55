//! Reading every block of a brick again and again, slowly, so that damage is found before the last good copy is needed.
//!
//! A damaged copy is replaced from another brick of its volume. What no other brick has is left as it is: it is reported, and whoever
//! reads it hears of the damage.

use crate::blocks::ReplicatedBlocks;
use crate::limits::{SCRUB_BYTES_PER_SECOND, SCRUB_REST};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_brick::{Brick, ScrubOptions};
use shoal_types::BrickId;
use shoal_wire::BlockError;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What was found since the scrubber began.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// How often the whole brick was read.
    pub rounds: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Those that were damaged or could not be read.
    pub damaged: u64,
    /// Those that were replaced.
    pub repaired: u64,
    /// What was wrong last.
    pub last_error: Option<String>,
}

/// Scrubs one brick until it is dropped.
pub struct Scrubber {
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<ScrubReport>>,
    thread: Thread,
}

impl Scrubber {
    /// Begins after a while, at [`SCRUB_BYTES_PER_SECOND`].
    pub fn start(
        id: BrickId,
        brick: Arc<Brick>,
        blocks: Arc<ReplicatedBlocks>,
        after: Duration,
    ) -> std::io::Result<Scrubber> {
        let (stop, report) = (Arc::<AtomicBool>::default(), Arc::<Mutex<ScrubReport>>::default());
        let (stopped, told) = (stop.clone(), report.clone());
        let work = move || {
            rest(after, &stopped);
            while !stopped.load(Ordering::Relaxed) {
                round(id, &brick, &blocks, &stopped, &told);
                rest(SCRUB_REST, &stopped);
            }
        };
        let thread = std::thread::Builder::new().name("scrub".into()).spawn(work)?;
        Ok(Scrubber { stop, report, thread: thread.thread().clone() })
    }

    /// What was found so far.
    pub fn report(&self) -> ScrubReport {
        self.report.lock().clone()
    }
}

impl Drop for Scrubber {
    /// It ends with the block that it is reading, which is not waited for.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn round(
    id: BrickId,
    brick: &Brick,
    blocks: &ReplicatedBlocks,
    stop: &AtomicBool,
    report: &Mutex<ScrubReport>,
) {
    let options = ScrubOptions { bytes_per_second: NonZeroU64::new(SCRUB_BYTES_PER_SECOND) };
    let outcome = brick.scrub(&options, stop, &mut |block, found| {
        report.lock().blocks += 1;
        let Err(error) = found else { return };
        tracing::error!(brick = %id, %error, "a block is damaged");
        let repaired = match error {
            BlockError::Corrupt { .. } => blocks.repair_copy(block, id),
            _ => Err(error.clone()),
        };
        let mut report = report.lock();
        report.damaged += 1;
        report.last_error = Some(error.to_string());
        match repaired {
            Ok(()) => {
                tracing::info!(brick = %id, %block, "repaired a damaged copy");
                report.repaired += 1;
            }
            Err(error) => tracing::warn!(brick = %id, %block, %error, "a damaged copy cannot be repaired"),
        }
    });
    match outcome {
        Ok(summary) if !summary.stopped => report.lock().rounds += 1,
        Ok(_) => {}
        Err(error) => {
            tracing::error!(brick = %id, %error, "scrubbing");
            report.lock().last_error = Some(error.to_string());
        }
    }
}

fn rest(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        match until.checked_duration_since(Instant::now()) {
            None => return,
            Some(rest) => std::thread::park_timeout(rest),
        }
    }
}
