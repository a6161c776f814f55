//! The lease of a session: until when it may answer from its caches.

use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, since_boot};
use std::sync::atomic::{AtomicU64, Ordering};

/// Until when caches may be used, on a clock that includes suspend (`CLOCK_BOOTTIME`).
pub(crate) struct Lease {
    pub(crate) length: Duration,
    until_ms: AtomicU64,
}

/// A moment of the lease's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment(since_boot())
    }
}

impl Lease {
    /// The lease of a session whose opening was requested at this moment.
    pub(crate) fn new(asked: Moment, length: Duration) -> Lease {
        let lease = Lease { length, until_ms: AtomicU64::new(0) };
        lease.renew(asked);
        lease
    }

    /// The servers have replied to a request that was sent at this moment. Returns until when the lease
    /// lasts.
    pub(crate) fn renew(&self, asked: Moment) -> Duration {
        let until = asked.0 + self.length;
        self.until_ms.fetch_max(until.as_millis() as u64, Ordering::AcqRel);
        until
    }

    /// Whether caches may be used.
    pub(crate) fn holds(&self) -> bool {
        self.left() > Duration::ZERO || mistake("serve from caches without a lease")
    }

    /// For how long it lasts unless it is renewed.
    pub(crate) fn left(&self) -> Duration {
        let until = Duration::from_millis(self.until_ms.load(Ordering::Acquire));
        until.saturating_sub(Moment::now().0)
    }
}
