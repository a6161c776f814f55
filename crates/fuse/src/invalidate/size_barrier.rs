//! Hides the size of a file while the kernel's view of it is wrong (`docs/KERNEL_CACHE.md`, hazards 13 and
//! 14). Such a file *settles*.
//!
//! A write with `O_APPEND` that had to wait may have put its bytes at the wrong offset of the page cache: the
//! kernel takes the end of the file before it requests `security.capability`. Its pages are invalidated when
//! the write has been carried out, and before it is answered
//! ([`WaitingChange::carried_out`](super::WaitingChange::carried_out)). In between the file is longer, and
//! the page cache may have zeros there, so no reply carries the size. For an append, the file settles from
//! before that request of the kernel is answered (see [`append`](super::append)).
//!
//! A file also settles while its size is changed in any other way. The kernel updates `i_size` when the
//! calling thread runs again after the reply, and ignores other replies with a new size until then. A program
//! that calls stat(2) in between would see a size up to which it cannot read yet. Where the file was
//! truncated, a reader would see zeros up to the old end. So both wait until the calling thread has been seen
//! to run. A program that sends no request reads up to the old `i_size` meanwhile. So the right to the file
//! is not given back before that, either: another mount would show the new size too early.

use super::Invalidator;
use super::getattr_inflight::ReplyConsumer;
use crate::context::{Holds, Write};
use crate::host::HostRef;
use crate::limits::{ATTRIBUTES_LOOK_EVERY, CONSUMED_WAIT_MAX, SETTLE_WAIT_MAX};
use shoal_client::{Client, Failure, LookupResult, Reply, Wait};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::{self, ThreadId};
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The files that settle, and the requests for attributes in flight.
#[derive(Default)]
pub(super) struct SizeBarrier {
    host: HostRef,
    any: AtomicUsize,
    files: Mutex<Files>,
    over: Condvar,
    /// Threads with a request for attributes in flight, one entry per request.
    asking: Mutex<Vec<u32>>,
}

#[derive(Default)]
struct Files {
    list: Vec<File>,
    last: u64,
}

/// A request of a thread for attributes, in flight until this is dropped.
pub(crate) struct Unanswered {
    invalidator: Arc<Invalidator>,
    tid: u32,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let mut asking = self.invalidator.size_barrier.asking.lock();
        if let Some(at) = asking.iter().position(|tid| *tid == self.tid) {
            asking.swap_remove(at);
        }
    }
}

struct File {
    ino: InodeId,
    /// The order in which the changes began.
    number: u64,
    /// The change may truncate the file.
    cut: bool,
    stage: Stage,
}

/// The stages of a change for which a file settles.
enum Stage {
    /// A write is expected until this time, and may never come.
    Expected(Instant),
    /// A thread of the mount process is changing it. If the change fails, a write may still be expected until
    /// this time.
    Changing(ThreadId, Option<Instant>),
    /// The change was answered. The calling thread has to consume the reply, which is waited for until this
    /// time.
    Taken(ReplyConsumer, Instant),
}

impl File {
    /// Whether it may be settling.
    fn is_in_time(&self, now: Instant) -> bool {
        match &self.stage {
            Stage::Expected(until) | Stage::Taken(_, until) => now < *until,
            Stage::Changing(..) => true,
        }
    }

    fn is_taken_by(&self, tid: u32) -> bool {
        matches!(&self.stage, Stage::Taken(by, _) if by.tid == tid && tid != 0)
    }

    /// Whether the current thread of the mount process is changing it.
    fn is_changed_here(&self) -> bool {
        matches!(self.stage, Stage::Changing(by, _) if by == thread::current())
    }

    fn is_behind_size_barrier(&mut self, now: Instant) -> bool {
        let has_consumed = match &mut self.stage {
            Stage::Taken(by, _) => by.has_consumed(),
            _ => false,
        };
        self.is_in_time(now) && !has_consumed
    }
}

/// The kind of request that may have to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockedRequest {
    /// GETATTR by this thread. A thread does not wait for a change of its own.
    Getattr(u32),
    /// LOOKUP. It does not wait for a change that was answered: the kernel shows no program the result before
    /// it has updated `i_size`.
    Lookup,
    /// READ, which fills pages of the page cache.
    Read,
}

impl SizeBarrier {
    /// Of a mount on this host.
    pub(super) fn new(host: &HostRef) -> SizeBarrier {
        SizeBarrier { host: host.clone(), ..SizeBarrier::default() }
    }

