//! The lock table of a volume: holders of and waiters for the locks of fcntl(2) and flock(2), among all
//! clients.
//!
//! **Model.** A lock belongs to an owner (a process or an open file of some session), covers a range of a
//! file's bytes, and is shared or exclusive. [`LockSpace::Posix`] is fcntl(2): what an owner sets replaces
//! what it had in that range, so its locks are split, joined, upgraded and downgraded. [`LockSpace::Flock`]
//! is flock(2): whole files. A conversion releases the old lock first, even if it does not get the new one.
//! The two do not see each other.
//!
//! **Assumes** that the caller is the volume's leader, has verified that an owner belongs to the requesting
//! session, and reports every close and every session's end. It calls the table before it answers a lock
//! request; the table decides, in the order of the calls.
//!
//! **Promises.**
//! - Two owners never hold conflicting locks.
//! - Each call that releases locks returns the waiting requests that are granted by it. They are tried in the
//!   order of arrival, and none waits that could be granted. As in Linux, a later request that does not
//!   conflict with what is *held* is granted ahead of waiters.
//! - A POSIX request that would close a cycle of owners that wait for each other is refused
//!   ([`Outcome::Deadlock`]). For flock there is no such check, as in Linux.
//! - The same calls give the same results, in the same order.
//!
//! **Refuses** more than [`LOCKS_PER_SESSION_MAX`] locks of a session and [`WAITERS_PER_INODE_MAX`] waiting
//! requests for a file ([`Outcome::NoRoom`]). An unlock can be refused for it, too: one that takes out the
//! middle of a lock leaves two.

mod deadlock;
mod holders;
mod pieces;
mod record;
mod waiters;

pub use record::{LockKind, LockOwner, LockRange, LockRecord, LockSpace, NoSuchRange, RequestKey};

use crate::limits::{LOCKS_PER_SESSION_MAX, LOCKS_PER_WAITER, WAITERS_PER_INODE_MAX};
use holders::Holders;
use pieces::{Piece, Pieces, Plan};
use shoal_types::{Errno, InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use waiters::Waiters;

/// The locks of a volume, and the requests that wait for them.
#[derive(Clone, Debug, Default)]
pub struct LockTable {
    held: BTreeMap<(InodeId, LockSpace), Holders>,
    waiters: Waiters,
    sessions: BTreeMap<SessionId, Tally>,
}

/// What counts against a session's limit.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    locks: usize,
    waiting: usize,
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Outcome {
    /// The lock was set or removed.
    Granted,
    /// This lock conflicts, and the request is not to wait.
    Conflict(LockRecord),
    /// It waits; its key will be among those granted, unless it is cancelled or its session ends.
    Waiting,
    /// It would wait for itself.
    Deadlock,
    /// Too many locks, or too many waiters.
    NoRoom,
}

impl Outcome {
    /// The errno of a failed request; `None` if it has not failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Outcome::Granted | Outcome::Waiting => None,
            Outcome::Conflict(_) => Some(Errno::EAGAIN),
            Outcome::Deadlock => Some(Errno::EDEADLK),
            Outcome::NoRoom => Some(Errno::ENOLCK),
        }
    }
}

/// The result of a request, and the requests of other owners that it unblocked.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Settled {
    /// The result.
    pub outcome: Outcome,
    /// Requests that no longer wait, as their locks have been granted.
    pub granted: Vec<RequestKey>,
}

/// The result of a reclaim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Reclaimed {
    /// Locks that the session reclaims and does not hold.
    pub refused: Vec<LockRecord>,
    /// Requests that no longer wait, as their locks have been granted.
    pub granted: Vec<RequestKey>,
}

