//! Counters of a client.

use std::sync::atomic::{AtomicU64, Ordering};

/// A named number. Names of counters that only grow end in `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The name, in the style of Prometheus.
    pub name: &'static str,
    /// The value.
    pub value: u64,
}

/// A number that only grows, shared between threads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a session.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Calls answered from memory.
    pub(crate) hits: Counter,
    /// Times that a call had to fetch something, or wait.
    pub(crate) misses: Counter,
    /// Listings requested from the server, in pages.
    pub(crate) listings: Counter,
    /// Single names, inodes and extent pages requested from the server.
    pub(crate) lookups: Counter,
    /// Requests for rights.
    pub(crate) acquires: Counter,
    /// Prefetch requests for walks.
    pub(crate) walks: Counter,
    /// Batches sent, and their bytes.
    pub(crate) batches: Counter,
    pub(crate) batch_bytes: Counter,
    /// Calls of fsync that had something to wait for.
    pub(crate) syncs: Counter,
    /// Blocks written and read, and their bytes.
    pub(crate) puts: Counter,
    pub(crate) put_bytes: Counter,
    pub(crate) gets: Counter,
    pub(crate) get_bytes: Counter,
    /// Reads of blocks answered from memory.
    pub(crate) block_hits: Counter,
    /// Bytes of blocks that reads returned. `get_bytes` divided by it is the read amplification.
    pub(crate) block_read_bytes: Counter,
    /// Times that storing or reading a block had to wait for bricks that did not answer.
    pub(crate) put_waits: Counter,
    pub(crate) get_waits: Counter,
    /// Lookups of block groups on the server.
    pub(crate) locates: Counter,
}