    /// A write by the kernel is expected. The file settles until it has been answered, or takes too long.
    pub(super) fn expect(&self, ino: InodeId) {
        self.set(ino, false, |_| Stage::Expected(Instant::now() + SETTLE_WAIT_MAX));
    }

    /// The current thread of the mount process is about to change a file, and will also send the reply.
    /// `cut`: the file may become shorter.
    fn begin(&self, ino: InodeId, cut: bool) {
        self.set(ino, cut, |before| {
            let expected = match before {
                Some(Stage::Expected(until)) => Some(until),
                Some(Stage::Changing(_, expected)) => expected,
                Some(Stage::Taken(..)) | None => None,
            };
            Stage::Changing(thread::current(), expected)
        });
    }

    /// Sets the stage of a file's change: only one change of a file is carried out at a time.
    fn set(&self, ino: InodeId, cut: bool, stage: impl FnOnce(Option<Stage>) -> Stage) {
        let mut files = self.files.lock();
        let now = Instant::now();
        files.list.retain(|known| known.is_in_time(now));
        let before = files.list.iter().position(|known| known.ino == ino);
        let before = before.map(|at| files.list.swap_remove(at).stage);
        files.last += 1;
        let number = files.last;
        files.list.push(File { ino, number, cut, stage: stage(before) });
        self.any.store(files.list.len(), SeqCst);
    }

    /// The change that the current thread began has failed.
    fn give_up(&self, ino: InodeId) {
        self.update(ino, |file| match file.stage {
            Stage::Changing(_, Some(until)) | Stage::Expected(until) => Some(Stage::Expected(until)),
            _ => None,
        });
    }

    /// Thread `tid` was answered; the current thread may have changed a file for it. A thread makes one call
    /// at a time, so it has consumed the replies to its earlier changes.
    fn reply_sent_to(&self, ino: InodeId, tid: u32) {
        if self.any.load(SeqCst) == 0 {
            return;
        }
        let mut files = self.files.lock();
        let Some(file) = files.list.iter_mut().find(|file| file.ino == ino && file.is_changed_here()) else {
            return;
        };
        let number = file.number;
        file.stage = Stage::Taken(ReplyConsumer::now(&self.host, tid), Instant::now() + SETTLE_WAIT_MAX);
        files.list.retain(|file| file.number >= number || !file.is_taken_by(tid));
        self.any.store(files.list.len(), SeqCst);
    }

    /// A change is over, without a reply that the kernel has to consume.
    fn end(&self, ino: InodeId) {
        self.update(ino, |_| None);
    }

    /// Replaces the stage of the change that the current thread makes in a file, or of the write expected to
    /// it; `None` ends it.
    fn update(&self, ino: InodeId, next: impl FnOnce(&File) -> Option<Stage>) {
        if self.any.load(SeqCst) == 0 {
            return;
        }
        let mut files = self.files.lock();
        let is_it = |file: &File| {
            file.ino == ino && (file.is_changed_here() || matches!(file.stage, Stage::Expected(_)))
        };
        let Some(at) = files.list.iter().position(is_it) else { return };
        let mut file = files.list.swap_remove(at);
        if let Some(stage) = next(&file) {
            file.stage = stage;
            files.list.push(file);
        }
        self.any.store(files.list.len(), SeqCst);
        self.over.notify_all();
    }

    /// Changes of files, by number, that are being carried out, or that the calling thread may not have
    /// consumed.
    fn unconsumed(&self) -> Vec<(InodeId, u64)> {
        if self.any.load(SeqCst) == 0 {
            return Vec::new();
        }
        let now = Instant::now();
        let is_one =
            |file: &mut File| !matches!(file.stage, Stage::Expected(_)) && file.is_behind_size_barrier(now);
        let mut files = self.files.lock();
        files.list.iter_mut().filter_map(|file| is_one(file).then_some((file.ino, file.number))).collect()
    }

    /// Waits until the kernel has consumed the replies to all changes so far of the files that `concerns`
    /// selects. Returns false if that took too long.
    pub(super) fn wait_until_consumed(&self, concerns: impl Fn(InodeId) -> bool) -> bool {
        let begun = Instant::now();
        // Without the lock: a client calls this module under its own locks, and `concerns` takes these.
        let mut left = self.unconsumed();
        left.retain(|(ino, _)| concerns(*ino));
        while !left.is_empty() {
            if begun.elapsed() >= CONSUMED_WAIT_MAX {
                return false;
            }
            thread::sleep(ATTRIBUTES_LOOK_EVERY);
            let now = self.unconsumed();
            left.retain(|change| now.contains(change));
        }
        true
    }

