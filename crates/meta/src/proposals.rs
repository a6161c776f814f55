//! Proposals in flight, and their waiters.
//!
//! Each proposal has a mark in the log that identifies this process and the proposal. When the entry is
//! applied, the mark finds the waiter, whatever the index of the entry; an entry of an earlier process has
//! none. The proposals in flight are bounded. A proposer beyond the bound blocks, so the applier must never
//! propose.

use crate::limits::{PROPOSALS_MAX, PROPOSED_BYTES_MAX};
use shoal_runtime::histogram::Histogram;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::Instant;
use shoal_wire::MetaError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Is called with a command's outcome.
pub(crate) type Waiter<O> = Box<dyn FnOnce(Result<O, MetaError>) + Send>;

/// Names a proposal in the log.
pub(crate) type Mark = [u8; 16];

struct Proposal<O> {
    bytes: usize,
    begun: Instant,
    waiter: Waiter<O>,
}

struct UnderWay<O> {
    proposals: BTreeMap<u64, Proposal<O>>,
    bytes: usize,
}

impl<O> Default for UnderWay<O> {
    fn default() -> UnderWay<O> {
        UnderWay { proposals: BTreeMap::new(), bytes: 0 }
    }
}

/// The proposals in flight.
pub(crate) struct Proposals<O> {
    /// Tells this process's proposals from those of an earlier one in the log.
    incarnation: u64,
    next: AtomicU64,
    under_way: Mutex<UnderWay<O>>,
    completed: Condvar,
    /// Time from a proposal to its outcome.
    pub(crate) commit: Histogram,
}

impl<O> Proposals<O> {
    pub(crate) fn new() -> Proposals<O> {
        Proposals {
            incarnation: shoal_runtime::random::number(),
            next: AtomicU64::new(0),
            under_way: Mutex::default(),
            completed: Condvar::new(),
            commit: Histogram::default(),
        }
    }

    /// Registers a proposal; blocks while too many are in flight.
    pub(crate) fn begin(&self, bytes: usize, waiter: Waiter<O>) -> (u64, Mark) {
        let (id, begun) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        let mut under_way = self.under_way.lock();
        while under_way.bytes > PROPOSED_BYTES_MAX || under_way.proposals.len() >= PROPOSALS_MAX {
            self.completed.wait(&mut under_way);
        }
        under_way.bytes += bytes;
        under_way.proposals.insert(id, Proposal { bytes, begun, waiter });
        let mut mark = [0; 16];
        mark[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        mark[8..].copy_from_slice(&id.to_le_bytes());
        (id, mark)
    }

    /// Removes the waiter of a proposal that has failed or is complete.
    pub(crate) fn take(&self, id: u64) -> Option<Waiter<O>> {
        self.remove(id).map(|proposal| proposal.waiter)
    }

    fn remove(&self, id: u64) -> Option<Proposal<O>> {
        let mut under_way = self.under_way.lock();
        let proposal = under_way.proposals.remove(&id)?;
        under_way.bytes -= proposal.bytes;
        drop(under_way);
        self.completed.notify_all();
        Some(proposal)
    }

    /// An entry with this mark was applied.
    pub(crate) fn complete(&self, mark: &[u8], outcome: O) {
        let Some((incarnation, id)) = mark.split_first_chunk::<8>() else { return };
        let Ok(id) = <[u8; 8]>::try_from(id) else { return };
        if u64::from_le_bytes(*incarnation) == self.incarnation
            && let Some(proposal) = self.remove(u64::from_le_bytes(id))
        {
            self.commit.record(proposal.begun.elapsed());
            (proposal.waiter)(Ok(outcome));
        }
    }

    /// Fails all waiters.
    pub(crate) fn give_up(&self, error: &MetaError) {
        let waiting = std::mem::take(&mut *self.under_way.lock());
        self.completed.notify_all();
        for (_, proposal) in waiting.proposals {
            (proposal.waiter)(Err(error.clone()));
        }
    }

    /// How many are in flight, and how many bytes.
    pub(crate) fn count(&self) -> (usize, usize) {
        let under_way = self.under_way.lock();
        (under_way.proposals.len(), under_way.bytes)
    }
}
