//! The clock that stamps changes: this machine's, corrected by that of the servers.
//!
//! **Model.** A server sends its time with a reply: `said`. It read its clock after the request was sent, at
//! `asked`, and before the reply arrived, at `answered`. So its clock is ahead of this machine's by a value
//! between `said - answered` and `said - asked`. The correction changes only if it lies outside of that
//! interval, and only to the nearer end. So latency is never taken for a difference of clocks, and clocks
//! that NTP synchronizes are not corrected at all.
//!
//! **Assumes** nothing of either clock: both may be set at any time, and the next reply corrects that. Times
//! may go back then.

use crate::limits::CLOCK_DIFFERENCE_SAID;
use shoal_types::Timestamp;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// This machine's clock with a correction.
#[derive(Default)]
pub(crate) struct Clock {
    /// The correction: by how much the servers' clock is ahead, in nanoseconds.
    ahead_ns: AtomicI64,
    /// A large difference has been logged.
    said: AtomicBool,
}

impl Clock {
    /// Now, by the clock of the servers.
    pub(crate) fn now(&self) -> Timestamp {
        later(Timestamp::now(), self.ahead_ns.load(Ordering::Relaxed))
    }

    /// How long ago `then` was by the clock of the servers, in milliseconds; 0 if it lies ahead.
    pub(crate) fn age_ms(&self, then: Timestamp) -> u64 {
        u64::try_from(between(then, self.now()) / 1_000_000).unwrap_or(0)
    }

    /// A server's clock showed `said` after `asked` and before now.
    pub(crate) fn observe(&self, asked: Timestamp, said: Timestamp) {
        self.adjust(asked, said, Timestamp::now());
    }

    fn adjust(&self, asked: Timestamp, said: Timestamp, answered: Timestamp) {
        let (least, most) = (between(answered, said), between(asked, said));
        if least > most {
            // This machine's clock was set back meanwhile.
            return;
        }
        // Two replies may move it at the same time: both corrections are valid.
        let known = self.ahead_ns.load(Ordering::Relaxed);
        let ahead = known.clamp(least, most);
        if ahead != known {
            self.ahead_ns.store(ahead, Ordering::Relaxed);
        }
        let far = ahead.unsigned_abs() >= CLOCK_DIFFERENCE_SAID.as_nanos() as u64;
        if self.said.swap(far, Ordering::Relaxed) == far {
            return;
        }
        let by_ms = ahead / 1_000_000;
        if far {
            tracing::warn!(
                by_ms,
                "the servers' clock is ahead of this machine's; times of files are the servers'"
            );
        } else {
            tracing::info!(by_ms, "the servers' clock and this machine's are synchronous again");
        }
    }
}

/// From one time to another, in nanoseconds, clamped to what an `i64` holds.
fn between(from: Timestamp, to: Timestamp) -> i64 {
    let ns = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    (ns(to) - ns(from)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A time `ns` nanoseconds later.
fn later(time: Timestamp, ns: i64) -> Timestamp {
    let nanos = i64::from(time.nanos) + ns.rem_euclid(1_000_000_000);
    let secs = ns.div_euclid(1_000_000_000) + nanos / 1_000_000_000;
    Timestamp { secs: time.secs.saturating_add(secs), nanos: (nanos % 1_000_000_000) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        later(Timestamp { secs: 1_000_000, nanos: 0 }, ms * 1_000_000)
    }

    fn ahead_ms(clock: &Clock) -> i64 {
        clock.ahead_ns.load(Ordering::Relaxed) / 1_000_000
    }

    #[test]
    fn a_clock_that_may_be_right_is_left_alone() {
        let clock = Clock::default();
        clock.adjust(at(0), at(5), at(7));
        clock.adjust(at(10), at(10), at(12));
        assert_eq!(ahead_ms(&clock), 0);
    }

    #[test]
    fn wrong_clock_is_corrected_as_far_as_the_reply_proves() {
        let clock = Clock::default();
        clock.adjust(at(0), at(5_000), at(10));
        assert_eq!(ahead_ms(&clock), 4_990);
        // A slower reply bounds the difference less tightly, a faster one more.
        clock.adjust(at(100), at(5_105), at(150));
        assert_eq!(ahead_ms(&clock), 4_990);
        clock.adjust(at(200), at(5_200), at(202));
        assert_eq!(ahead_ms(&clock), 4_998);
        // Another server leads, whose clock is behind.
        clock.adjust(at(300), at(-700), at(302));
        assert_eq!(ahead_ms(&clock), -1_000);
    }

    #[test]
    fn reply_during_which_the_clock_was_set_back_is_ignored() {
        let clock = Clock::default();
        clock.adjust(at(10_000), at(50), at(20));
        assert_eq!(ahead_ms(&clock), 0);
    }

    #[test]
    fn age_is_by_the_servers_clock_and_never_negative() {
        let clock = Clock::default();
        clock.ahead_ns.store(3_600_000_000_000, Ordering::Relaxed);
        let servers_now = clock.now();
        assert!((90_000..150_000).contains(&clock.age_ms(later(servers_now, -90_000_000_000))));
        assert_eq!(clock.age_ms(later(servers_now, 600_000_000_000)), 0);
    }

    #[test]
    fn times_before_and_after_1970_are_moved_both_ways() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        assert_eq!(later(time(5, 999_999_999), 1), time(6, 0));
        assert_eq!(later(time(5, 0), -1), time(4, 999_999_999));
        assert_eq!(later(time(-5, 0), -1_500_000_000), time(-7, 500_000_000));
        assert_eq!(between(time(-5, 0), time(5, 1)), 10_000_000_001);
        assert_eq!(between(time(i64::MIN, 0), time(i64::MAX, 0)), i64::MAX);
        assert_eq!(later(time(i64::MAX, 0), i64::MAX), time(i64::MAX, 854_775_807));
    }
}
