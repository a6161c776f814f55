//! Requests about locks of programs, and about the open files that these belong to. [`locks`](crate::locks)
//! has the state, and says what is to be observed.

use super::Dispatcher;
use crate::affinity;
use crate::answer::{self, Fail};
use crate::handle;
use crate::mount_state::Shared;
use crate::nodeid_alias::inode_id;
use crate::stats::{Asked, Op, Timer};
use shoal_channel::{
    FileHandle, LockOwner, LockRequest, NodeId, OpenFlags, ReplyEmpty, ReplyLock, ReplyOpen, Unique,
};
use shoal_client::{Client, Failure, Lock, LockKind, LockRange, LockRecord, LockSpace, LockWait, Wait};
use shoal_types::Errno;
use std::sync::Arc;
use std::thread::Builder;

/// The requested lock of a file. To unlock, the kind does not matter.
fn requested(node: NodeId, wanted: &LockRequest) -> Result<Lock, Errno> {
    let LockRequest { handle, owner, lock, flock } = wanted;
    let kind = if lock.kind == libc::F_WRLCK { LockKind::Write } else { LockKind::Read };
    let (space, owner) = if *flock { (LockSpace::Flock, handle.0) } else { (LockSpace::Posix, owner.0) };
    let range = LockRange::new(lock.start, lock.end).map_err(|_| Errno::EINVAL)?;
    Ok(Lock { ino: inode_id(node), space, owner, pid: lock.pid, range, kind })
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
        shared.locks.closed_for_good(ino, fh, |owners| {
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
        });
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
        if let Some(wait) = shared.locks.interrupted(unique) {
            self.cancel(wait);
        }
    }

    /// Ends the wait of a request. Does not block.
    pub(super) fn cancel(&self, wait: Arc<LockWait>) {
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
        affinity::everywhere();
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