impl LockTable {
    /// Sets a lock (F_SETLK, F_SETLKW, flock(2)). With `wait` the request waits if another owner's lock
    /// conflicts. A retry with the key of a waiting request replaces that one, and keeps its place if it is
    /// equal.
    pub fn set(&mut self, mut lock: LockRecord, wait: Option<RequestKey>) -> Settled {
        if lock.space.is_of_whole_files() {
            lock.range = LockRange::ALL;
        }
        if let Some(key) = wait {
            if self.waiters.get(key) == Some(lock) {
                return Settled { outcome: Outcome::Waiting, granted: Vec::new() };
            }
            self.cancel(key);
        }
        let released = self.release_before_conversion(&lock);
        let outcome = match self.first_conflict(&lock) {
            None => return self.set_without_conflict(lock, released),
            Some(holder) => match wait {
                None => Outcome::Conflict(holder),
                Some(_) if self.would_deadlock(&lock) => Outcome::Deadlock,
                Some(key) => self.wait(key, lock),
            },
        };
        Settled { outcome, granted: self.grant_if(released, lock.ino) }
    }

    /// Releases a range, held or not (F_UNLCK, LOCK_UN). The outcome is [`Outcome::Granted`] or
    /// [`Outcome::NoRoom`].
    pub fn unlock(&mut self, ino: InodeId, space: LockSpace, owner: LockOwner, range: LockRange) -> Settled {
        let range = if space.is_of_whole_files() { LockRange::ALL } else { range };
        let Some(holders) = self.held.get(&(ino, space)) else {
            return Settled { outcome: Outcome::Granted, granted: Vec::new() };
        };
        let plan = holders.of(owner).plan_clear(range);
        if !self.has_room(owner.session, plan.growth()) {
            return Settled { outcome: Outcome::NoRoom, granted: Vec::new() };
        }
        let freed = self.apply(ino, space, owner, plan);
        Settled { outcome: Outcome::Granted, granted: self.grant_if(freed, ino) }
    }

    /// The first lock that conflicts with this one (F_GETLK).
    pub fn get(&self, wanted: &LockRecord) -> Option<LockRecord> {
        let mut wanted = *wanted;
        if wanted.space.is_of_whole_files() {
            wanted.range = LockRange::ALL;
        }
        self.first_conflict(&wanted)
    }

    /// Cancels a waiting request. `false`: it does not wait, because it has been granted or is unknown.
    pub fn cancel(&mut self, key: RequestKey) -> bool {
        let Some(lock) = self.waiters.remove(key) else { return false };
        self.count(lock.owner.session, |tally| tally.waiting -= 1);
        true
    }

    /// Releases all locks of an owner in a file: it has closed it. Its waiting requests stay. Returns the
    /// requests that are granted by it.
    pub fn release_owner(&mut self, ino: InodeId, owner: LockOwner) -> Vec<RequestKey> {
        let mut freed = 0;
        for space in LockSpace::ALL {
            if let Some(holders) = self.held.get_mut(&(ino, space)) {
                freed += holders.remove_owner(owner);
                if holders.is_empty() {
                    self.held.remove(&(ino, space));
                }
            }
        }
        self.count(owner.session, |tally| tally.locks -= freed);
        self.grant_if(freed > 0, ino)
    }

    /// Releases all locks of a session and cancels its waiting requests: it has ended. Returns the requests
    /// that are granted by it.
    pub fn release_session(&mut self, session: SessionId) -> Vec<RequestKey> {
        for key in self.waiters.of_session(session).collect::<Vec<_>>() {
            self.waiters.remove(key);
        }
        let mut freed = BTreeSet::new();
        self.held.retain(|(ino, _), holders| {
            if holders.remove_session(session) > 0 {
                freed.insert(*ino);
            }
            !holders.is_empty()
        });
        self.sessions.remove(&session);
        freed.into_iter().flat_map(|ino| self.grant(ino)).collect()
    }

    /// All locks of a session, by file, family, owner and range: what it reclaims from a new leader.
    pub fn held_by(&self, session: SessionId) -> Vec<LockRecord> {
        let of_file = |(&(ino, space), holders): (&(InodeId, LockSpace), &Holders)| {
            let records = holders.of_session(session).map(|(owner, piece)| record(ino, space, owner, piece));
            records.collect::<Vec<_>>()
        };
        self.held.iter().flat_map(of_file).collect()
    }

