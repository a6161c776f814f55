//! Requests about locks of programs, and about the open files that these belong to. [`locks`](crate::locks)
//! has the state, and says what is to be observed.

use super::{Dispatcher, Pending};
use crate::affinity;
use crate::answer::{self, ErrorReply};
use crate::context::{Context, Op};
use crate::handle;
use crate::mount_state::Shared;
use crate::running::InFlight;
use crate::slow::Lane;
use shoal_channel::{
    FileHandle, LockOwner, LockRequest, OpenFlags, ReplyEmpty, ReplyLock, ReplyOpen, Unique,
};
use shoal_client::{Client, Failure, Lock, LockKind, LockRange, LockRecord, LockSpace, LockWait, Wait};
use shoal_runtime::thread::Builder;
use shoal_types::{Errno, InodeId};
use std::sync::Arc;

/// The requested lock of a file. To unlock, the kind does not matter.
fn requested(ino: InodeId, wanted: &LockRequest) -> Result<Lock, Errno> {
    let LockRequest { handle, owner, lock, flock } = wanted;
    let kind = if lock.kind == libc::F_WRLCK { LockKind::Write } else { LockKind::Read };
    let (space, owner) = if *flock { (LockSpace::Flock, handle.0) } else { (LockSpace::Posix, owner.0) };
    let range = LockRange::new(lock.start, lock.end).map_err(|_| Errno::EINVAL)?;
    Ok(Lock { ino, space, owner, pid: lock.pid, range, kind })
}

impl Pending<'_, ReplyOpen> {
    /// open(2): answered so that the kernel sends RELEASE. Of a file that another mount has open for reading
    /// and writing, too, nothing is cached. A file that is opened for reading only, while no program of this
    /// mount has locks in it, is closed without a FLUSH: locks taken through it later end with RELEASE.
    pub(crate) fn open(self, flags: i32) {
        let locks = &self.shared().locks;
        if !locks.are_ours() {
            return self.refuse(Errno::ENOSYS);
        }
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            self.dispatcher.note(&self.context);
            let mut how = OpenFlags::KEEP_CACHE;
            how.set(OpenFlags::NOFLUSH, !self.shared().client.may_be_locked(self.context.ino));
            self.reply.opened(locks.handle(flags, false), how);
            return;
        }
        let (ino, shared) = (self.context.ino, self.shared().clone());
        let maps = handle::is_for_reading_and_writing(flags);
        let appends = flags & libc::O_APPEND != 0;
        self.serve(
            &(),
            move |attempt, ()| {
                let (client, wait) = (attempt.client(), attempt.wait);
                client.may_open_for_writing(wait, ino, appends)?;
                if maps { client.open_mappable(wait, ino) } else { Ok(true) }
            },
            move |reply, opened| match opened {
                Ok(may_map) => {
                    let how = if may_map { OpenFlags::KEEP_CACHE } else { OpenFlags::DIRECT_IO };
                    if !reply.opened(shared.locks.handle(flags, may_map), how) && may_map && maps {
                        // Fails only with the session, and with that the lock has ended.
                        let _ = shared.client.close_mappable(Wait::Allowed, ino);
                    }
                }
                Err(why) => reply.fail(why),
            },
        );
    }
}

impl Pending<'_, ReplyEmpty> {
    /// close(2), by one of the processes that have the file open.
    pub(crate) fn flush(self, owner: LockOwner) {
        let (ino, shared) = (self.context.ino, self.shared().clone());
        let locks = &shared.locks;
        if !locks.are_ours() {
            return self.refuse(Errno::ENOSYS);
        }
        locks.closed_by(ino, owner.0);
        if !shared.client.may_have_locks(ino, owner.0) {
            return self.done();
        }
        let its = shared.clone();
        let release = move |client: &Client| {
            let released = client.release_locks(ino, &[owner.0]);
            its.locks.released(ino, &[owner.0]);
            released
        };
        locks.begin_release(ino, owner.0, || self.about_locks(release, answer::empty));
    }

    /// The last close(2) of an open file. The program does not wait for it.
    pub(crate) fn release(self, fh: FileHandle) {
        let (ino, shared) = (self.context.ino, self.shared());
        shared.locks.closed_for_good(ino, fh, |owners| {
            // Tried without waiting: a release that needs no request is done at once.
            let was_mappable = handle::is_mappable(fh)
                && shared.client.close_mappable(Wait::Never, ino) == Err(Failure::WouldBlock);
            if owners.is_empty() && !was_mappable {
                return self.done();
            }
            let its = shared.clone();
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
            self.about_locks(release, answer::empty);
        });
    }

    /// F_SETLK, F_SETLKW and flock(2).
    pub(crate) fn set_lock(self, wanted: &LockRequest, wait: Option<Unique>) {
        let (shared, fh) = (self.shared().clone(), wanted.handle);
        let lock = match requested(self.context.ino, wanted) {
            Ok(lock) => lock,
            Err(why) => return self.refuse(why),
        };
        if wanted.lock.kind == libc::F_UNLCK {
            return self.about_locks(move |client| client.unlock(&lock), answer::empty);
        }
        shared.locks.see(fh, &lock);
        let Some(unique) = wait else {
            let set = move |_: &Client| {
                shared.locks.wait_for_release(&lock);
                take_lock(&shared, fh, &lock, None)
            };
            return self.about_locks(set, answer::empty);
        };
        let Pending { dispatcher, context, mut reply } = self;
        let context = Context { op: Op::Setlkw, ..context };
        let waits = shared.running.begin(context, Some(reply.canceller()));
        let wait = shared.locks.may_wait(unique);
        let waiting = LockWaiter { context, fh, lock, unique, wait, waits, reply, shared };
        dispatcher.submit(
            Lane::Lock,
            Box::new(move || {
                waiting.shared.locks.wait_for_release(&waiting.lock);
                match waiting.take(None) {
                    Err(Errno::EAGAIN) => waiting.wait(),
                    outcome => waiting.finish(outcome),
                }
            }),
        );
    }

    /// Answers with success.
    fn done(self) {
        self.dispatcher.note(&self.context);
        self.reply.ok();
    }
}

