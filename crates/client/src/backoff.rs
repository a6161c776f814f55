//! Backoff: pauses that grow between retries, and log lines at a limited rate.

use crate::limits::{COMPLAIN_AFTER, COMPLAIN_EVERY, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use shoal_runtime::time::{Duration, Instant};

/// The backoff of one wait.
#[derive(Debug)]
pub(crate) struct Backoff {
    began: Instant,
    pause: Duration,
    complain: Instant,
    complained: bool,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        let began = Instant::now();
        Backoff { began, pause: RETRY_PAUSE_MIN, complain: began + COMPLAIN_AFTER, complained: false }
    }

    /// How long to wait before the next retry.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(RETRY_PAUSE_MAX);
        pause
    }

    /// Whether it is time to log that this is taking long.
    pub(crate) fn complains(&mut self) -> bool {
        let due = Instant::now() >= self.complain;
        if due {
            self.complain = Instant::now() + COMPLAIN_EVERY;
            self.complained = true;
        }
        due
    }

    /// Whether that has been logged. Then the end of the wait is logged, too.
    pub(crate) fn complained(&self) -> bool {
        self.complained
    }

    /// How long the wait has lasted.
    pub(crate) fn waited(&self) -> Duration {
        self.began.elapsed()
    }
}
