//! Points in time as POSIX files know them.

use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds and nanoseconds since 1970 (`struct timespec`); seconds may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Timestamp {
    /// Whole seconds, rounded towards the past.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// The wall clock now. Pure code takes times as arguments instead.
    pub fn now() -> Timestamp {
        shoal_runtime::time::wall().into()
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp { secs: after.as_secs() as i64, nanos: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                match before.subsec_nanos() {
                    0 => Timestamp { secs: -(before.as_secs() as i64), nanos: 0 },
                    n => Timestamp { secs: -(before.as_secs() as i64) - 1, nanos: 1_000_000_000 - n },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> SystemTime {
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        if time.secs >= 0 {
            UNIX_EPOCH + Duration::from_secs(time.secs as u64) + nanos
        } else {
            UNIX_EPOCH - Duration::from_secs(time.secs.unsigned_abs()) + nanos
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive_the_round_trip() {
        for time in [
            Timestamp { secs: -1, nanos: 999_999_999 },
            Timestamp { secs: -5, nanos: 0 },
            Timestamp { secs: 0, nanos: 1 },
            Timestamp { secs: 4_000_000_000, nanos: 5 },
        ] {
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }
}
