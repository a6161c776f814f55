//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since 1970 by this machine's clock; none if that is set before.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
