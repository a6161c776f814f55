//! Locks of programs that exclude between mounts, with [`LockScope::Cluster`]. Otherwise the kernel keeps the
//! locks and sends none of these requests.
//!
//! **Owners.** Every open file has a handle that is never used again: it is the owner of the file's flock(2)
//! lock. The owners of fcntl(2) locks are numbers chosen by the kernel. Locks of a process end when it closes
//! the file, which is a FLUSH with its number. Locks of an open file description end with RELEASE, which does
//! not name their owner. So RELEASE ends the locks of all owners that were seen through the handle and have
//! not closed the file.
//!
//! **Owner numbers are reused.** close(2) does not wait for RELEASE, and the next open file may have the
//! owner number of the last one. So a request for a lock waits until earlier locks of its owner number are
//! released. A number belongs to the handle through which it was seen last: a lock may be held too long, but
//! never too short.
//!
//! **Waiting** takes a thread for each request, so that other requests are not held up; their number is
//! bounded. An INTERRUPT ends the wait. It may overtake its request, and is remembered then.

use crate::answer::{self, Fail};
use crate::dispatch::{Dispatcher, Shared};
use crate::handle;
use crate::limits::{DRAIN_WAIT, INTERRUPTS_KEPT_MAX, LOCK_WAITERS_MAX};
use crate::nodeid_alias::inode_id;
use crate::stats::{Asked, Op, Timer};
use parking_lot::{Condvar, Mutex};
use shoal_channel::{
    FileHandle, LockOwner, LockRequest, NodeId, OpenFlags, ReplyEmpty, ReplyLock, ReplyOpen, Unique,
};
use shoal_client::{Client, Failure, Lock, LockKind, LockRange, LockRecord, LockSpace, LockWait, Wait};
use shoal_types::{Errno, InodeId};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::Builder;

/// Which programs' locks exclude each other.
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
    /// The owners that have asked for locks through an open file, by handle.
    seen: HashMap<u64, (InodeId, BTreeSet<u64>)>,
    /// Requests that wait, or may have to.
    waits: HashMap<Unique, Arc<LockWait>>,
    /// Releases in flight because an open file was closed, by owner.
    releasing: BTreeMap<(InodeId, u64), usize>,
    /// The last INTERRUPTs whose request was not found.
    early: VecDeque<Unique>,
    /// Number of threads that wait for locks.
    threads: usize,
    /// The mount has ended: no request waits any more.
    over: bool,
}

/// The requested lock of a file. To unlock, the kind does not matter.
fn requested(node: NodeId, wanted: &LockRequest) -> Result<Lock, Errno> {
    let LockRequest { handle, owner, lock, flock } = wanted;
    let kind = if lock.kind == libc::F_WRLCK { LockKind::Write } else { LockKind::Read };
    let (space, owner) = if *flock { (LockSpace::Flock, handle.0) } else { (LockSpace::Posix, owner.0) };
    let range = LockRange::new(lock.start, lock.end).map_err(|_| Errno::EINVAL)?;
    Ok(Lock { ino: inode_id(node), space, owner, pid: lock.pid, range, kind })
}

impl State {
    /// An owner has no locks in a file, or has them through another handle.
    fn forget_owner(&mut self, ino: InodeId, owner: u64) {
        self.seen.retain(|_, (of, owners)| *of != ino || !owners.remove(&owner) || !owners.is_empty());
    }

