//! Bounds what is logged of events that may come by the thousand.

use crate::sync::Mutex;
use crate::time::{Duration, Instant};

/// So many lines in each period; the others are counted.
#[derive(Debug)]
pub struct LogLimit {
    lines_max: u64,
    period: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    lines: u64,
    left_out: u64,
}

impl LogLimit {
    /// A limit of this many lines in each period.
    pub fn new(lines_max: u64, period: Duration) -> LogLimit {
        LogLimit { lines_max, period, state: Mutex::default() }
    }

    /// Whether one more line may be logged: if so, how many were left out in earlier periods and have not
    /// been told yet.
    pub fn admits(&self) -> Option<u64> {
        self.admits_at(Instant::now())
    }

    fn admits_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let is_over = state.since.is_none_or(|since| now.saturating_duration_since(since) > self.period);
        let mut left_out = 0;
        if is_over {
            left_out = state.left_out;
            *state = State { since: Some(now), ..State::default() };
        }
        if state.lines >= self.lines_max {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told_with_the_next_one() {
        let (limit, now) = (LogLimit::new(3, Duration::from_secs(60)), Instant::now());
        let admitted: Vec<_> = (0..5).map(|_| limit.admits_at(now)).collect();
        assert_eq!(admitted, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(limit.admits_at(now + Duration::from_secs(59)), None);
        assert_eq!(limit.admits_at(now + Duration::from_secs(61)), Some(3));
        assert_eq!(limit.admits_at(now + Duration::from_secs(122)), Some(0));
    }
}
