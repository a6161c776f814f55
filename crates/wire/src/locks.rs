//! Locks of programs, fcntl(2) and flock(2), that exclude between clients.
//!
//! **Requests** are [numbered](LockRequest::id) by their session and idempotent: they may be repeated under
//! the same number until they are answered. A copy that arrives after all requests up to it have been
//! answered ([`below`](LockRequest::below)) is refused. It must not take a lock that its owner has given up
//! since.
//!
//! **Waiting.** A request that [waits](LockOp::Set) is answered when its turn comes, or when it is
//! [cancelled](LockOp::Cancel).
//!
//! **Leaders.** Locks are in the memory of the leader that granted them. Its successor grants nothing before
//! every session has [reclaimed](crate::Reclaim) its own. An answer of another [`term`](LockReply::term)
//! than that of the last reclaim is ignored, and the request is repeated.

use serde::{Deserialize, Serialize};
use shoal_lease::locks::{LockOwner, LockRange, LockRecord, LockSpace};
use shoal_types::{InodeId, SessionId};

/// What a request does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockOp {
    /// To take a lock (F_SETLK, F_SETLKW, flock(2)).
    Set {
        /// The lock.
        lock: LockRecord,
        /// If another lock conflicts, wait until it is gone.
        wait: bool,
    },
    /// To give up a range (F_UNLCK, LOCK_UN).
    Unset {
        /// The file.
        ino: InodeId,
        /// The family.
        space: LockSpace,
        /// The owner.
        owner: LockOwner,
        /// The range.
        range: LockRange,
    },
    /// To ask which lock conflicts with this one (F_GETLK).
    Test(LockRecord),
    /// To give up all locks of some owners in a file: they have closed it.
    Release {
        /// The file.
        ino: InodeId,
        /// The owners.
        owners: Vec<LockOwner>,
    },
    /// To cancel a waiting request. It is answered with [`LockOutcome::Cancelled`], unless it has been
    /// granted.
    Cancel {
        /// The number of that request.
        id: u64,
    },
}

impl LockOp {
    /// The owners of the locks that it is about.
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
    /// The requesting session.
    pub session: SessionId,
    /// Its number in its session: greater than those before, except for a repetition of the same request.
    pub id: u64,
    /// All requests before this one have been answered.
    pub below: u64,
    /// What it does.
    pub op: LockOp,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockOutcome {
    /// It is done. For [`LockOp::Test`]: no lock conflicts.
    Done,
    /// This lock conflicts.
    Conflict(LockRecord),
    /// The owner would wait for itself.
    Deadlock,
    /// There are too many locks, or too many waiters.
    NoRoom,
    /// It was cancelled before it was granted.
    Cancelled,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockReply {
    /// The leader's term.
    pub term: u64,
    /// Orders replies by when their changes were made. 0: no change was made, and `held` says nothing.
    pub at: u64,
    /// What became of the request.
    pub outcome: LockOutcome,
    /// All locks of this family that the owner now has in this file, after [`LockOp::Set`] and
    /// [`LockOp::Unset`].
    pub held: Vec<LockRecord>,
}
