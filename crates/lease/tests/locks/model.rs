//! The rules of locks, byte by byte for tiny files. Slow and plain.

use crate::common::*;
use shoal_lease::locks::*;
use shoal_types::InodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a file; the last stands for all later ones.
pub const BYTES: u64 = 12;

pub const OWNERS: [LockOwner; 4] = [A, B, C, D];

type File = (InodeId, LockSpace);

#[derive(Default, Debug)]
pub struct Model {
    /// Every locked byte.
    pub held: BTreeMap<(File, LockOwner, u64), LockKind>,
    /// In the order of the requests.
    pub waiting: Vec<(RequestKey, LockRecord)>,
}

/// The model's outcome; a conflict may be any conflicting lock.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    Granted,
    Conflict,
    Waiting,
    Deadlock,
}

pub fn range(from: u64, to: u64) -> LockRange {
    bytes(from, if to == BYTES - 1 { LockRange::EOF } else { to })
}

fn each(range: LockRange) -> impl Iterator<Item = u64> {
    range.start()..=range.end().min(BYTES - 1)
}

impl Model {
    pub fn conflicting_owners(&self, lock: &LockRecord) -> BTreeSet<LockOwner> {
        let file = (lock.ino, lock.space);
        let others = OWNERS.into_iter().filter(|other| *other != lock.owner);
        let excluded = |other: &LockOwner| {
            each(lock.range).any(|byte| {
                let held = self.held.get(&(file, *other, byte));
                held.is_some_and(|held| *held == Write || lock.kind == Write)
            })
        };
        others.filter(excluded).collect()
    }

    fn put(&mut self, lock: &LockRecord) {
        for byte in each(lock.range) {
            self.held.insert(((lock.ino, lock.space), lock.owner, byte), lock.kind);
        }
    }

    fn clear(&mut self, ino: InodeId, space: LockSpace, owner: LockOwner, range: LockRange) {
        for byte in each(range) {
            self.held.remove(&((ino, space), owner, byte));
        }
    }

    /// Tries all waiters repeatedly, until none can be granted.
    fn grant(&mut self) -> Vec<RequestKey> {
        let mut granted = Vec::new();
        loop {
            let before = granted.len();
            for (key, lock) in self.waiting.clone() {
                if self.conflicting_owners(&lock).is_empty() {
                    self.waiting.retain(|(other, _)| *other != key);
                    self.put(&lock);
                    granted.push(key);
                }
            }
            if granted.len() == before {
                return granted;
            }
        }
    }

    fn waits_for_itself(&self, lock: &LockRecord) -> bool {
        let mut reached = self.conflicting_owners(lock);
        for _ in OWNERS {
            let of_reached = |lock: &LockRecord| lock.space == Posix && reached.contains(&lock.owner);
            let next = self.waiting.iter().filter(|(_, lock)| of_reached(lock));
            let further: Vec<_> = next.flat_map(|(_, lock)| self.conflicting_owners(lock)).collect();
            reached.extend(further);
        }
        reached.contains(&lock.owner)
    }

    pub fn set(&mut self, lock: LockRecord, wait: Option<RequestKey>) -> (Verdict, Vec<RequestKey>) {
        if lock.space == Flock && self.held.get(&((lock.ino, Flock), lock.owner, 0)) != Some(&lock.kind) {
            self.clear(lock.ino, Flock, lock.owner, LockRange::ALL);
        }
        let verdict = if self.conflicting_owners(&lock).is_empty() {
            self.put(&lock);
            Verdict::Granted
        } else if wait.is_none() {
            Verdict::Conflict
        } else if lock.space == Posix && self.waits_for_itself(&lock) {
            Verdict::Deadlock
        } else {
            self.waiting.extend(wait.map(|key| (key, lock)));
            Verdict::Waiting
        };
        (verdict, self.grant())
    }

    pub fn unlock(
        &mut self,
        ino: InodeId,
        space: LockSpace,
        owner: LockOwner,
        range: LockRange,
    ) -> Vec<RequestKey> {
        self.clear(ino, space, owner, range);
        self.grant()
    }

    pub fn cancel(&mut self, key: RequestKey) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(other, _)| *other != key);
        self.waiting.len() < before
    }

    pub fn release_owner(&mut self, ino: InodeId, owner: LockOwner) -> Vec<RequestKey> {
        self.held.retain(|((file, _), other, _), _| (*file, *other) != (ino, owner));
        self.grant()
    }

    pub fn release_session(&mut self, session: shoal_types::SessionId) -> Vec<RequestKey> {
        self.held.retain(|(_, other, _), _| other.session != session);
        self.waiting.retain(|(_, lock)| lock.owner.session != session);
        self.grant()
    }

    /// Runs of bytes that are locked in one way.
    pub fn held_by(&self, session: shoal_types::SessionId) -> Vec<LockRecord> {
        let mut runs: Vec<LockRecord> = Vec::new();
        for (((ino, space), owner, byte), kind) in &self.held {
            if owner.session != session {
                continue;
            }
            let lock = LockRecord {
                ino: *ino,
                space: *space,
                range: range(*byte, *byte),
                ..posix(*owner, *kind, LockRange::ALL)
            };
            match runs.last_mut() {
                Some(last)
                    if last.range.end().wrapping_add(1) == *byte
                        && *last == (LockRecord { range: last.range, ..lock }) =>
                {
                    last.range = range(last.range.start(), *byte);
                }
                _ => runs.push(lock),
            }
        }
        runs
    }
}
