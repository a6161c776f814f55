//! Whether this replica leads its group, and for how long it may act on that.
//!
//! **The lease.** A leader asks its followers again and again whether they still follow. Each that does will
//! not help to elect another for one election timeout after it was asked; so from the moment of asking on,
//! for somewhat less than that, nobody else leads. All of it is measured on the monotonic clock of the one
//! that asked, and looked at again after every read: a process that was stopped in between finds its lease
//! run out.

use shoal_runtime::sync::Mutex;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::ReplicaId;
use std::sync::atomic::{AtomicU64, Ordering};

/// A replica as others may see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Which replica.
    pub id: u64,
    /// Raft's term.
    pub term: u64,
    /// What it is in its group.
    pub role: Role,
    /// The group's leader, if known.
    pub leader: Option<ReplicaId>,
    /// Who decides.
    pub voters: Vec<ReplicaId>,
    /// Who follows without deciding.
    pub learners: Vec<ReplicaId>,
    /// The end of the log, and how far it is decided.
    pub last: u64,
    /// See there.
    pub committed: u64,
    /// Of a leader: up to where each of the others has the log.
    pub matched: Vec<(ReplicaId, u64)>,
}

/// See [`Status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Follows, or does not know yet whom.
    #[default]
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
    /// Follows without a vote.
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

/// Not leading.
const NEVER: u64 = 0;
/// Leading for good: the only replica of a group that never has others.
const ALWAYS: u64 = u64::MAX;

/// See the module.
pub(crate) struct Lead {
    begun: Instant,
    /// The term in which it leads; 0: it does not.
    term: AtomicU64,
    /// End of the lease, in milliseconds since `begun`.
    until_ms: AtomicU64,
    /// What must be applied before anything is read.
    floor: AtomicU64,
    status: Mutex<Status>,
}

impl Lead {
    /// Of a replica that has others, or may have.
    pub(crate) fn new() -> Lead {
        Lead {
            begun: Instant::now(),
            term: AtomicU64::new(0),
            until_ms: AtomicU64::new(NEVER),
            floor: AtomicU64::new(u64::MAX),
            status: Mutex::default(),
        }
    }

    /// Of a replica that is alone for good.
    pub(crate) fn alone() -> Lead {
        let lead = Lead::new();
        lead.until_ms.store(ALWAYS, Ordering::Release);
        lead.floor.store(0, Ordering::Release);
        lead
    }

    /// The followers still followed when they were asked at this moment.
    pub(crate) fn renew(&self, term: u64, asked: Instant, lease: Duration, index: u64) {
        if self.term.swap(term, Ordering::AcqRel) != term {
            self.floor.store(index, Ordering::Release);
        }
        let until = asked.saturating_duration_since(self.begun) + lease;
        self.until_ms.store(until.as_millis() as u64, Ordering::Release);
    }

    /// It leads no more, or is about to hand the lead over.
    pub(crate) fn end(&self) {
        self.until_ms.store(NEVER, Ordering::Release);
        self.floor.store(u64::MAX, Ordering::Release);
        self.term.store(0, Ordering::Release);
    }

    /// The term in which this replica may answer for its group right now, having applied this much.
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
    fn a_lease_runs_out_by_itself_and_needs_what_was_decided_before_it() {
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
