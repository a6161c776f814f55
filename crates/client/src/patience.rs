//! Trying again: pauses that grow, and a word to the administrator now and then, not at every try.

use crate::limits::{COMPLAIN_AFTER, COMPLAIN_EVERY, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use shoal_runtime::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    began: Instant,
    pause: Duration,
    complain: Instant,
    complained: bool,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        let began = Instant::now();
        Patience { began, pause: RETRY_PAUSE_MIN, complain: began + COMPLAIN_AFTER, complained: false }
    }

    /// How long to wait before the next try.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(RETRY_PAUSE_MAX);
        pause
    }

    /// Whether it is time to say that this is taking long.
    pub(crate) fn complains(&mut self) -> bool {
        let due = Instant::now() >= self.complain;
        if due {
            self.complain = Instant::now() + COMPLAIN_EVERY;
            self.complained = true;
        }
        due
    }

    /// Whether somebody was told, and should hear of the end.
    pub(crate) fn complained(&self) -> bool {
        self.complained
    }

    /// Since when.
    pub(crate) fn waited(&self) -> Duration {
        self.began.elapsed()
    }
}
