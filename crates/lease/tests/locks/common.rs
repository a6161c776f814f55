//! Helpers for the tests.

use shoal_lease::locks::*;
use shoal_types::{InodeId, SessionId};

pub use LockKind::{Read, Write};
pub use LockSpace::{Flock, Posix};
pub use Outcome::{Deadlock, Granted, Waiting};

pub const FILE: InodeId = InodeId(100);
pub const OTHER: InodeId = InodeId(101);

/// Two processes on one machine, two on another.
pub const A: LockOwner = owner(1, 11);
pub const B: LockOwner = owner(1, 12);
pub const C: LockOwner = owner(2, 11);
pub const D: LockOwner = owner(2, 12);

pub const fn owner(session: u64, owner: u64) -> LockOwner {
    LockOwner { session: SessionId(session), owner }
}

pub fn bytes(start: u64, end: u64) -> LockRange {
    LockRange::new(start, end).expect("in order")
}

pub fn from(start: u64) -> LockRange {
    bytes(start, LockRange::EOF)
}

pub fn posix(owner: LockOwner, kind: LockKind, range: LockRange) -> LockRecord {
    LockRecord { ino: FILE, space: Posix, owner, pid: owner.owner as u32, range, kind }
}

pub fn flock(owner: LockOwner, kind: LockKind) -> LockRecord {
    LockRecord { space: Flock, ..posix(owner, kind, LockRange::ALL) }
}

/// A waiting request, numbered by the test.
pub fn key(lock: &LockRecord, request: u64) -> RequestKey {
    RequestKey { session: lock.owner.session, request }
}

/// Sets a lock that is free, which grants no waiting request.
#[track_caller]
pub fn take(table: &mut LockTable, lock: LockRecord) {
    assert_eq!(table.set(lock, None), Settled { outcome: Granted, granted: vec![] });
}

/// Requests a lock that is not free, and waits.
#[track_caller]
pub fn wait(table: &mut LockTable, lock: LockRecord, request: u64) -> RequestKey {
    let key = key(&lock, request);
    assert_eq!(table.set(lock, Some(key)), Settled { outcome: Waiting, granted: vec![] });
    key
}

/// Requests a lock without waiting. Answers whether it was free.
pub fn attempt(table: &mut LockTable, lock: LockRecord) -> bool {
    match table.set(lock, None).outcome {
        Granted => true,
        Outcome::Conflict(_) => false,
        other => panic!("{other:?}"),
    }
}

/// Unlocks; answers the owners that are granted something by it.
#[track_caller]
pub fn unlock(table: &mut LockTable, lock: LockRecord) -> Vec<RequestKey> {
    let Settled { outcome, granted } = table.unlock(lock.ino, lock.space, lock.owner, lock.range);
    assert_eq!(outcome, Granted);
    granted
}

/// The locks of an owner in a file, as ranges and kinds.
pub fn held(table: &LockTable, owner: LockOwner) -> Vec<(LockRange, LockKind)> {
    let records = table.held_by(owner.session).into_iter().filter(|lock| lock.owner == owner);
    records.map(|lock| (lock.range, lock.kind)).collect()
}
