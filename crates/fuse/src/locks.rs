//! Locks of programs that exclude between mounts: only with [`LockScope::Cluster`]; otherwise the kernel keeps them, and none of this is asked.
//!
//! **Who owns a lock.** Every open file has a handle of its own, which is never used again: that is the owner of its lock of flock(2). The owners of
//! fcntl(2) are numbers of the kernel's. Those of a process end when it closes the file, which is a FLUSH with its number. Those of an open file
//! description end with RELEASE, which does not name them: so the owners that were seen through a handle and have not closed the file end with it.
//!
//! **Numbers come again.** Nobody waits for RELEASE, and the next open file may have the same number as the one that is gone. So whoever
//! asks for a lock waits until what his number had before has been given up; and a number belongs to the handle through which it was seen
//! last: if it should be too long rather than too short, that a lock is held.
//!
//! **Waiting** takes a thread for each request, so that it holds up nobody; how many there may be is bounded. An INTERRUPT ends it. It
//! may overtake the request that it is about, and is remembered then.

use crate::answer::{self, Fail};
use crate::limits::{DRAIN_WAIT, INTERRUPTS_KEPT_MAX, LOCK_WAITERS_MAX};
use crate::nodes::inode_id;
use crate::serve::{Server, Shared};
use crate::stats::{Op, Timer};
use fuser::{FileHandle, FopenFlags, INodeNo, LockOwner, ReplyEmpty, ReplyLock, ReplyOpen, RequestId};
use parking_lot::{Condvar, Mutex};
use shoal_client::{Client, Lock, LockKind, LockRange, LockRecord, LockSpace, LockWait};
use shoal_types::{Errno, InodeId};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::Builder;

/// Between whom locks exclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockScope {
    /// Programs on this mount: the kernel keeps them, at no cost.
    #[default]
    Local,
    /// Programs on all mounts of the volume that were mounted so.
    Cluster,
}

/// See the module.
pub(crate) struct Locks {
    scope: LockScope,
    handles: AtomicU64,
    state: Mutex<State>,
    /// A request does not wait any more, or something has been given up.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Who has asked for locks through an open file.
    seen: HashMap<u64, (InodeId, BTreeSet<u64>)>,
    /// Requests that wait or may come to.
    waits: HashMap<RequestId, Arc<LockWait>>,
    /// What is being given up because an open file is gone, by owner.
    releasing: BTreeMap<(InodeId, u64), usize>,
    /// Interrupts that nobody was found for, the last ones.
    early: VecDeque<RequestId>,
    /// How many threads wait.
    threads: usize,
    /// The mount has ended: nobody waits any more.
    over: bool,
}

/// What a program wants, as the kernel says it.
pub(crate) struct Wanted {
    pub ino: INodeNo,
    pub fh: FileHandle,
    pub owner: LockOwner,
    pub start: u64,
    pub end: u64,
    pub typ: i32,
    pub pid: u32,
    pub flock: bool,
}

impl Wanted {
    /// The lock. To give one up it does not matter of which kind.
    fn lock(&self) -> Result<Lock, Errno> {
        let kind = if self.typ == libc::F_WRLCK { LockKind::Write } else { LockKind::Read };
        let space = if self.flock { LockSpace::Flock } else { LockSpace::Posix };
        let owner = if self.flock { self.fh.0 } else { self.owner.0 };
        let range = LockRange::new(self.start, self.end).map_err(|_| Errno::EINVAL)?;
        Ok(Lock { ino: inode_id(self.ino), space, owner, pid: self.pid, range, kind })
    }
}

impl State {
    /// An owner has nothing in a file, or has it through another handle.
    fn forget_owner(&mut self, ino: InodeId, owner: u64) {
        self.seen.retain(|_, (of, owners)| *of != ino || !owners.remove(&owner) || !owners.is_empty());
    }

    /// An open file is no more. Who is left with locks through it: they are being given up.
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

