//! Counts of the kernel's requests, and the time that it took to answer them.
//!
//! Counting must be cheap compared with a request of a few microseconds. So the counters are relaxed atomics
//! in [`COUNTER_SHARDS`] copies, on which reading threads rarely contend; a reader adds them up.
//!
//! A request is counted just before its reply is sent: a program that sees the effect of a system call sees
//! it counted.

use crate::context::{Context, Op};
use crate::hot::{HotBy, HotInode, HotInodes};
use crate::invalidate::InvalidationCounts;
use crate::limits::COUNTER_SHARDS;
use shoal_runtime::histogram::{BUCKETS, Histogram, Snapshot};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

impl Op {
    /// The kind under which inodes are counted: listings of either form are one kind.
    fn hot(self) -> usize {
        match self {
            Op::Readdirplus => Op::Readdir as usize,
            op => op as usize,
        }
    }
}

/// The names of the kinds of requests, as in [`OpStats::name`].
pub fn operations() -> impl Iterator<Item = &'static str> {
    Op::ALL.iter().map(|op| op.name())
}

/// One kind of request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpStats {
    /// The name of the request, as in fuse(4), in lower case.
    pub name: &'static str,
    /// How many were answered.
    pub count: u64,
    /// How many of them with an error ("no such name" is no error).
    pub errors: u64,
    /// How many could not be answered from memory by a reading thread.
    pub slow: u64,
    /// Total time from reading the requests to having the answers, in nanoseconds.
    pub total_ns: u64,
    /// How many took 2^n up to 2^(n+1) nanoseconds, by n.
    pub latency: [u64; BUCKETS],
}

impl OpStats {
    /// The duration that a part `q` (0.0 to 1.0) of all requests did not exceed, in nanoseconds, to the
    /// precision of the histogram: the upper edge of the bucket. 0 if there were none.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let want = (self.count as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.latency.iter().enumerate() {
            seen += count;
            if seen >= want && seen > 0 {
                return 2 << bucket;
            }
        }
        0
    }

    /// The mean duration in nanoseconds; 0 if there were none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// Everything counted since the mount began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// By kind, those that occurred.
    pub ops: Vec<OpStats>,
    /// Requests waiting for a thread that may wait for disk or server, at this moment.
    pub slow_queued: usize,
    /// Sizes of READ replies, in bytes.
    pub reads: Snapshot,
    /// Sizes of WRITE requests, in bytes.
    pub writes: Snapshot,
    /// Invalidations because of changes by other clients.
    pub invalidations: InvalidationCounts,
}

impl Stats {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.ops.iter().map(|op| op.count).sum()
    }

    /// Requests of one kind.
    pub fn count(&self, name: &str) -> u64 {
        self.ops.iter().filter(|op| op.name == name).map(|op| op.count).sum()
    }
}

struct Cell64 {
    errors: AtomicU64,
    slow: AtomicU64,
    latency: Histogram,
}

/// One copy of all counters.
#[repr(align(128))]
struct Shard {
    ops: Vec<Cell64>,
    reads: Histogram,
    writes: Histogram,
}