    /// Restores the locks that a session held under an earlier leader. Locks that conflict with another
    /// owner's are refused, and so are those of other sessions. Repeating a reclaim changes nothing.
    pub fn reclaim(&mut self, session: SessionId, locks: Vec<LockRecord>) -> Reclaimed {
        let mut reclaimed = Reclaimed::default();
        for lock in locks {
            let mine = lock.owner.session == session;
            let settled = mine.then(|| self.set(lock, None));
            match settled {
                Some(Settled { outcome: Outcome::Granted, granted }) => reclaimed.granted.extend(granted),
                Some(Settled { granted, .. }) => {
                    reclaimed.granted.extend(granted);
                    reclaimed.refused.push(lock);
                }
                None => reclaimed.refused.push(lock),
            }
        }
        reclaimed
    }

    /// All locks of one owner and family in a file, by range.
    pub fn held_of(&self, ino: InodeId, space: LockSpace, owner: LockOwner) -> Vec<LockRecord> {
        let pieces = self.held.get(&(ino, space)).map_or(Pieces::NONE, |holders| holders.of(owner));
        pieces.iter().map(|piece| record(ino, space, owner, piece)).collect()
    }

    /// All locks of one family in a file, by owner and range.
    pub fn held_in(&self, ino: InodeId, space: LockSpace) -> Vec<LockRecord> {
        let holders = self.held.get(&(ino, space));
        let pieces = holders.into_iter().flat_map(Holders::all);
        pieces.map(|(owner, piece)| record(ino, space, owner, piece)).collect()
    }

    /// Waiting requests for locks in a file, in the order of arrival.
    pub fn waiting_in(&self, ino: InodeId) -> Vec<(RequestKey, LockRecord)> {
        self.waiters.queue(ino).filter_map(|key| Some((key, self.waiters.get(key)?))).collect()
    }

