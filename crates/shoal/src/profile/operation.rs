//! Calls of one kind: how many, and how long they took.

use serde::{Deserialize, Serialize};
use shoal_fuse::OpStats;
use std::collections::HashMap;

/// Calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpReport {
    /// Which kind.
    pub name: String,
    /// How many.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// How many could not be answered from memory.
    pub slow: u64,
    /// Mean duration, in nanoseconds.
    pub mean_ns: u64,
    /// Duration that half of them did not exceed, to a power of two.
    pub p50_ns: u64,
    /// Duration that 99 of 100 did not exceed, to a power of two.
    pub p99_ns: u64,
    /// Upper bound of the longest, to a power of two.
    pub max_ns: u64,
    /// All durations together.
    pub total_ns: u64,
    /// How many took 2^n up to 2^(n+1) nanoseconds, by n.
    pub latency_log2: Vec<u64>,
}

impl OpReport {
    /// Completes what follows from the histogram and the total.
    pub(super) fn summed_up(mut self) -> OpReport {
        while self.latency_log2.last() == Some(&0) {
            self.latency_log2.pop();
        }
        self.count = self.latency_log2.iter().sum();
        self.mean_ns = self.total_ns.checked_div(self.count).unwrap_or(0);
        [self.p50_ns, self.p99_ns, self.max_ns] = [0.5, 0.99, 1.0].map(|part| {
            let want = ((self.count as f64 * part).ceil() as u64).max(1);
            let mut seen = 0;
            let bucket = self.latency_log2.iter().position(|count| {
                seen += count;
                seen >= want
            });
            bucket.map_or(0, |bucket| 2 << bucket.min(62))
        });
        self
    }

    /// Lower bound of the shortest, to a power of two, in nanoseconds; 0 if there were none.
    pub fn min_ns(&self) -> u64 {
        self.latency_log2.iter().position(|count| *count > 0).map_or(0, |bucket| 1 << bucket.min(63))
    }

    /// What was added since an earlier report.
    pub fn since(&self, before: &OpReport) -> OpReport {
        let earlier = before.latency_log2.iter().copied().chain(std::iter::repeat(0));
        let latency_log2 =
            self.latency_log2.iter().zip(earlier).map(|(now, then)| now.saturating_sub(then)).collect();
        let less = OpReport {
            name: self.name.clone(),
            errors: self.errors.saturating_sub(before.errors),
            slow: self.slow.saturating_sub(before.slow),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            latency_log2,
            ..OpReport::default()
        };
        less.summed_up()
    }
}

impl From<&OpStats> for OpReport {
    fn from(stats: &OpStats) -> OpReport {
        let report = OpReport {
            name: stats.name.to_owned(),
            errors: stats.errors,
            slow: stats.slow,
            total_ns: stats.total_ns,
            latency_log2: stats.latency.to_vec(),
            ..OpReport::default()
        };
        report.summed_up()
    }
}

/// What was added since earlier reports, by kind; kinds that did not occur in between are left out.
pub fn since_all(before: &[OpReport], now: &[OpReport]) -> Vec<OpReport> {
    let earlier: HashMap<&str, &OpReport> = before.iter().map(|op| (op.name.as_str(), op)).collect();
    let less = now.iter().map(|op| match earlier.get(op.name.as_str()) {
        Some(before) => op.since(before),
        None => op.clone(),
    });
    less.filter(|op| op.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_sums_up_its_histogram_and_subtracts_an_earlier_one() {
        let report = |latency_log2, total_ns| {
            OpReport { name: "read".into(), total_ns, latency_log2, ..OpReport::default() }.summed_up()
        };
        let before = report(vec![0, 0, 10], 50);
        let now = report(vec![0, 0, 10, 0, 0, 99, 1, 0, 0], 4050);
        assert_eq!(now.min_ns(), 4);
        assert_eq!((now.count, now.mean_ns, now.p50_ns, now.p99_ns, now.max_ns), (110, 36, 64, 64, 128));
        let between = now.since(&before);
        assert_eq!((between.count, between.mean_ns, between.p50_ns, between.max_ns), (100, 40, 64, 128));
        assert_eq!(between.latency_log2.len(), 7);
        assert_eq!(now.since(&now), OpReport { name: "read".into(), ..OpReport::default() });
    }

    #[test]
    fn kinds_that_did_not_occur_in_between_are_left_out() {
        let report = |name: &str, latency_log2| {
            OpReport { name: name.into(), latency_log2, ..OpReport::default() }.summed_up()
        };
        let before = [report("read", vec![1]), report("write", vec![1])];
        let now = [report("read", vec![3]), report("write", vec![1]), report("fsync", vec![0, 1])];
        let between = since_all(&before, &now);
        let counts: Vec<_> = between.iter().map(|op| (op.name.as_str(), op.count)).collect();
        assert_eq!(counts, [("read", 2), ("fsync", 1)]);
    }
}