impl Pending<'_, ReplyLock> {
    /// F_GETLK.
    pub(crate) fn test_lock(self, wanted: &LockRequest) {
        match requested(self.context.ino, wanted) {
            Ok(lock) => self.about_locks(move |client| client.test_lock(&lock), answer_found),
            Err(why) => self.refuse(why),
        }
    }
}

impl<R: ErrorReply + Send + 'static> Pending<'_, R> {
    /// Queues a call about locks of programs.
    fn about_locks<T>(
        self,
        call: impl FnOnce(&Client) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let Pending { dispatcher, context, mut reply } = self;
        let shared = dispatcher.shared.clone();
        let waits = shared.running.begin(context, Some(reply.canceller()));
        dispatcher.submit(
            Lane::Lock,
            Box::new(move || {
                let outcome = waits.run(|| call(&shared.client));
                shared.finish(&context.slow(), reply, outcome.map_err(Into::into), answer);
                drop(waits);
            }),
        );
    }
}

impl Dispatcher {
    /// A waiting program has received a signal.
    pub(crate) fn interrupt(&self, unique: Unique) {
        let locks = &self.shared.locks;
        if !locks.are_ours() {
            return;
        }
        if let Some(wait) = locks.interrupted(unique) {
            self.cancel(wait);
        }
    }

    /// Ends the wait of a request. Does not block.
    pub(super) fn cancel(&self, wait: Arc<LockWait>) {
        wait.give_up();
        let client = self.shared.client.clone();
        self.submit(Lane::Lock, Box::new(move || client.cancel_lock(&wait)));
    }
}

/// Takes a lock. Its owner is recorded for the open file once more before the reply: another thread of the
/// owner may have closed the file meanwhile.
fn take_lock(shared: &Shared, fh: FileHandle, lock: &Lock, wait: Option<&LockWait>) -> Result<(), Errno> {
    shared.client.lock(lock, wait)?;
    shared.locks.see(fh, lock);
    Ok(())
}

/// A request that waits for a lock which another owner holds.
struct LockWaiter {
    shared: Arc<Shared>,
    context: Context,
    fh: FileHandle,
    lock: Lock,
    /// The number of the request, by which it is interrupted.
    unique: Unique,
    wait: Arc<LockWait>,
    waits: InFlight,
    reply: ReplyEmpty,
}

impl LockWaiter {
    fn take(&self, wait: Option<&LockWait>) -> Result<(), Errno> {
        self.waits.run(|| take_lock(&self.shared, self.fh, &self.lock, wait))
    }

    /// Waits for the lock on a thread of its own.
    fn wait(self) {
        let (shared, unique) = (self.shared.clone(), self.unique);
        if !shared.locks.take_thread() {
            return self.finish(Err(Errno::ENOLCK));
        }
        let run = move || {
            affinity::everywhere();
            let outcome = self.take(Some(&self.wait));
            self.shared.locks.give_thread_back();
            self.finish(outcome);
        };
        // Without a thread the reply is dropped, which is an error for the program.
        if let Err(error) = Builder::new().name("fuse-lock".into()).spawn(run) {
            tracing::error!(%error, "cannot start a thread to wait for a lock");
            shared.locks.give_thread_back();
            shared.locks.waits_no_more(unique);
        }
    }

    fn finish(self, outcome: Result<(), Errno>) {
        let LockWaiter { shared, context, unique, waits, reply, .. } = self;
        shared.finish(&context.slow(), reply, outcome.map_err(Into::into), answer::empty);
        drop(waits);
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
