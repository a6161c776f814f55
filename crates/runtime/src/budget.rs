//! One budget of memory for all large buffers of a process.
//!
//! **Model.** Each [`Use`] counts the bytes that it has in a [`Share`]. Counting never waits and never fails.
//! Before a use grows of its own accord, it asks how much it may have: [`Budget::allowed`]. That is the limit
//! without what more urgent uses have, and without the floors of less urgent ones. So when memory becomes
//! short, the block cache shrinks first, and read-ahead with it; then the metadata cache; then writers wait.
//!
//! **Promises.** No deadlock: nothing waits for bytes of another use. Each use that can wait or shrink may
//! always have its [floor](Use::floor_bytes), and what it has is freed without asking the budget. The floors
//! together are less than half of the limit.
//!
//! **Assumes** that requests, transfers and the store are bounded elsewhere: they count, and do not ask.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// What memory is used for, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Requests of programs that wait.
    Requests,
    /// Parts of blocks that are being fetched, and blocks that a brick is writing.
    Transfers,
    /// Inodes that the kernel refers to.
    Inodes,
    /// The store of a server: its block cache and its memtables.
    Store,
    /// What was written and is not committed.
    Writes,
    /// The cache of metadata and small contents.
    Metadata,
    /// The cache of blocks, with what was read ahead.
    Blocks,
    /// Buffers for direct I/O that are kept to be used again.
    Buffers,
}

impl Use {
    /// All of them, the most urgent first.
    pub const ALL: [Use; 8] = [
        Use::Requests,
        Use::Transfers,
        Use::Inodes,
        Use::Store,
        Use::Writes,
        Use::Metadata,
        Use::Blocks,
        Use::Buffers,
    ];

    /// The name of the figure that says how many bytes it has.
    pub fn figure(self) -> &'static str {
        match self {
            Use::Requests => "memory_requests_bytes",
            Use::Transfers => "memory_transfers_bytes",
            Use::Inodes => "memory_inodes_bytes",
            Use::Store => "memory_store_bytes",
            Use::Writes => "memory_writes_bytes",
            Use::Metadata => "memory_metadata_bytes",
            Use::Blocks => "memory_blocks_bytes",
            Use::Buffers => "memory_buffers_bytes",
        }
    }

    /// What it may always have of a limit, in bytes: enough to make progress, if slowly.
    pub fn floor_bytes(self, limit: usize) -> usize {
        match self {
            Use::Requests | Use::Transfers | Use::Inodes | Use::Store | Use::Buffers => 0,
            Use::Writes | Use::Metadata => limit / 8,
            Use::Blocks => limit / 16,
        }
    }
}

/// The budget of a process.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    used: [AtomicUsize; Use::ALL.len()],
    /// Bytes counted so far, without those that were given back.
    counted: AtomicU64,
}

/// The bytes that one holder has for one use. Dropping it gives them back.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    what: Use,
    bytes: usize,
}

/// The budget of this process. Its limit is far away until [`Budget::set_limit`] is called.
pub fn of_process() -> &'static Arc<Budget> {
    static PROCESS: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(usize::MAX / 2));
    &PROCESS
}

impl Budget {
    /// A budget of this many bytes, of which nothing is used.
    pub fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget {
            limit: AtomicUsize::new(limit),
            used: Default::default(),
            counted: AtomicU64::new(0),
        })
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// A share with nothing in it.
    pub fn share(self: &Arc<Budget>, what: Use) -> Share {
        Share { budget: self.clone(), what, bytes: 0 }
    }

    /// A share with this many bytes in it.
    pub fn count(self: &Arc<Budget>, what: Use, bytes: usize) -> Share {
        let mut share = self.share(what);
        share.set(bytes);
        share
    }

    /// Bytes that a use has.
    pub fn used_for(&self, what: Use) -> usize {
        self.used[what as usize].load(Ordering::Relaxed)
    }

    /// Bytes that all uses have together.
    pub fn used(&self) -> usize {
        Use::ALL.iter().map(|what| self.used_for(*what)).sum()
    }

    /// Bytes that have been counted so far, without those that were given back: tells whether the process is
    /// busy.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Bytes that a use may have in all at the moment, what it has included.
    pub fn allowed(&self, what: Use) -> usize {
        let limit = self.limit();
        let of_others = |other: &Use| match (*other as usize).cmp(&(what as usize)) {
            std::cmp::Ordering::Less => self.used_for(*other),
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => other.floor_bytes(limit),
        };
        let taken: usize = Use::ALL.iter().map(of_others).sum();
        limit.saturating_sub(taken).max(what.floor_bytes(limit))
    }

    /// The limit, the sum, and the bytes of each use, by name.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let both = [("memory_limit_bytes", self.limit()), ("memory_used_bytes", self.used())];
        let each = Use::ALL.map(|what| (what.figure(), self.used_for(what)));
        both.into_iter().chain(each).map(|(name, bytes)| (name, bytes as u64))
    }

    /// The limit, the sum, and the bytes of each use, as text.
    pub fn describe(&self) -> String {
        let of = |what: Use| format!("{what:?} {}", self.used_for(what)).to_lowercase();
        let (used, limit) = (self.used(), self.limit());
        format!("memory: {used} of {limit} bytes are used: {}", Use::ALL.map(of).join(", "))
    }

    /// What one of `streams` that are served at once may have of `bytes`: all get equal parts.
    pub fn part_of(bytes: usize, streams: usize) -> usize {
        bytes / streams.max(1)
    }
}

