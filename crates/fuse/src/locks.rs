//! Locks of programs that exclude programs on other mounts as well ([`LockScope::Cluster`]). With
//! [`LockScope::Local`] the kernel keeps the locks and sends none of these requests.
//!
//! **Owners.** Every open file has a handle that is never used again: it is the owner of the file's flock(2)
//! lock. The owners of fcntl(2) locks are numbers chosen by the kernel. Locks of a process end when it closes
//! the file, which is a FLUSH with its number. Locks of an open file description end with RELEASE, which does
//! not name their owner. So RELEASE ends the locks of all owners that were seen through the handle and have
//! not closed the file. A file that was opened for reading while no program of the mount had locks in it has
//! no FLUSH (`FOPEN_NOFLUSH`), and its locks end with RELEASE as well.
//!
//! **Owner numbers are reused.** close(2) does not wait for RELEASE, and the next open file may have the
//! owner number of the last one. The same holds for FLUSH, if its process was killed. So a request for a lock
//! waits until earlier locks of its owner number are released. A number belongs to the handle through which
//! it was seen last: a lock may be held too long, but never too short.
//!
//! **Waiting.** A request that waits for a lock has a thread of its own, so that it holds up no other
//! request; the number of these threads is bounded. An INTERRUPT ends the wait. It may overtake its request:
//! then it is remembered until the request arrives.

use crate::handle;
use crate::limits::{DRAIN_WAIT, INTERRUPTS_KEPT_MAX, LOCK_WAITERS_MAX};
use shoal_channel::{FileHandle, Unique};
use shoal_client::{Client, Lock, LockWait};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_types::InodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The scope in which locks of programs exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockScope {
    /// Programs on this mount: the kernel keeps the locks, at no cost.
    #[default]
    Local,
    /// Programs on all mounts of the volume that have this scope.
    Cluster,
}

/// The lock requests and lock owners of a mount.
pub(crate) struct Locks {
    scope: LockScope,
    handles: AtomicU64,
    state: Mutex<State>,
    /// Signals that a request no longer waits, or that locks were released.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The owners that have requested locks through an open file, by handle.
    seen: HashMap<u64, (InodeId, BTreeSet<u64>)>,
    /// Requests that wait, or may have to.
    waits: HashMap<Unique, Arc<LockWait>>,
    /// Releases in flight because a file was closed, by owner.
    releasing: BTreeMap<(InodeId, u64), usize>,
    /// The last INTERRUPTs whose request was not found.
    early: VecDeque<Unique>,
    /// Number of threads that wait for locks.
    threads: usize,
    /// The mount has ended: no request waits any more.
    over: bool,
}

impl State {
    /// Removes an owner from the handle through which it was seen: it has no locks in the file any more, or
    /// was seen through another handle.
    fn forget_owner(&mut self, ino: InodeId, owner: u64) {
        self.seen.retain(|_, (of, owners)| *of != ino || !owners.remove(&owner) || !owners.is_empty());
    }

    /// An open file was closed for the last time. Returns the owners whose locks are to be released.
    fn closed_for_good(&mut self, ino: InodeId, fh: FileHandle) -> Vec<u64> {
        let owners = self.seen.remove(&fh.0).map_or_else(BTreeSet::new, |(_, owners)| owners);
        for owner in &owners {
            self.begin_release(ino, *owner);
        }
        owners.into_iter().collect()
    }

    fn begin_release(&mut self, ino: InodeId, owner: u64) {
        *self.releasing.entry((ino, owner)).or_default() += 1;
    }
}

impl Locks {
    pub(crate) fn new(scope: LockScope) -> Locks {
        let (state, ended) = (Mutex::default(), Condvar::new());
        Locks { scope, handles: AtomicU64::new(1), state, ended }
    }

    pub(crate) fn are_ours(&self) -> bool {
        self.scope == LockScope::Cluster
    }

    /// The handle of a file that is opened with `flags`. Where the kernel keeps the locks all files have the
    /// handle 0.
    pub(crate) fn handle(&self, flags: i32, may_map: bool) -> FileHandle {
        match self.are_ours() {
            true => handle::new(self.handles.fetch_add(1, Relaxed), flags, may_map),
            false => FileHandle(0),
        }
    }

    /// Records that an owner requests a lock through an open file.
    pub(crate) fn see(&self, fh: FileHandle, lock: &Lock) {
        let mut state = self.state.lock();
        if state.seen.get(&fh.0).is_some_and(|(_, owners)| owners.contains(&lock.owner)) {
            return;
        }
        state.forget_owner(lock.ino, lock.owner);
        state.seen.entry(fh.0).or_insert_with(|| (lock.ino, BTreeSet::new())).1.insert(lock.owner);
    }

    /// Whether locks requested through an open file were lost with a session, and not given up since.
    pub(crate) fn bars(&self, client: &Client, fh: FileHandle) -> bool {
        self.are_ours() && {
            let state = self.state.lock();
            let seen = state.seen.get(&fh.0);
            seen.is_some_and(|(ino, owners)| client.have_lost_locks(*ino, owners.iter().copied()))
        }
    }

    /// An owner has closed a file, through any handle.
    pub(crate) fn closed_by(&self, ino: InodeId, owner: u64) {
        self.state.lock().forget_owner(ino, owner);
    }

    /// An owner that has closed a file may have locks in it. `release` queues their release, as for
    /// [`closed_for_good`](Self::closed_for_good).
    pub(crate) fn begin_release(&self, ino: InodeId, owner: u64, release: impl FnOnce()) {
        let mut state = self.state.lock();
        state.begin_release(ino, owner);
        release();
        drop(state);
    }

