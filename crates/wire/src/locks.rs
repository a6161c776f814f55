//! Locks of programs, fcntl(2) and flock(2), that exclude between clients.
//!
//! **Requests** are [numbered](LockRequest::id) by their session and may be repeated under the same number until they are answered: whatever
//! was done by an earlier copy is not done again. A copy that comes late, when all requests up to it have been answered
//! ([`below`](LockRequest::below)), is refused: it must not take a lock that its owner has given up since.
//!
//! **Waiting.** A request that [waits](LockOp::Set) is answered when its turn comes, or when it is [cancelled](LockOp::Cancel).
//!
//! **Leaders.** Locks are in the memory of the leader that granted them. Its successor does nothing before every session has
//! [declared](crate::Declaration) its own. An answer of another [`term`](LockReply::term) than the one declared to last
//! counts for nothing: the request is repeated.

use serde::{Deserialize, Serialize};
use shoal_lease::locks::{LockOwner, LockRange, LockRecord, LockSpace};
use shoal_types::{InodeId, SessionId};

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockOp {
    /// To take a lock (F_SETLK, F_SETLKW, flock(2)).
    Set {
        /// The lock.
        lock: LockRecord,
        /// If another is in the way: wait until it is not.
        wait: bool,
    },
    /// To give up a range (F_UNLCK, LOCK_UN).
    Unset {
        /// The file.
        ino: InodeId,
        /// The family.
        space: LockSpace,
        /// Whose.
        owner: LockOwner,
        /// What.
        range: LockRange,
    },
    /// To know which lock would be in the way of this one (F_GETLK).
    Test(LockRecord),
    /// To give up all that some owners have in a file: they have closed it.
    Release {
        /// The file.
        ino: InodeId,
        /// Who.
        owners: Vec<LockOwner>,
    },
    /// To end the waiting of a request. It is answered with [`LockOutcome::Cancelled`], unless it has been granted.
    Cancel {
        /// Which.
        id: u64,
    },
}

impl LockOp {
    /// Whose locks it is about.
    pub fn owners(&self) -> impl Iterator<Item = LockOwner> + '_ {
        let (one, many) = match self {
            LockOp::Set { lock, .. } | LockOp::Test(lock) => (Some(lock.owner), [].as_slice()),
            LockOp::Unset { owner, .. } => (Some(*owner), [].as_slice()),
            LockOp::Release { owners, .. } => (None, owners.as_slice()),
            LockOp::Cancel { .. } => (None, [].as_slice()),
        };
        one.into_iter().chain(many.iter().copied())
    }
}

/// A request about locks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockRequest {
    /// Who asks.
    pub session: SessionId,
    /// Its number among those of its session: greater than those before, except that of the same request repeated.
    pub id: u64,
    /// All requests before this one have been answered.
    pub below: u64,
    /// What.
    pub op: LockOp,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockOutcome {
    /// It is done. Of [`LockOp::Test`]: nothing is in the way.
    Done,
    /// This lock is in the way.
    Conflict(LockRecord),
    /// It would wait for itself.
    Deadlock,
    /// Too many locks, or too many who wait.
    NoRoom,
    /// It has been cancelled before it was granted.
    Cancelled,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockReply {
    /// The leader's term.
    pub term: u64,
    /// Counts what was done, in the order in which it was done. 0: nothing was, and nothing is said of what is held.
    pub at: u64,
    /// What became of the request.
    pub outcome: LockOutcome,
    /// All that the owner now holds of this family in this file, after [`LockOp::Set`] and [`LockOp::Unset`].
    pub held: Vec<LockRecord>,
}
