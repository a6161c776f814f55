//! Requests that wait, in the order in which they came.

use super::record::{LockOwner, LockRecord, RequestKey};
use shoal_types::{InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Every waiting request, indexed by its key, its file and its owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters {
    requests: BTreeMap<RequestKey, Waiter>,
    /// By file and arrival.
    queues: BTreeMap<InodeId, BTreeMap<u64, RequestKey>>,
    owners: BTreeMap<LockOwner, BTreeSet<RequestKey>>,
    arrivals: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    lock: LockRecord,
    arrival: u64,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn get(&self, key: RequestKey) -> Option<LockRecord> {
        self.requests.get(&key).map(|waiter| waiter.lock)
    }

    /// The locks that are waited for.
    pub(super) fn all(&self) -> impl Iterator<Item = LockRecord> {
        self.requests.values().map(|waiter| waiter.lock)
    }

    /// Appends a request; its key must not wait already.
    pub(super) fn push(&mut self, key: RequestKey, lock: LockRecord) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.requests.insert(key, Waiter { lock, arrival });
        self.queues.entry(lock.ino).or_default().insert(arrival, key);
        self.owners.entry(lock.owner).or_default().insert(key);
    }

    pub(super) fn remove(&mut self, key: RequestKey) -> Option<LockRecord> {
        let Waiter { lock, arrival } = self.requests.remove(&key)?;
        if let Some(queue) = self.queues.get_mut(&lock.ino) {
            queue.remove(&arrival);
            if queue.is_empty() {
                self.queues.remove(&lock.ino);
            }
        }
        if let Some(keys) = self.owners.get_mut(&lock.owner) {
            keys.remove(&key);
            if keys.is_empty() {
                self.owners.remove(&lock.owner);
            }
        }
        Some(lock)
    }

    /// How many wait for a file.
    pub(super) fn queue_len(&self, ino: InodeId) -> usize {
        self.queues.get(&ino).map_or(0, BTreeMap::len)
    }

    /// The waiters for a file, in the order of arrival.
    pub(super) fn queue(&self, ino: InodeId) -> impl Iterator<Item = RequestKey> {
        self.queues.get(&ino).into_iter().flat_map(|queue| queue.values().copied())
    }

    /// The locks that an owner waits for.
    pub(super) fn of(&self, owner: LockOwner) -> impl Iterator<Item = LockRecord> {
        let keys = self.owners.get(&owner).into_iter().flatten();
        keys.filter_map(|key| self.get(*key))
    }

    /// The requests of a session's owners.
    pub(super) fn of_session(&self, session: SessionId) -> impl Iterator<Item = RequestKey> {
        let owners = LockOwner { session, owner: 0 }..=LockOwner { session, owner: u64::MAX };
        self.owners.range(owners).flat_map(|(_, keys)| keys.iter().copied())
    }
}
