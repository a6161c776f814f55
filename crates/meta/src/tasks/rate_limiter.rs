//! The rate limit for copying blocks.

use shoal_runtime::sync::Mutex;
use shoal_runtime::time::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest sleep at a time, so that a delayed thread notices soon that it should stop.
const NAP_MAX: Duration = Duration::from_millis(100);

/// Keeps several threads together below a rate.
#[derive(Default)]
pub(crate) struct RateLimiter {
    bytes_per_second: AtomicU64,
    /// When the next bytes may go.
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    pub(crate) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
        // Later waits are not delayed by bytes that were copied at the old rate.
        *self.next.lock() = None;
    }

    /// Waits until this many bytes may be copied; false if `is_over` before that.
    pub(crate) fn wait(&self, bytes: u64, is_over: impl Fn() -> bool) -> bool {
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        let due = {
            let mut next = self.next.lock();
            let due = next.unwrap_or_else(Instant::now).max(Instant::now());
            if rate > 0 {
                *next = Some(due + Duration::from_secs_f64(bytes as f64 / rate as f64));
            }
            due
        };
        while !is_over() {
            match due.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => return true,
                Some(early) => shoal_runtime::thread::sleep(early.min(NAP_MAX)),
            }
        }
        false
    }
}
