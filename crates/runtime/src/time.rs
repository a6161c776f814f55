//! Clocks.

use crate::simulator::here;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::OnceLock;
pub use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time of the monotonic clock, like [`std::time::Instant`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(std::time::Instant);

/// Where the monotonic clocks of simulations begin.
fn base() -> std::time::Instant {
    static BASE: OnceLock<std::time::Instant> = OnceLock::new();
    *BASE.get_or_init(std::time::Instant::now)
}

impl Instant {
    /// The current time.
    #[inline]
    pub fn now() -> Instant {
        match here() {
            Some(simulator) => Instant(base() + simulator.now()),
            None => Instant(std::time::Instant::now()),
        }
    }

    /// Time since this instant.
    pub fn elapsed(&self) -> Duration {
        Instant::now().0.saturating_duration_since(self.0)
    }

    /// Time since an earlier instant; 0 if that is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// Time since an earlier instant; `None` if that is later.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// A later instant, if the clock can represent it.
    pub fn checked_add(&self, more: Duration) -> Option<Instant> {
        self.0.checked_add(more).map(Instant)
    }

    /// An earlier instant, if the clock can represent it.
    pub fn checked_sub(&self, less: Duration) -> Option<Instant> {
        self.0.checked_sub(less).map(Instant)
    }

    /// The form that the system's calls take.
    pub(crate) fn system(self) -> std::time::Instant {
        self.0
    }

    /// The form that a simulator takes.
    pub(crate) fn simulated(self) -> Duration {
        self.0.saturating_duration_since(base())
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, more: Duration) -> Instant {
        Instant(self.0 + more)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, more: Duration) {
        self.0 += more;
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, less: Duration) {
        self.0 -= less;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.0 - earlier.0
    }
}

/// Time since the machine was started, including suspends.
pub fn since_boot() -> Duration {
    if let Some(simulator) = here() {
        return simulator.now();
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a time to the place that the pointer names.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    assert_eq!(outcome, 0, "Linux has this clock since 2.6.39");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The wall clock.
pub fn wall() -> SystemTime {
    match here() {
        Some(simulator) => UNIX_EPOCH + simulator.wall(),
        None => SystemTime::now(),
    }
}