    /// Whether a thread has a request for attributes in flight.
    pub(super) fn is_asking(&self, tid: u32) -> bool {
        self.asking.lock().contains(&tid)
    }

    fn holds_up(&self, request: BlockedRequest, ino: InodeId) -> bool {
        self.any.load(SeqCst) > 0
            && !mistake("show a size that is changing")
            && self.look(&mut self.files.lock().list, request, ino)
    }

    /// Whether a file settles for such a request. Removes files that have settled.
    fn look(&self, files: &mut Vec<File>, request: BlockedRequest, ino: InodeId) -> bool {
        let now = Instant::now();
        let concerns = |file: &File| {
            file.ino == ino
                && match request {
                    BlockedRequest::Getattr(tid) => !file.is_taken_by(tid),
                    BlockedRequest::Lookup => !matches!(file.stage, Stage::Taken(..)),
                    BlockedRequest::Read => file.cut,
                }
        };
        files.retain_mut(|file| match concerns(file) {
            true => file.is_behind_size_barrier(now),
            false => file.is_in_time(now),
        });
        self.any.store(files.len(), SeqCst);
        files.iter().any(concerns)
    }

    /// Waits until a file has settled for such a request. Returns false if that took too long.
    fn wait(&self, request: BlockedRequest, ino: InodeId) -> bool {
        let until = Instant::now() + SETTLE_WAIT_MAX;
        let mut files = self.files.lock();
        while self.look(&mut files.list, request, ino) {
            let now = Instant::now();
            if now >= until {
                tracing::debug!(%ino, "a file did not settle in time: its size is shown while it changes");
                return false;
            }
            // No event reports that a thread has run, so it is polled.
            self.over.wait_until(&mut files, until.min(now + ATTRIBUTES_LOOK_EVERY));
        }
        true
    }
}

/// A write that may have to wait for other clients.
pub(crate) struct TrackedWrite<'a> {
    invalidator: &'a Invalidator,
    write: Write,
    /// The pages need not be invalidated because the write waits: that was done, or the write will be retried
    /// by a thread that may wait.
    has_waited: AtomicBool,
}

impl TrackedWrite<'_> {
    /// The write is about to be carried out (`begins`), or has failed. To be called while the file cannot be
    /// read.
    pub(crate) fn is_about_to(&self, begins: bool) {
        let TrackedWrite { invalidator, write, has_waited } = self;
        if begins {
            return invalidator.size_barrier.begin(write.ino, false);
        }
        invalidator.size_barrier.give_up(write.ino);
        if invalidator.was_invalidated(write.ino) && !has_waited.swap(true, SeqCst) {
            invalidator.is_waiting(Holds::Pages(*write));
        }
    }

    /// The write was carried out, and is about to be answered.
    pub(crate) fn is_written(&self, grew: bool) {
        if !grew && !self.invalidator.was_invalidated(self.write.ino) {
            self.invalidator.size_barrier.end(self.write.ino);
        }
    }
}

