//! Options of a volume's server.

use std::time::Duration;

/// Options of a volume's server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Creates a volume of this identity if there is none. Without it, a directory without a volume is an
    /// error.
    pub create: Option<u128>,
    /// Copies of every block that such a volume is to have; 0: it has one brick and no cluster around it.
    pub replica: u8,
    /// Space to keep free on each disk, in bytes; by default a part of the disk, see
    /// [`limits::RESERVE_PART`](crate::limits::RESERVE_PART).
    pub reserve_bytes: Option<u64>,
    /// The log after the last flush of the store may grow to this, in bytes; by default it depends on the
    /// disk.
    pub log_bytes: Option<u64>,
    /// A session that has been silent for this long may be fenced if it blocks another; by default
    /// [`limits::SESSION_DEAD_AFTER`](crate::limits::SESSION_DEAD_AFTER).
    pub session_dead_after: Option<Duration>,
    /// A file of many small extents is left alone for this long before it is compacted; by default
    /// [`limits::COMPACT_AFTER`](crate::limits::COMPACT_AFTER).
    pub compact_after: Option<Duration>,
    /// Interval at which all bricks are searched for unknown copies; by default
    /// [`limits::SWEEP_EVERY`](crate::limits::SWEEP_EVERY).
    pub sweep_every: Option<Duration>,
}