pub(crate) struct Counters {
    shards: Vec<Shard>,
    /// Reading threads so far.
    readers: AtomicUsize,
    hot: HotInodes,
    /// Nothing is counted any more.
    is_off: AtomicBool,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let cell =
            || Cell64 { errors: AtomicU64::new(0), slow: AtomicU64::new(0), latency: Histogram::default() };
        let shard = || Shard {
            ops: Op::ALL.iter().map(|_| cell()).collect(),
            reads: Histogram::default(),
            writes: Histogram::default(),
        };
        Counters {
            shards: (0..COUNTER_SHARDS).map(|_| shard()).collect(),
            readers: AtomicUsize::new(0),
            hot: HotInodes::new(Op::ALL.len()),
            is_off: AtomicBool::new(false),
        }
    }

    /// From now on nothing is counted. This is for measuring what counting costs.
    pub(crate) fn stop(&self) {
        self.is_off.store(true, Relaxed);
    }

    /// The copy of the counters for one more reading thread: see [`Context::shard`].
    pub(crate) fn next_shard(&self) -> usize {
        self.readers.fetch_add(1, Relaxed) % self.shards.len()
    }

    /// The request has its answer.
    pub(crate) fn record(&self, context: &Context, failed: bool) {
        if self.is_off.load(Relaxed) {
            return;
        }
        let op = context.op;
        let cell = &self.shards[context.shard].ops[op as usize];
        cell.latency.record(context.begun.elapsed());
        if failed {
            cell.errors.fetch_add(1, Relaxed);
        }
        if context.is_slow {
            cell.slow.fetch_add(1, Relaxed);
        }
        // Reads and writes are counted with their bytes.
        if let Some(ino) = context.counted().filter(|_| !matches!(op, Op::Read | Op::Write)) {
            self.hot.add(op.hot(), ino, 0);
        }
    }

    /// A READ of a file returns this many bytes.
    pub(crate) fn read(&self, context: &Context, bytes: usize) {
        if self.is_off.load(Relaxed) {
            return;
        }
        self.shards[context.shard].reads.add(bytes as u64);
        self.hot.add(Op::Read.hot(), context.ino, bytes as u64);
    }

    /// A WRITE of this many bytes to a file is carried out.
    pub(crate) fn written(&self, context: &Context, bytes: usize) {
        if self.is_off.load(Relaxed) {
            return;
        }
        self.shards[context.shard].writes.add(bytes as u64);
        self.hot.add(Op::Write.hot(), context.ino, bytes as u64);
    }

    /// The sizes of reads and of writes.
    pub(crate) fn sizes(&self) -> (Snapshot, Snapshot) {
        let (mut reads, mut writes) = (Snapshot::default(), Snapshot::default());
        for shard in &self.shards {
            shard.reads.add_to(&mut reads);
            shard.writes.add_to(&mut writes);
        }
        (reads, writes)
    }

    /// The inodes with the most requests of the kind with this name, since when; `None`: there is no such
    /// kind.
    pub(crate) fn hot(&self, name: &str, by: HotBy, count_max: usize) -> Option<(Vec<HotInode>, Instant)> {
        let op = Op::ALL.iter().find(|op| op.name() == name)?;
        Some((self.hot.first(op.hot(), by, count_max), self.hot.since()))
    }

    /// Resets the counts of inodes.
    pub(crate) fn clear_hot(&self) {
        self.hot.clear();
    }

    pub(crate) fn snapshot(&self) -> Vec<OpStats> {
        Op::ALL.iter().map(|&op| self.sum(op)).filter(|op| op.count > 0).collect()
    }

    fn sum(&self, op: Op) -> OpStats {
        let (mut errors, mut slow, mut latency) = (0, 0, Snapshot::default());
        for shard in &self.shards {
            let cell = &shard.ops[op as usize];
            errors += cell.errors.load(Relaxed);
            slow += cell.slow.load(Relaxed);
            cell.latency.add_to(&mut latency);
        }
        let (count, Snapshot { total, buckets }) = (latency.count(), latency);
        OpStats { name: op.name(), count, errors, slow, total_ns: total, latency: buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::InodeId;

    #[test]
    fn counts_of_many_threads_add_up() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let (shard, counters) = (counters.next_shard(), &counters);
                scope.spawn(move || {
                    for n in 0..1000 {
                        let context = Context { shard, ..Context::new(Op::Lookup, InodeId(n % 2 + 1)) };
                        counters.record(&if n % 4 == 0 { context.slow() } else { context }, n % 10 == 0);
                    }
                });
            }
        });
        counters.record(&Context::new(Op::Fsync, InodeId::ROOT).unnamed(), false);
        let ops = counters.snapshot();
        assert_eq!(ops.iter().map(|op| op.name).collect::<Vec<_>>(), ["lookup", "fsync"]);
        assert_eq!((ops[0].count, ops[0].errors, ops[0].slow), (8000, 800, 2000));
        counters.read(&Context::new(Op::Read, InodeId(1)), 5);
        counters.written(&Context::new(Op::Write, InodeId(1)), 7);
        let (reads, writes) = counters.sizes();
        assert_eq!((reads.total, writes.total, reads.buckets[2]), (5, 7, 1));
        let hot = |name| counters.hot(name, HotBy::Count, 2).map(|(inodes, _)| inodes);
        let inode = |ino, count, bytes| HotInode { ino: InodeId(ino), count, over_max: 0, bytes };
        assert_eq!(hot("lookup"), Some(vec![inode(1, 4000, 0), inode(2, 4000, 0)]));
        assert_eq!((hot("read"), hot("fsync")), (Some(vec![inode(1, 1, 5)]), Some(Vec::new())));
        assert_eq!(hot("format"), None);
        let stats =
            Stats { ops, slow_queued: 0, reads, writes, invalidations: InvalidationCounts::default() };
        assert_eq!(stats.requests(), 8001);
        counters.stop();
        counters.record(&Context::new(Op::Lookup, InodeId(1)), false);
        counters.read(&Context::new(Op::Read, InodeId(1)), 5);
        assert_eq!((counters.snapshot()[0].count, counters.sizes().0.total), (8000, 5));
    }

    #[test]
    fn a_quantile_is_the_upper_edge_of_its_bucket() {
        let mut latency = [0; BUCKETS];
        latency[10] = 90;
        latency[20] = 10;
        let op = OpStats { name: "read", count: 100, errors: 0, slow: 0, total_ns: 5000, latency };
        assert_eq!(op.quantile_ns(0.5), 2 << 10);
        assert_eq!(op.quantile_ns(0.9), 2 << 10);
        assert_eq!(op.quantile_ns(0.99), 2 << 20);
        assert_eq!(op.mean_ns(), 50);
        let none = OpStats { count: 0, total_ns: 0, latency: [0; BUCKETS], ..op };
        assert_eq!((none.quantile_ns(0.99), none.mean_ns()), (0, 0));
    }
}