impl Invalidator {
    /// Tracks a write that is about to be carried out; `wait` says whether its thread may wait.
    pub(crate) fn track_write(&self, wait: Wait, write: Write) -> TrackedWrite<'_> {
        TrackedWrite { invalidator: self, write, has_waited: AtomicBool::new(wait == Wait::Never) }
    }

    /// The size of a file is about to be changed (`begins`), or the change has failed. To be called while the
    /// file cannot be read.
    pub(crate) fn is_about_to_resize(&self, ino: InodeId, begins: bool) {
        match begins {
            true => self.size_barrier.begin(ino, true),
            false => self.size_barrier.give_up(ino),
        }
    }

    /// A file is about to grow (`begins`), or that has failed. To be called while the file cannot be read.
    pub(crate) fn is_about_to_grow(&self, ino: InodeId, begins: bool) {
        match begins {
            true => self.size_barrier.begin(ino, false),
            false => self.size_barrier.give_up(ino),
        }
    }

    /// Waits until the kernel has consumed the replies to local changes of these files. Other clients are
    /// about to see them.
    pub(super) fn wait_for_sizes(&self, concerns: &dyn Fn(InodeId) -> bool) {
        if mistake("give a size back before the kernel has it") {
            return;
        }
        if !self.size_barrier.wait_until_consumed(concerns) {
            tracing::debug!("a change of a size was not consumed in time: the kernel may have the old one");
        }
    }

    /// A thread was answered that may have changed the size of a file.
    pub(crate) fn change_answered(&self, ino: InodeId, tid: u32) {
        self.size_barrier.reply_sent_to(ino, tid);
    }

    /// A change was carried out or has failed, and the calling thread was answered.
    pub(crate) fn is_done(&self, holds: Holds) {
        if let Holds::Pages(Write { ino, .. }) = holds {
            self.size_barrier.end(ino);
        }
    }

    /// A request for attributes has arrived. It is in flight until the returned value is dropped.
    pub(crate) fn unanswered(self: &Arc<Invalidator>, tid: u32) -> Unanswered {
        self.size_barrier.asking.lock().push(tid);
        Unanswered { invalidator: self.clone(), tid }
    }

    /// Waits while the size of the file that a LOOKUP has found is changing, and reads the attributes again.
    pub(crate) fn wait_for_size(
        &self,
        client: &Client,
        wait: Wait,
        found: Option<LookupResult>,
    ) -> Reply<Option<LookupResult>> {
        let Some(mut looked) = found else { return Ok(None) };
        let entry = &mut looked.entry;
        while self.is_changing(entry.ino) {
            if wait == Wait::Never {
                client.forget(entry.ino, 1);
                return Err(Failure::WouldBlock);
            }
            let has_changed = self.wait_until_changed(entry.ino);
            if let Ok(inode) = client.getattr(wait, entry.ino) {
                entry.inode = inode;
            }
            if !has_changed {
                break;
            }
        }
        Ok(Some(looked))
    }

    /// Whether GETATTR by a thread has to wait because the file settles. To be called after the attributes
    /// were read.
    pub(crate) fn is_behind_size_barrier(&self, ino: InodeId, tid: u32) -> bool {
        self.size_barrier.holds_up(BlockedRequest::Getattr(tid), ino)
    }

    /// Waits until GETATTR of a file may be answered. Returns false if that took too long.
    pub(crate) fn wait_until_settled(&self, ino: InodeId) -> bool {
        self.size_barrier.wait(BlockedRequest::Getattr(0), ino)
    }

    /// Whether LOOKUP of a file has to wait because the file settles.
    pub(crate) fn is_changing(&self, ino: InodeId) -> bool {
        self.size_barrier.holds_up(BlockedRequest::Lookup, ino)
    }

    /// Waits until LOOKUP of a file may be answered. Returns false if that took too long.
    pub(crate) fn wait_until_changed(&self, ino: InodeId) -> bool {
        self.size_barrier.wait(BlockedRequest::Lookup, ino)
    }

    /// Whether READ of a file has to wait because the file is being cut.
    pub(crate) fn is_being_cut(&self, ino: InodeId) -> bool {
        self.size_barrier.holds_up(BlockedRequest::Read, ino)
    }

    /// Waits until READ of a file may be answered. Returns false if that took too long.
    pub(crate) fn wait_until_cut(&self, ino: InodeId) -> bool {
        self.size_barrier.wait(BlockedRequest::Read, ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);
    /// No thread has this id.
    const NO_THREAD: u32 = u32::MAX;

    const ALL: [BlockedRequest; 3] =
        [BlockedRequest::Getattr(0), BlockedRequest::Lookup, BlockedRequest::Read];

    impl SizeBarrier {
        fn blocked(&self, ino: InodeId) -> Vec<BlockedRequest> {
            ALL.into_iter().filter(|request| self.holds_up(*request, ino)).collect()
        }
    }

    #[test]
    fn size_change_is_waited_for_until_its_thread_has_consumed_the_reply() {
        let size_barrier = SizeBarrier::default();
        size_barrier.expect(FILE);
        assert!(size_barrier.wait_until_consumed(|_| true), "a write may never come");
        size_barrier.begin(FILE, true);
        assert!(size_barrier.wait_until_consumed(|ino| ino == OTHER), "another file");
        assert!(!size_barrier.wait_until_consumed(|ino| ino == FILE), "it was not answered");
        size_barrier.reply_sent_to(FILE, NO_THREAD);
        assert!(size_barrier.wait_until_consumed(|ino| ino == FILE), "the thread has ended");
    }

    #[test]
    fn end_of_a_change_needs_its_begin() {
        let size_barrier = SizeBarrier::default();
        size_barrier.end(FILE);
        size_barrier.begin(FILE, false);
        size_barrier.end(OTHER);
        assert_eq!(size_barrier.blocked(FILE), [BlockedRequest::Getattr(0), BlockedRequest::Lookup]);
        assert_eq!(size_barrier.blocked(OTHER), []);
        size_barrier.begin(OTHER, true);
        size_barrier.begin(FILE, false);
        size_barrier.end(FILE);
        assert_eq!(size_barrier.blocked(FILE), []);
        assert_eq!(size_barrier.blocked(OTHER), ALL);
        size_barrier.end(OTHER);
        assert_eq!(size_barrier.any.load(SeqCst), 0);
    }

    #[test]
    fn a_write_that_never_comes_is_not_waited_for_long() {
        let size_barrier = SizeBarrier::default();
        let begun = Instant::now();
        size_barrier.expect(FILE);
        size_barrier.expect(OTHER);
        size_barrier.begin(OTHER, false);
        assert!(size_barrier.holds_up(BlockedRequest::Lookup, FILE) || begun.elapsed() >= SETTLE_WAIT_MAX);
        while size_barrier.holds_up(BlockedRequest::Lookup, FILE) {
            std::thread::yield_now();
        }
        assert!(begun.elapsed() >= SETTLE_WAIT_MAX);
        assert!(size_barrier.holds_up(BlockedRequest::Lookup, OTHER), "this write has begun");
        size_barrier.begin(OTHER, false);
        assert_eq!(size_barrier.any.load(SeqCst), 1, "the other file is removed");
    }

    #[test]
    fn a_file_whose_length_was_changed_settles_when_who_did_it_has_run() {
        let size_barrier = SizeBarrier::default();
        let me = nix::unistd::gettid().as_raw() as u32;
        size_barrier.reply_sent_to(FILE, me);
        assert_eq!(size_barrier.blocked(FILE), [], "it was not changed");
        size_barrier.begin(FILE, true);
        size_barrier.begin(OTHER, true);
        assert!(!size_barrier.wait(BlockedRequest::Read, FILE), "no thread has been answered");
        // The thread runs, and nothing shows that it has run since the reply.
        size_barrier.reply_sent_to(FILE, me);
        size_barrier.end(FILE);
        assert_eq!(size_barrier.blocked(FILE), [BlockedRequest::Getattr(0), BlockedRequest::Read]);
        assert!(!size_barrier.holds_up(BlockedRequest::Getattr(me), FILE), "it made the change itself");
        while size_barrier.holds_up(BlockedRequest::Read, FILE) {
            std::hint::spin_loop();
        }
        size_barrier.reply_sent_to(OTHER, NO_THREAD);
        assert!(size_barrier.wait(BlockedRequest::Read, OTHER), "the thread has ended");
        assert_eq!(size_barrier.any.load(SeqCst), 0);
    }

    #[test]
    fn write_that_fails_is_expected_again() {
        let size_barrier = SizeBarrier::default();
        size_barrier.begin(FILE, false);
        size_barrier.give_up(FILE);
        assert_eq!(size_barrier.blocked(FILE), []);
        size_barrier.expect(FILE);
        size_barrier.begin(FILE, false);
        for _ in 0..2 {
            size_barrier.give_up(FILE);
            assert_eq!(size_barrier.blocked(FILE), [BlockedRequest::Getattr(0), BlockedRequest::Lookup]);
        }
        size_barrier.end(FILE);
        assert_eq!(size_barrier.blocked(FILE), []);
    }

    #[test]
    fn thread_has_at_most_one_reply_to_consume() {
        let size_barrier = SizeBarrier::default();
        let me = nix::unistd::gettid().as_raw() as u32;
        for ino in 1..=100 {
            size_barrier.begin(InodeId(ino), false);
            size_barrier.reply_sent_to(InodeId(ino), me);
            assert_eq!(size_barrier.any.load(SeqCst), 1);
        }
    }

    #[test]
    fn change_begun_by_another_mount_thread_is_not_ended() {
        let size_barrier = SizeBarrier::default();
        let me = nix::unistd::gettid().as_raw() as u32;
        // The thread sends its replies late: the calling thread has made more changes by then.
        size_barrier.begin(OTHER, false);
        size_barrier.begin(FILE, false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                size_barrier.begin(FILE, true);
                size_barrier.begin(InodeId(9), false);
                size_barrier.reply_sent_to(InodeId(9), me);
            });
        });
        size_barrier.reply_sent_to(FILE, me);
        size_barrier.end(FILE);
        size_barrier.give_up(FILE);
        assert_eq!(size_barrier.blocked(FILE), ALL);
        size_barrier.reply_sent_to(OTHER, me);
        assert!(size_barrier.holds_up(BlockedRequest::Getattr(0), InodeId(9)), "this change began later");
    }
}