    /// A handle for an open file: where the kernel keeps the locks they are all the same.
    pub(crate) fn handle(&self) -> FileHandle {
        FileHandle(if self.are_ours() { self.handles.fetch_add(1, Relaxed) } else { 0 })
    }

    fn see(&self, fh: FileHandle, lock: &Lock) {
        let mut state = self.state.lock();
        if state.seen.get(&fh.0).is_some_and(|(_, owners)| owners.contains(&lock.owner)) {
            return;
        }
        state.forget_owner(lock.ino, lock.owner);
        state.seen.entry(fh.0).or_insert_with(|| (lock.ino, BTreeSet::new())).1.insert(lock.owner);
    }

    /// Whether locks were asked for through an open file that were lost with a session, and that whoever did still believes to have.
    pub(crate) fn bars(&self, client: &Client, fh: FileHandle) -> bool {
        self.are_ours() && {
            let state = self.state.lock();
            let seen = state.seen.get(&fh.0);
            seen.is_some_and(|(ino, owners)| client.have_lost_locks(*ino, owners.iter().copied()))
        }
    }

    /// An owner has closed a file, through whatever handle.
    fn closed_by(&self, ino: InodeId, owner: u64) {
        self.state.lock().forget_owner(ino, owner);
    }

    /// They have been given up.
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

    /// Waits until nothing is being given up that an owner of this number had. That has begun before, on another thread.
    fn wait_for_release(&self, lock: &Lock) {
        let mut state = self.state.lock();
        while state.releasing.contains_key(&(lock.ino, lock.owner)) {
            self.ended.wait(&mut state);
        }
    }

    fn may_wait(&self, unique: RequestId) -> Arc<LockWait> {
        let wait = Arc::new(LockWait::default());
        let mut state = self.state.lock();
        let early = state.early.iter().position(|found| *found == unique);
        if early.and_then(|at| state.early.remove(at)).is_some() || state.over {
            wait.give_up();
        }
        state.waits.insert(unique, wait.clone());
        wait
    }

