//! Leadership and its lease: whether this replica leads its group, and until when it may act on that.
//!
//! **The lease.** A leader checks its quorum periodically. A follower that replies does not vote for another
//! replica for one election timeout after the check was sent. So the lease counts from that sending, and is
//! somewhat shorter than the timeout. It is measured on the leader's own monotonic clock, and checked again
//! after every read: a process that was stopped in between finds its lease expired.

use shoal_runtime::sync::Mutex;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::ReplicaId;
use std::sync::atomic::{AtomicU64, Ordering};

/// The published state of a replica.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Which replica.
    pub id: u64,
    /// Raft's term.
    pub term: u64,
    /// Its role in its group.
    pub role: Role,
    /// The group's leader, if known.
    pub leader: Option<ReplicaId>,
    /// Members with a vote.
    pub voters: Vec<ReplicaId>,
    /// Members without a vote.
    pub learners: Vec<ReplicaId>,
    /// Index of the last log entry.
    pub last: u64,
    /// Index of the last committed log entry.
    pub committed: u64,
    /// Of a leader: the last index at which the log of each member matches its own.
    pub matched: Vec<(ReplicaId, u64)>,
}

/// A replica's role in Raft.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Follows, or does not know a leader yet.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
    /// Follows without a vote, or does not know of its vote yet.
    #[default]
    Learner,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Leader => "leader",
            Role::Learner => "learner",
        })
    }
}

/// The end of the lease of a replica that does not lead.
const NEVER: u64 = 0;
/// The end of the lease of the only replica of a group, which never expires.
const ALWAYS: u64 = u64::MAX;

/// This replica's leadership.
pub(crate) struct Lead {
    begun: Instant,
    /// The term in which it leads; 0: it does not lead.
    term: AtomicU64,
    /// End of the lease, in milliseconds since `begun`.
    until_ms: AtomicU64,
    /// The index that must be applied before a read.
    floor: AtomicU64,
    status: Mutex<Status>,
}

impl Lead {
    /// For a replica of a group that has, or may have, other members.
    pub(crate) fn new() -> Lead {
        Lead {
            begun: Instant::now(),
            term: AtomicU64::new(0),
            until_ms: AtomicU64::new(NEVER),
            floor: AtomicU64::new(u64::MAX),
            status: Mutex::default(),
        }
    }

    /// For the only replica of its group.
    pub(crate) fn alone() -> Lead {
        let lead = Lead::new();
        lead.until_ms.store(ALWAYS, Ordering::Release);
        lead.floor.store(0, Ordering::Release);
        lead
    }

    /// A quorum check that was sent at `asked` has succeeded.
    pub(crate) fn renew(&self, term: u64, asked: Instant, lease: Duration, index: u64) {
        if self.term.swap(term, Ordering::AcqRel) != term {
            self.floor.store(index, Ordering::Release);
        }
        let until = asked.saturating_duration_since(self.begun) + lease;
        self.until_ms.store(until.as_millis() as u64, Ordering::Release);
    }

    /// Leadership ends, or is about to be transferred.
    pub(crate) fn end(&self) {
        self.until_ms.store(NEVER, Ordering::Release);
        self.floor.store(u64::MAX, Ordering::Release);
        self.term.store(0, Ordering::Release);
    }

    /// The term in which this replica may answer for its group right now, if it has applied this much.
    pub(crate) fn holds(&self, applied: u64) -> Option<u64> {
        let term = self.term.load(Ordering::Acquire);
        let until = self.until_ms.load(Ordering::Acquire);
        let valid = until == ALWAYS || (self.begun.elapsed().as_millis() as u64) < until;
        (valid && applied >= self.floor.load(Ordering::Acquire)).then_some(term)
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().clone()
    }

    pub(crate) fn set_status(&self, status: Status) {
        *self.status.lock() = status;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_expires_and_is_valid_only_with_earlier_entries_applied() {
        let lead = Lead::new();
        assert_eq!(lead.holds(100), None);
        let long = Duration::from_secs(60);
        lead.renew(3, Instant::now(), long, 10);
        assert_eq!((lead.holds(9), lead.holds(10)), (None, Some(3)));
        lead.renew(3, Instant::now(), long, 50);
        assert_eq!(lead.holds(10), Some(3), "the same term needs no more than before");
        lead.renew(3, Instant::now(), Duration::ZERO, 50);
        assert_eq!(lead.holds(100), None);
        lead.renew(3, Instant::now(), long, 50);
        lead.end();
        assert_eq!(lead.holds(100), None);
        lead.renew(4, Instant::now(), long, 60);
        assert_eq!((lead.holds(59), lead.holds(60)), (None, Some(4)));
        assert_eq!(Lead::alone().holds(0), Some(0));
    }
}