impl Share {
    /// From now on it holds this many bytes.
    pub fn set(&mut self, bytes: usize) {
        let used = &self.budget.used[self.what as usize];
        match bytes.checked_sub(self.bytes) {
            Some(0) => return,
            Some(more) => {
                used.fetch_add(more, Ordering::Relaxed);
                self.budget.counted.fetch_add(more as u64, Ordering::Relaxed);
            }
            None => _ = used.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
        }
        self.bytes = bytes;
    }

    /// From now on it holds so many bytes more.
    pub fn grow(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }

    /// From now on it holds so many bytes less.
    pub fn shrink(&mut self, bytes: usize) {
        self.set(self.bytes - bytes);
    }

    /// Bytes in it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that all shares for this use may have in all at the moment.
    pub fn allowed(&self) -> usize {
        self.budget.allowed(self.what)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn share_gives_back_what_it_has_when_it_is_dropped() {
        let budget = Budget::new(64 * MIB);
        let mut one = budget.count(Use::Writes, MIB);
        let other = budget.count(Use::Writes, 3 * MIB);
        assert_eq!((budget.used(), budget.used_for(Use::Writes)), (4 * MIB, 4 * MIB));
        one.set(2 * MIB);
        one.set(MIB / 2);
        drop(other);
        assert_eq!((budget.used(), one.bytes(), budget.counted()), (MIB / 2, MIB / 2, 5 * MIB as u64));
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn less_urgent_uses_shrink_first_and_none_below_its_floor() {
        let budget = Budget::new(64 * MIB);
        let _blocks = budget.count(Use::Blocks, 30 * MIB);
        let mut writes = budget.share(Use::Writes);
        assert_eq!(budget.allowed(Use::Writes), 52 * MIB, "the floors of both caches are kept");
        assert_eq!((budget.allowed(Use::Metadata), budget.allowed(Use::Blocks)), (60 * MIB, 64 * MIB));
        writes.set(40 * MIB);
        assert_eq!((budget.allowed(Use::Metadata), budget.allowed(Use::Blocks)), (20 * MIB, 24 * MIB));
        let metadata = budget.count(Use::Metadata, 20 * MIB);
        assert_eq!(budget.allowed(Use::Blocks), 4 * MIB);
        assert_eq!(budget.allowed(Use::Buffers), 0);
        drop(metadata);
        let _requests = budget.count(Use::Requests, 1000 * MIB);
        for what in [Use::Writes, Use::Metadata, Use::Blocks] {
            assert_eq!(budget.allowed(what), what.floor_bytes(64 * MIB));
            assert!(budget.allowed(what) > 0, "{what:?} always makes progress");
        }
    }

    #[test]
    fn uses_that_keep_to_what_is_allowed_stay_within_the_limit() {
        let limit = 64 * MIB;
        let budget = Budget::new(limit);
        let mut shares =
            [Use::Writes, Use::Metadata, Use::Blocks, Use::Buffers].map(|what| budget.share(what));
        let mut state = 7usize;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) % shares.len();
            let wanted = (state >> 35) % limit;
            let bytes = wanted.min(shares[at].allowed());
            shares[at].set(bytes);
            // Less urgent ones shrink when they look next.
            for share in &mut shares {
                share.set(share.bytes().min(share.allowed()));
            }
            assert!(budget.used() <= limit, "{} of {limit}", budget.used());
        }
    }

    #[test]
    fn floors_leave_more_than_half_of_the_limit() {
        let floors: usize = Use::ALL.iter().map(|what| what.floor_bytes(64 * MIB)).sum();
        assert!(floors < 32 * MIB);
    }

    #[test]
    fn streams_get_equal_parts() {
        assert_eq!(Budget::part_of(64 * MIB, 64), MIB);
        assert_eq!(Budget::part_of(MIB, 0), MIB);
    }

    #[test]
    fn figures_name_every_use_once() {
        let names: Vec<&str> = Budget::new(1).figures().map(|(name, _)| name).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!((names.len(), once.len()), (Use::ALL.len() + 2, Use::ALL.len() + 2));
    }
}