    fn waits_no_more(&self, unique: RequestId) {
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

    /// Nobody waits any more: those who do are interrupted by `cancel`.
    pub(crate) fn end_all(&self, cancel: impl Fn(Arc<LockWait>)) {
        let mut state = self.state.lock();
        state.over = true;
        let waits: Vec<_> = state.waits.values().cloned().collect();
        drop(state);
        waits.into_iter().for_each(cancel);
    }

    /// Whether nobody waits any more, within a time.
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

impl Server {
    /// open(2): only because otherwise there would be no RELEASE.
    pub(crate) fn open(&self, reply: ReplyOpen) {
        let shared = self.shared();
        if !shared.locks.are_ours() {
            return self.refuse(Op::Open, reply, Errno::ENOSYS);
        }
        self.note(Timer::start(Op::Open));
        reply.opened(shared.locks.handle(), FopenFlags::FOPEN_KEEP_CACHE);
    }

    /// close(2), by one of those who have the file open.
    pub(crate) fn flush(&self, ino: INodeNo, owner: LockOwner, reply: ReplyEmpty) {
        let (shared, ino) = (self.shared(), inode_id(ino));
        if !shared.locks.are_ours() {
            return self.refuse(Op::Flush, reply, Errno::ENOSYS);
        }
        shared.locks.closed_by(ino, owner.0);
        if !shared.client.may_have_locks(ino, owner.0) {
            self.note(Timer::start(Op::Flush));
            return reply.ok();
        }
        self.about_locks(
            Op::Flush,
            reply,
            move |client| client.release_locks(ino, &[owner.0]),
            answer::empty,
        );
    }

    /// The last close(2) of an open file. Nobody waits for it.
    pub(crate) fn release(&self, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        let (shared, ino) = (self.shared(), inode_id(ino));
        let its = shared.clone();
        let mut state = shared.locks.state.lock();
        let owners = state.closed_for_good(ino, fh);
        if owners.is_empty() {
            self.note(Timer::start(Op::Release));
            return reply.ok();
        }
        let release = move |client: &Client| {
            let released = client.release_locks(ino, &owners);
            its.locks.released(ino, &owners);
            released
        };
        self.about_locks(Op::Release, reply, release, answer::empty);
        // Only now: whoever waits for it takes a thread, and it has got one or will be the next that does.
        drop(state);
    }

    /// F_GETLK.
    pub(crate) fn test_lock(&self, wanted: &Wanted, reply: ReplyLock) {
        match wanted.lock() {
            Ok(lock) => {
                self.about_locks(Op::Getlk, reply, move |client| client.test_lock(&lock), answer_found);
            }
            Err(why) => self.refuse(Op::Getlk, reply, why),
        }
    }

    /// F_SETLK, F_SETLKW and flock(2).
    pub(crate) fn set_lock(&self, wanted: &Wanted, wait: Option<RequestId>, reply: ReplyEmpty) {
        let lock = match wanted.lock() {
            Ok(lock) => lock,
            Err(why) => return self.refuse(Op::Setlk, reply, why),
        };
        if wanted.typ == libc::F_UNLCK {
            return self.about_locks(Op::Setlk, reply, move |client| client.unlock(&lock), answer::empty);
        }
        let (shared, fh) = (self.shared(), wanted.fh);
        shared.locks.see(fh, &lock);
        let Some(unique) = wait else {
            let set = move |_: &Client| {
                shared.locks.wait_for_release(&lock);
                take_lock(&shared, fh, &lock, None)
            };
            return self.about_locks(Op::Setlk, reply, set, answer::empty);
        };
        let (timer, wait) = (Timer::start(Op::Setlkw), shared.locks.may_wait(unique));
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

    /// A program that waits has got a signal.
    pub(crate) fn interrupt(&self, unique: RequestId) {
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

    /// Ends a wait, without waiting for that.
    pub(crate) fn cancel(&self, wait: Arc<LockWait>) {
        wait.give_up();
        let client = self.shared().client.clone();
        self.submit_about_locks(Box::new(move || client.cancel_lock(&wait)));
    }

    fn about_locks<T, R: Send + 'static>(
        &self,
        op: Op,
        reply: R,
        call: impl FnOnce(&Client) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let (timer, shared) = (Timer::start(op), self.shared());
        self.submit_about_locks(Box::new(move || {
            let outcome = call(&shared.client);
            shared.finish(timer.slow(), reply, outcome.map_err(Into::into), answer);
        }));
    }
}

/// Takes a lock. Whoever gets it is seen through the open file once more, before it knows: another of its threads may have closed the
/// file meanwhile.
fn take_lock(shared: &Shared, fh: FileHandle, lock: &Lock, wait: Option<&LockWait>) -> Result<(), Errno> {
    shared.client.lock(lock, wait)?;
    shared.locks.see(fh, lock);
    Ok(())
}

/// Waits for a lock that somebody else has, on a thread of its own.
fn wait_for_lock(
    shared: Arc<Shared>,
    timer: Timer,
    (fh, lock): (FileHandle, Lock),
    (unique, wait): (RequestId, Arc<LockWait>),
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
        crate::near::everywhere();
        let outcome = take_lock(&its, fh, &lock, Some(&wait));
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

/// The lock that is in the way, or that there is none.
fn answer_found(reply: ReplyLock, found: Result<Option<LockRecord>, Errno>) {
    match found {
        Ok(Some(LockRecord { range, kind, pid, .. })) => {
            let typ = if kind == LockKind::Write { libc::F_WRLCK } else { libc::F_RDLCK };
            reply.locked(range.start(), range.end(), typ, pid);
        }
        Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
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
        // A number that comes again, before it is known that the first one's file is gone.
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
        locks.state.lock().early.push_back(RequestId(4));
        assert!(locks.may_wait(RequestId(4)).is_given_up());
        assert!(!locks.may_wait(RequestId(4)).is_given_up());
        locks.end_all(|wait| wait.give_up());
        assert!(locks.may_wait(RequestId(6)).is_given_up());
    }
}