    /// An open file was closed for the last time. Returns the owners whose locks are to be released.
    fn closed_for_good(&mut self, ino: InodeId, fh: FileHandle) -> Vec<u64> {
        let owners = self.seen.remove(&fh.0).map_or_else(BTreeSet::new, |(_, owners)| owners);
        for owner in &owners {
            *self.releasing.entry((ino, *owner)).or_default() += 1;
        }
        owners.into_iter().collect()
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

    /// A handle for a file opened with `flags`: 0 for all where the kernel keeps the locks.
    pub(crate) fn handle(&self, flags: i32, may_map: bool) -> FileHandle {
        match self.are_ours() {
            true => handle::new(self.handles.fetch_add(1, Relaxed), flags, may_map),
            false => FileHandle(0),
        }
    }

    fn see(&self, fh: FileHandle, lock: &Lock) {
        let mut state = self.state.lock();
        if state.seen.get(&fh.0).is_some_and(|(_, owners)| owners.contains(&lock.owner)) {
            return;
        }
        state.forget_owner(lock.ino, lock.owner);
        state.seen.entry(fh.0).or_insert_with(|| (lock.ino, BTreeSet::new())).1.insert(lock.owner);
    }

    /// Whether locks asked for through an open file were lost with a session, while the program believes that
    /// it holds them.
    pub(crate) fn bars(&self, client: &Client, fh: FileHandle) -> bool {
        self.are_ours() && {
            let state = self.state.lock();
            let seen = state.seen.get(&fh.0);
            seen.is_some_and(|(ino, owners)| client.have_lost_locks(*ino, owners.iter().copied()))
        }
    }

    /// An owner has closed a file, through any handle.
    fn closed_by(&self, ino: InodeId, owner: u64) {
        self.state.lock().forget_owner(ino, owner);
    }

    /// The locks of these owners were released.
    fn released(&self, ino: InodeId, owners: &[u64]) {
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

    /// Waits until no earlier lock of this owner number is being released. That release is already running on
    /// another thread.
    fn wait_for_release(&self, lock: &Lock) {
        let mut state = self.state.lock();
        while state.releasing.contains_key(&(lock.ino, lock.owner)) {
            self.ended.wait(&mut state);
        }
    }

    fn may_wait(&self, unique: Unique) -> Arc<LockWait> {
        let wait = Arc::new(LockWait::default());
        let mut state = self.state.lock();
        let early = state.early.iter().position(|found| *found == unique);
        if early.and_then(|at| state.early.remove(at)).is_some() || state.over {
            wait.give_up();
        }
        state.waits.insert(unique, wait.clone());
        wait
    }

    fn waits_no_more(&self, unique: Unique) {
        self.state.lock().waits.remove(&unique);
        self.ended.notify_all();
    }

    fn take_thread(&self) -> bool {
        let mut state = self.state.lock();
        let free = state.threads < LOCK_WAITERS_MAX;
        state.threads += usize::from(free);
        free
    }

    fn give_thread_back(&self) {
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

impl Dispatcher {
    /// open(2): answered so that the kernel sends RELEASE. Of a file that another mount has open for reading
    /// and writing, too, nothing is cached.
    pub(crate) fn open(&self, ino: NodeId, flags: i32, reply: ReplyOpen) {
        let (shared, ino) = (self.shared(), inode_id(ino));
        if !shared.locks.are_ours() {
            return self.refuse(Op::Open, reply, Errno::ENOSYS);
        }
        if !handle::is_for_reading_and_writing(flags) {
            self.note(Timer::start(Op::Open.of(ino)));
            return reply.opened(shared.locks.handle(flags, false), OpenFlags::KEEP_CACHE);
        }
        let call = move |client: &Client, wait, (): &()| client.open_mappable(wait, ino);
        self.serve(Op::Open.of(ino), reply, &(), call, move |reply, opened| match opened {
            Ok(may_map) => {
                let how = if may_map { OpenFlags::KEEP_CACHE } else { OpenFlags::DIRECT_IO };
                reply.opened(shared.locks.handle(flags, may_map), how);
            }
            Err(why) => reply.fail(why),
        });
    }

    /// close(2), by one of the processes that have the file open.
    pub(crate) fn flush(&self, ino: NodeId, owner: LockOwner, reply: ReplyEmpty) {
        let (shared, ino) = (self.shared(), inode_id(ino));
        if !shared.locks.are_ours() {
            return self.refuse(Op::Flush, reply, Errno::ENOSYS);
        }
        shared.locks.closed_by(ino, owner.0);
        if !shared.client.may_have_locks(ino, owner.0) {
            self.note(Timer::start(Op::Flush.of(ino)));
            return reply.ok();
        }
        self.about_locks(
            Op::Flush.of(ino),
            reply,
            move |client| client.release_locks(ino, &[owner.0]),
            answer::empty,
        );
    }

    /// The last close(2) of an open file. The program does not wait for it.
    pub(crate) fn release(&self, ino: NodeId, fh: FileHandle, reply: ReplyEmpty) {
        let (shared, ino) = (self.shared(), inode_id(ino));
        let its = shared.clone();
        let mut state = shared.locks.state.lock();
        let owners = state.closed_for_good(ino, fh);
        // What cannot be done without a request is left.
        let was_mappable = handle::is_mappable(fh)
            && its.client.close_mappable(Wait::Never, ino) == Err(Failure::WouldBlock);
        if owners.is_empty() && !was_mappable {
            self.note(Timer::start(Op::Release.of(ino)));
            return reply.ok();
        }
        let release = move |client: &Client| {
            if was_mappable {
                // Fails only with the session, and with that the lock has ended.
                let _ = client.close_mappable(Wait::Allowed, ino);
            }
            if owners.is_empty() {
                return Ok(());
            }
            let released = client.release_locks(ino, &owners);
            its.locks.released(ino, &owners);
            released
        };
        self.about_locks(Op::Release.of(ino), reply, release, answer::empty);
        // Unlocked only now: a request that waits for this release takes a thread of the lane, and the
        // release has a thread already or is queued before it.
        drop(state);
    }

    /// F_GETLK.
    pub(crate) fn test_lock(&self, node: NodeId, wanted: &LockRequest, reply: ReplyLock) {
        match requested(node, wanted) {
            Ok(lock) => {
                self.about_locks(
                    Op::Getlk.of(lock.ino),
                    reply,
                    move |client| client.test_lock(&lock),
                    answer_found,
                );
            }
            Err(why) => self.refuse(Op::Getlk, reply, why),
        }
    }

    /// F_SETLK, F_SETLKW and flock(2).
    pub(crate) fn set_lock(
        &self,
        node: NodeId,
        wanted: &LockRequest,
        wait: Option<Unique>,
        reply: ReplyEmpty,
    ) {
        let lock = match requested(node, wanted) {
            Ok(lock) => lock,
            Err(why) => return self.refuse(Op::Setlk, reply, why),
        };
        if wanted.lock.kind == libc::F_UNLCK {
            return self.about_locks(
                Op::Setlk.of(lock.ino),
                reply,
                move |client| client.unlock(&lock),
                answer::empty,
            );
        }
        let (shared, fh) = (self.shared(), wanted.handle);
        shared.locks.see(fh, &lock);
        let Some(unique) = wait else {
            let set = move |_: &Client| {
                shared.locks.wait_for_release(&lock);
                take_lock(&shared, fh, &lock, None)
            };
            return self.about_locks(Op::Setlk.of(lock.ino), reply, set, answer::empty);
        };
        let (timer, wait) = (Timer::start(Op::Setlkw.of(lock.ino)), shared.locks.may_wait(unique));
        self.submit_about_locks(Box::new(move || {
            shared.locks.wait_for_release(&lock);
            match take_lock(&shared, fh, &lock, None) {
                Err(Errno::EAGAIN) => wait_for_lock(shared, timer, (fh, lock), (unique, wait), reply),
                outcome => {
                    shared.finish(timer.slow(), reply, outcome.map_err(Into::into), answer::empty);
                    shared.locks.waits_no_more(unique);
                }
            }
        }));
    }

    /// A waiting program has received a signal.
    pub(crate) fn interrupt(&self, unique: Unique) {
        let shared = self.shared();
        if !shared.locks.are_ours() {
            return;
        }
        let mut state = shared.locks.state.lock();
        match state.waits.get(&unique).cloned() {
            Some(wait) => {
                drop(state);
                self.cancel(wait);
            }
            None => {
                state.early.push_back(unique);
                if state.early.len() > INTERRUPTS_KEPT_MAX {
                    state.early.pop_front();
                }
            }
        }
    }

    /// Ends the wait of a request. Does not block.
    pub(crate) fn cancel(&self, wait: Arc<LockWait>) {
        wait.give_up();
        let client = self.shared().client.clone();
        self.submit_about_locks(Box::new(move || client.cancel_lock(&wait)));
    }

    fn about_locks<T, R: Send + 'static>(
        &self,
        asked: Asked,
        reply: R,
        call: impl FnOnce(&Client) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let (timer, shared) = (Timer::start(asked), self.shared());
        let waits = shared.running.begin(timer);
        self.submit_about_locks(Box::new(move || {
            let outcome = waits.run(|| call(&shared.client));
            shared.finish(timer.slow(), reply, outcome.map_err(Into::into), answer);
            drop(waits);
        }));
    }
}

/// Takes a lock. Its owner is recorded for the open file once more before the reply: another thread of the
/// owner may have closed the file meanwhile.
fn take_lock(shared: &Shared, fh: FileHandle, lock: &Lock, wait: Option<&LockWait>) -> Result<(), Errno> {
    shared.client.lock(lock, wait)?;
    shared.locks.see(fh, lock);
    Ok(())
}

/// Waits for a lock that another owner holds, on a thread of its own.
fn wait_for_lock(
    shared: Arc<Shared>,
    timer: Timer,
    (fh, lock): (FileHandle, Lock),
    (unique, wait): (Unique, Arc<LockWait>),
    reply: ReplyEmpty,
) {
    let finish = move |shared: &Shared, timer: Timer, reply, outcome: Result<(), Errno>| {
        shared.finish(timer.slow(), reply, outcome.map_err(Into::into), answer::empty);
        shared.locks.waits_no_more(unique);
    };
    if !shared.locks.take_thread() {
        return finish(&shared, timer, reply, Err(Errno::ENOLCK));
    }
    let its = shared.clone();
    let run = move || {
        crate::affinity::everywhere();
        let outcome = its.running.begin(timer).run(|| take_lock(&its, fh, &lock, Some(&wait)));
        its.locks.give_thread_back();
        finish(&its, timer, reply, outcome);
    };
    // Without a thread the reply is dropped, which is an error for the program.
    if let Err(error) = Builder::new().name("fuse-lock".into()).spawn(run) {
        tracing::error!(%error, "no thread to wait for a lock");
        shared.locks.give_thread_back();
        shared.locks.waits_no_more(unique);
    }
}

/// Answers with the conflicting lock, or with `F_UNLCK`.
fn answer_found(reply: ReplyLock, found: Result<Option<LockRecord>, Errno>) {
    match found {
        Ok(Some(LockRecord { range, kind, pid, .. })) => {
            let kind = if kind == LockKind::Write { libc::F_WRLCK } else { libc::F_RDLCK };
            let (start, end) = (range.start(), range.end());
            reply.lock(&shoal_channel::Lock { start, end, kind, pid });
        }
        Ok(None) => reply.lock(&shoal_channel::Lock { start: 0, end: 0, kind: libc::F_UNLCK, pid: 0 }),
        Err(why) => reply.fail(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_request_that_was_interrupted_before_it_came_does_not_wait() {
        let locks = Locks::new(LockScope::Cluster);
        locks.state.lock().early.push_back(Unique(4));
        assert!(locks.may_wait(Unique(4)).is_given_up());
        assert!(!locks.may_wait(Unique(4)).is_given_up());
        locks.end_all(|wait| wait.give_up());
        assert!(locks.may_wait(Unique(6)).is_given_up());
    }
}