    /// How many requests of a session wait.
    pub fn waiting_count_of(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |tally| tally.waiting)
    }

    /// Whether a request waits for a lock of this session.
    pub fn is_waited_for(&self, session: SessionId) -> bool {
        let its =
            |lock: LockRecord| self.conflicting_owners(&lock).any(|(owner, _)| owner.session == session);
        self.sessions.contains_key(&session) && self.waiters.all().any(its)
    }

    /// How many locks there are.
    pub fn len(&self) -> usize {
        self.sessions.values().map(|tally| tally.locks).sum()
    }

    /// How many locks a session holds.
    pub fn held_count(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |tally| tally.locks)
    }

    /// Whether there are neither locks nor waiters.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiters.len() == 0 && self.sessions.is_empty()
    }

    /// How many requests wait.
    pub fn waiting_count(&self) -> usize {
        self.waiters.len()
    }

    /// Converting a lock of flock(2) begins with releasing the old one. Returns whether it did.
    fn release_before_conversion(&mut self, lock: &LockRecord) -> bool {
        let Some(holders) = self.held.get(&(lock.ino, lock.space)) else { return false };
        if lock.space == LockSpace::Posix
            || holders.of(lock.owner).iter().all(|piece| piece.kind == lock.kind)
        {
            return false;
        }
        let plan = holders.of(lock.owner).plan_clear(LockRange::ALL);
        self.apply(lock.ino, lock.space, lock.owner, plan)
    }

    /// The owners that conflict with a lock, each with the first conflicting piece.
    fn conflicting_owners(&self, lock: &LockRecord) -> impl Iterator<Item = (LockOwner, &Piece)> {
        let (owner, range, kind) = (lock.owner, lock.range, lock.kind);
        let holders = self.held.get(&(lock.ino, lock.space));
        holders.into_iter().flat_map(move |holders| holders.conflicts(owner, range, kind))
    }

    fn first_conflict(&self, lock: &LockRecord) -> Option<LockRecord> {
        let (owner, piece) =
            self.conflicting_owners(lock).min_by_key(|(owner, piece)| (piece.range, *owner))?;
        Some(record(lock.ino, lock.space, owner, piece))
    }

    /// Sets a lock that has no conflicts.
    fn set_without_conflict(&mut self, lock: LockRecord, released: bool) -> Settled {
        let plan = self.plan_set(&lock);
        let (outcome, freed) = if self.has_room(lock.owner.session, plan.growth()) {
            (Outcome::Granted, self.apply(lock.ino, lock.space, lock.owner, plan))
        } else {
            (Outcome::NoRoom, false)
        };
        Settled { outcome, granted: self.grant_if(freed || released, lock.ino) }
    }

    fn wait(&mut self, key: RequestKey, lock: LockRecord) -> Outcome {
        let session = lock.owner.session;
        let crowded = self.waiters.queue_len(lock.ino) >= WAITERS_PER_INODE_MAX;
        if crowded || !self.has_room(session, LOCKS_PER_WAITER as isize) {
            return Outcome::NoRoom;
        }
        self.waiters.push(key, lock);
        self.count(session, |tally| tally.waiting += 1);
        Outcome::Waiting
    }

    fn plan_set(&self, lock: &LockRecord) -> Plan {
        let piece = Piece { range: lock.range, kind: lock.kind, pid: lock.pid };
        let holders = self.held.get(&(lock.ino, lock.space));
        holders.map_or(Pieces::NONE, |holders| holders.of(lock.owner)).plan_set(piece)
    }

    /// Carries out a plan. Returns whether it frees anything.
    fn apply(&mut self, ino: InodeId, space: LockSpace, owner: LockOwner, plan: Plan) -> bool {
        let (growth, freed) = (plan.growth(), plan.frees);
        let holders = self.held.entry((ino, space)).or_default();
        holders.apply(owner, plan);
        if holders.is_empty() {
            self.held.remove(&(ino, space));
        }
        self.count(owner.session, |tally| tally.locks = tally.locks.saturating_add_signed(growth));
        freed
    }

    fn grant_if(&mut self, freed: bool, ino: InodeId) -> Vec<RequestKey> {
        if freed { self.grant(ino) } else { Vec::new() }
    }

    /// Grants waiting requests of a file, in the order of arrival.
    fn grant(&mut self, ino: InodeId) -> Vec<RequestKey> {
        let mut granted = Vec::new();
        let mut again = true;
        while again {
            again = false;
            for key in self.waiters.queue(ino).collect::<Vec<_>>() {
                let free = |lock: &LockRecord| self.conflicting_owners(lock).next().is_none();
                let Some(lock) = self.waiters.get(key).filter(free) else { continue };
                self.cancel(key);
                // Capacity was kept for it. A lock that weakens its owner's own can unblock earlier waiters.
                let plan = self.plan_set(&lock);
                again |= self.apply(ino, lock.space, lock.owner, plan);
                granted.push(key);
            }
        }
        granted
    }

    fn has_room(&self, session: SessionId, growth: isize) -> bool {
        let tally = self.sessions.get(&session).copied().unwrap_or_default();
        let used = tally.locks + tally.waiting * LOCKS_PER_WAITER;
        growth <= 0 || used.saturating_add_signed(growth) <= LOCKS_PER_SESSION_MAX
    }

    fn count(&mut self, session: SessionId, change: impl FnOnce(&mut Tally)) {
        let tally = self.sessions.entry(session).or_default();
        change(tally);
        if tally.locks == 0 && tally.waiting == 0 {
            self.sessions.remove(&session);
        }
    }
}

fn record(ino: InodeId, space: LockSpace, owner: LockOwner, piece: &Piece) -> LockRecord {
    LockRecord { ino, space, owner, pid: piece.pid, range: piece.range, kind: piece.kind }
}
