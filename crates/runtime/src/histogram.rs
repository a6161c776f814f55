//! Latencies, or sizes, in exponential buckets: powers of two of a nanosecond, or of a byte.
//!
//! Recording one is two relaxed additions, without a lock or an allocation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets of a latency histogram. Bucket `n` counts durations from 2^n nanoseconds up to twice that, so the
/// last one begins at about 34 seconds.
pub const BUCKETS: usize = 36;

/// A histogram of latencies in nanoseconds, or of sizes in bytes, that many threads record into.
#[derive(Debug)]
pub struct Histogram {
    total: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// The values of a histogram at one moment, or the sum of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// All values together.
    pub total: u64,
    /// How many values were from 2^n up to 2^(n+1), by n.
    pub buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { total: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        self.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one value.
    pub fn add(&self, value: u64) {
        let bucket = (value.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.total.fetch_add(value, Relaxed);
    }

    /// The values now.
    pub fn snapshot(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        self.add_to(&mut sum);
        sum
    }

    /// Adds the values to a sum.
    pub fn add_to(&self, sum: &mut Snapshot) {
        sum.total = sum.total.wrapping_add(self.total.load(Relaxed));
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
    }
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot { total: 0, buckets: [0; BUCKETS] }
    }
}

impl Snapshot {
    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_many_threads_add_up_by_power_of_two() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        histogram.record(Duration::from_nanos(1000));
                        histogram.record(Duration::from_nanos(1024));
                    }
                });
            }
        });
        histogram.record(Duration::ZERO);
        histogram.record(Duration::from_secs(1_000_000));
        let mut snapshot = histogram.snapshot();
        assert_eq!((snapshot.buckets[9], snapshot.buckets[10]), (4000, 4000));
        assert_eq!((snapshot.buckets[0], snapshot.buckets[BUCKETS - 1], snapshot.count()), (1, 1, 8002));
        assert_eq!(snapshot.total, 4000 * 2024 + 1_000_000_000_000_000);
        histogram.add_to(&mut snapshot);
        assert_eq!(snapshot.count(), 16004);
    }
}