    /// An open file was closed for the last time. `release` releases the locks of these owners, or queues
    /// that. It runs under the lock of the state, so that no request begins to wait for the release before it
    /// is queued: such a request occupies a thread that may be needed for the release.
    pub(crate) fn closed_for_good(&self, ino: InodeId, fh: FileHandle, release: impl FnOnce(Vec<u64>)) {
        let mut state = self.state.lock();
        let owners = state.closed_for_good(ino, fh);
        release(owners);
        drop(state);
    }

    /// The locks of these owners were released.
    pub(crate) fn released(&self, ino: InodeId, owners: &[u64]) {
        let mut state = self.state.lock();
        for owner in owners {
            if let Some(count) = state.releasing.get_mut(&(ino, *owner)) {
                *count -= 1;
                if *count == 0 {
                    state.releasing.remove(&(ino, *owner));
                }
            }
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Waits until no earlier lock of this owner number is being released. The release already has a thread,
    /// or is queued before the caller.
    pub(crate) fn wait_for_release(&self, lock: &Lock) {
        let mut state = self.state.lock();
        while state.releasing.contains_key(&(lock.ino, lock.owner)) {
            self.ended.wait(&mut state);
        }
    }

    /// A request may have to wait for its lock. If its INTERRUPT has arrived before it, it does not wait.
    pub(crate) fn may_wait(&self, unique: Unique) -> Arc<LockWait> {
        let wait = Arc::new(LockWait::default());
        let mut state = self.state.lock();
        let early = state.early.iter().position(|found| *found == unique);
        if early.and_then(|at| state.early.remove(at)).is_some() || state.over {
            wait.give_up();
        }
        state.waits.insert(unique, wait.clone());
        wait
    }

    /// The request has been answered.
    pub(crate) fn waits_no_more(&self, unique: Unique) {
        self.state.lock().waits.remove(&unique);
        self.ended.notify_all();
    }

    /// An INTERRUPT has arrived. Returns the wait that it ends. If its request has not arrived yet, the
    /// INTERRUPT is remembered.
    pub(crate) fn interrupted(&self, unique: Unique) -> Option<Arc<LockWait>> {
        let mut state = self.state.lock();
        let wait = state.waits.get(&unique).cloned();
        if wait.is_none() {
            state.early.push_back(unique);
            if state.early.len() > INTERRUPTS_KEPT_MAX {
                state.early.pop_front();
            }
        }
        wait
    }

    /// Whether one more thread may wait for a lock; it counts from now on.
    pub(crate) fn take_thread(&self) -> bool {
        let mut state = self.state.lock();
        let free = state.threads < LOCK_WAITERS_MAX;
        state.threads += usize::from(free);
        free
    }

    /// Such a thread waits no longer.
    pub(crate) fn give_thread_back(&self) {
        self.state.lock().threads -= 1;
    }

    /// Ends all waiting requests with `cancel`; no request waits from now on.
    pub(crate) fn end_all(&self, cancel: impl Fn(Arc<LockWait>)) {
        let mut state = self.state.lock();
        state.over = true;
        let waits: Vec<_> = state.waits.values().cloned().collect();
        drop(state);
        waits.into_iter().for_each(cancel);
    }

    /// Waits a bounded time for all waiting requests to end. Returns whether they have.
    pub(crate) fn are_over(&self) -> bool {
        let mut state = self.state.lock();
        while !state.waits.is_empty() {
            if self.ended.wait_for(&mut state, DRAIN_WAIT).timed_out() {
                return state.waits.is_empty();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_client::{LockKind, LockRange, LockSpace};

    const INO: InodeId = InodeId(9);

    fn see(locks: &Locks, fh: u64, owner: u64) {
        let (space, kind, range) = (LockSpace::Posix, LockKind::Read, LockRange::ALL);
        locks.see(FileHandle(fh), &Lock { ino: INO, space, owner, pid: 1, range, kind });
    }

    fn ended(locks: &Locks, fh: u64) -> Vec<u64> {
        locks.state.lock().closed_for_good(INO, FileHandle(fh))
    }

    #[test]
    fn owners_end_with_the_open_file_through_which_they_were_seen_last_unless_they_have_closed_it() {
        let locks = Locks::new(LockScope::Cluster);
        see(&locks, 1, 100);
        see(&locks, 1, 101);
        see(&locks, 2, 102);
        // An owner number is reused before RELEASE of the first file has arrived.
        see(&locks, 3, 100);
        locks.closed_by(INO, 102);
        assert_eq!(ended(&locks, 1), [101]);
        assert_eq!(ended(&locks, 2), []);
        assert_eq!(ended(&locks, 3), [100]);
        assert!(locks.state.lock().seen.is_empty());
        locks.released(INO, &[100]);
        locks.released(INO, &[101]);
        assert!(locks.state.lock().releasing.is_empty());
    }

    #[test]
    fn lock_request_interrupted_before_it_arrived_does_not_wait() {
        let locks = Locks::new(LockScope::Cluster);
        assert!(locks.interrupted(Unique(4)).is_none());
        assert!(locks.may_wait(Unique(4)).is_given_up());
        assert!(!locks.may_wait(Unique(4)).is_given_up());
        locks.end_all(|wait| wait.give_up());
        assert!(locks.may_wait(Unique(6)).is_given_up());
    }
}
