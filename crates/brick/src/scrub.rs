//! Reading every block to see whether it is still what was put.

use crate::brick::Brick;
use shoal_types::BlockId;
use shoal_wire::BlockError;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The settings of a scrub.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrubOptions {
    /// Read no faster than this on average; `None`: as fast as the disk.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// The result of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubSummary {
    /// Blocks that were read.
    pub blocks: u64,
    /// Bytes of content in those that are intact.
    pub bytes: u64,
    /// Blocks that are damaged or could not be read.
    pub damaged: u64,
    /// Whether it was stopped before the end.
    pub stopped: bool,
}

/// Longest sleep at a time, so that a slow scrub stops soon when asked to.
const NAP_MAX: Duration = Duration::from_millis(100);

impl Brick {
    /// Verifies every block and reports each, intact (with its length) or not, until all are done or `stop`
    /// is set. Blocks that are put or deleted meanwhile may or may not be among them. Only a directory that
    /// cannot be read ends it early.
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        stop: &AtomicBool,
        report: &mut dyn FnMut(BlockId, Result<u32, BlockError>),
    ) -> Result<ScrubSummary, BlockError> {
        let mut summary = ScrubSummary::default();
        let mut limiter = RateLimiter { limit: options.bytes_per_second, started: Instant::now(), bytes: 0 };
        for session in self.session_directories()? {
            for run in self.runs_of(session)? {
                for id in self.blocks_of(run)? {
                    if !limiter.wait(stop) {
                        summary.stopped = true;
                        return Ok(summary);
                    }
                    // A put under way is not torn, only unfinished.
                    if self.under_way.lock().contains(&id) {
                        continue;
                    }
                    let outcome = self.verify(id);
                    match &outcome {
                        Err(BlockError::Missing(_)) => continue,
                        Ok(len) => {
                            summary.bytes += u64::from(*len);
                            limiter.bytes += u64::from(*len);
                        }
                        Err(_) => summary.damaged += 1,
                    }
                    summary.blocks += 1;
                    report(id, outcome);
                }
            }
        }
        Ok(summary)
    }
}

/// Time that may be made up for by reading faster than the limit: a scrub that was paused goes on at its
/// own pace.
const CREDIT_MAX: Duration = Duration::from_secs(1);

/// Keeps the average rate below a limit.
struct RateLimiter {
    limit: Option<NonZeroU64>,
    started: Instant,
    bytes: u64,
}

impl RateLimiter {
    /// Waits until more may be read; false: stop instead.
    fn wait(&mut self, stop: &AtomicBool) -> bool {
        while !stop.load(Ordering::Relaxed) {
            let due = match self.limit {
                Some(limit) => Duration::from_secs_f64(self.bytes as f64 / limit.get() as f64),
                None => Duration::ZERO,
            };
            let late = self.started.elapsed().saturating_sub(due);
            if late > CREDIT_MAX {
                self.started += late - CREDIT_MAX;
            }
            match due.checked_sub(self.started.elapsed()) {
                None | Some(Duration::ZERO) => return true,
                Some(early) => std::thread::sleep(early.min(NAP_MAX)),
            }
        }
        false
    }
}
