//! Writes that the kernel has put into its cache before they could be carried out.
//!
//! Others may have changed the file meanwhile, so what the kernel has around the bytes may be old, and where a program appends, the bytes may be at the wrong
//! place. The pages are dropped once more when the write has been carried out, and before it is answered
//! ([`UnderWay::carried_out`](super::UnderWay::carried_out)). Between the two the file is longer, and the kernel may have nothing but zeros there: so nobody
//! is told its length. The write is *settling*.
//!
//! Where a program appends, the file settles from earlier on: from before the kernel is answered that asks before it writes (see [`append`](super::append)).
//!
//! A file also settles while its length is changed by truncate(2) and the like, of which the kernel knows when the thread that does it has its answer and runs:
//! until then it would show zeros up to the length from before. So even who has the kernel read waits until that thread has been seen to run.

use super::asked::Looker;
use super::{Dropper, Holds, Write};
use crate::limits::{ATTRIBUTES_LOOK_EVERY, SETTLE_WAIT_MAX};
use parking_lot::{Condvar, Mutex};
use shoal_types::InodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Files to which such writes are.
#[derive(Default)]
pub(super) struct Settling {
    any: AtomicUsize,
    files: Mutex<Vec<File>>,
    over: Condvar,
    /// Threads that have asked for the attributes of something and are not answered yet, each as often.
    asking: Mutex<Vec<u32>>,
}

/// A thread has asked, and is about to be answered when this is dropped.
pub(crate) struct Unanswered {
    stale: Arc<Dropper>,
    tid: u32,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let mut asking = self.stale.settling.asking.lock();
        if let Some(at) = asking.iter().position(|tid| *tid == self.tid) {
            asking.swap_remove(at);
        }
    }
}

struct File {
    ino: InodeId,
    stage: Stage,
}

/// What a file settles for.
enum Stage {
    /// A write is expected until then, and may never come.
    Expected(Instant),
    /// A write has come.
    Written,
    /// The length is being changed.
    Cut,
    /// It was, and the thread that did it takes that in, which is not waited for longer than this.
    Taken(Looker, Instant),
}

impl File {
    /// Whether it may be settling.
    fn is_in_time(&self, now: Instant) -> bool {
        match &self.stage {
            Stage::Expected(until) | Stage::Taken(_, until) => now < *until,
            Stage::Written | Stage::Cut => true,
        }
    }

    fn is_settling(&mut self, now: Instant) -> bool {
        let has_looked = match &mut self.stage {
            Stage::Taken(by, _) => by.has_looked(),
            _ => false,
        };
        self.is_in_time(now) && !has_looked
    }

    fn is_cut(&self) -> bool {
        matches!(self.stage, Stage::Cut | Stage::Taken(..))
    }
}

impl Settling {
    /// A write has come.
    fn begin(&self, ino: InodeId) {
        self.set(ino, Stage::Written);
    }

    /// The kernel is about to write, as far as it is known. From now on until it has, or it takes too long.
    pub(super) fn expect(&self, ino: InodeId) {
        self.set(ino, Stage::Expected(Instant::now() + SETTLE_WAIT_MAX));
    }

    /// A file is changed by one at a time.
    fn set(&self, ino: InodeId, stage: Stage) {
        let mut files = self.files.lock();
        let now = Instant::now();
        files.retain(|known| known.ino != ino && known.is_in_time(now));
        files.push(File { ino, stage });
        self.any.store(files.len(), SeqCst);
    }

    /// The length was changed by a thread, which has been answered.
    fn is_cut(&self, ino: InodeId, tid: u32) {
        if self.any.load(SeqCst) == 0 {
            return;
        }
        let mut files = self.files.lock();
        if let Some(file) = files.iter_mut().find(|file| file.ino == ino && file.is_cut()) {
            file.stage = Stage::Taken(Looker::now(tid), Instant::now() + SETTLE_WAIT_MAX);
        }
    }

    /// If it has begun.
    pub(super) fn end(&self, ino: InodeId) {
        if self.any.load(SeqCst) == 0 {
            return;
        }
        let mut files = self.files.lock();
        if let Some(at) = files.iter().position(|file| file.ino == ino) {
            files.swap_remove(at);
            self.any.store(files.len(), SeqCst);
            self.over.notify_all();
        }
    }

    /// Whether a thread has asked and is not answered yet.
    pub(super) fn is_asking(&self, tid: u32) -> bool {
        self.asking.lock().contains(&tid)
    }

    fn has(&self, ino: InodeId, which: Which) -> bool {
        self.any.load(SeqCst) > 0 && self.look(&mut self.files.lock(), ino, which)
    }

    /// Leaves out what has settled.
    fn look(&self, files: &mut Vec<File>, ino: InodeId, which: Which) -> bool {
        let now = Instant::now();
        files.retain_mut(|file| match file.ino == ino {
            true => file.is_settling(now),
            false => file.is_in_time(now),
        });
        self.any.store(files.len(), SeqCst);
        files.iter().any(|file| file.ino == ino && (which == Which::Any || file.is_cut()))
    }

    /// Waits until a file is not settling any more. Answers whether that did not take too long.
    fn wait(&self, ino: InodeId, which: Which) -> bool {
        let until = Instant::now() + SETTLE_WAIT_MAX;
        let mut files = self.files.lock();
        while self.look(&mut files, ino, which) {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            // Nobody tells that a thread has run.
            self.over.wait_until(&mut files, until.min(now + ATTRIBUTES_LOOK_EVERY));
        }
        true
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Any,
    /// Only those whose length is changed.
    Cut,
}

/// A write that waits for others, perhaps.
pub(crate) struct Late<'a> {
    stale: &'a Dropper,
    write: Write,
    has_waited: AtomicBool,
}

impl Late<'_> {
    /// It is about to be carried out, or was not after all. To be called when nobody can look at the file.
    pub(crate) fn is_about_to(&self, begins: bool) {
        let Late { stale, write, has_waited } = self;
        if !begins {
            stale.settling.end(write.ino);
        }
        if !stale.was_dropped(write.ino) {
            return;
        }
        if begins {
            stale.settling.begin(write.ino);
        } else if !has_waited.swap(true, SeqCst) {
            stale.is_waiting(Holds::Pages(*write));
        }
    }
}

impl Dropper {
    /// A write is to be carried out by a thread that may wait.
    pub(crate) fn late(&self, write: Write) -> Late<'_> {
        Late { stale: self, write, has_waited: AtomicBool::new(false) }
    }

    /// A change was carried out, or will not be.
    pub(crate) fn is_done(&self, holds: Holds) {
        if let Holds::Pages(Write { ino, .. }) = holds {
            self.settling.end(ino);
        }
    }

    /// A thread has asked for attributes, and has to wait for the answer.
    pub(crate) fn unanswered(self: &Arc<Dropper>, tid: u32) -> Unanswered {
        self.settling.asking.lock().push(tid);
        Unanswered { stale: self.clone(), tid }
    }

    /// Whether what is known of a file by now is not to be told yet. To be asked after that was looked at.
    pub(crate) fn is_settling(&self, ino: InodeId) -> bool {
        self.settling.has(ino, Which::Any)
    }

    /// Waits until it may be told. Answers whether that did not take too long.
    pub(crate) fn wait_until_settled(&self, ino: InodeId) -> bool {
        let is_settled = self.settling.wait(ino, Which::Any);
        if !is_settled {
            tracing::debug!(%ino, "a file is told of while it is written to");
        }
        is_settled
    }

    /// The length of a file is about to be changed, or was not after all. To be called when nobody can look at the file.
    pub(crate) fn is_about_to_be_cut(&self, ino: InodeId, begins: bool) {
        match begins {
            true => self.settling.set(ino, Stage::Cut),
            false => self.settling.end(ino),
        }
    }

    /// The thread that has changed the length of a file, if it has, was answered.
    pub(super) fn is_cut(&self, ino: InodeId, tid: u32) {
        self.settling.is_cut(ino, tid);
    }

    /// Whether the length of a file was changed and the kernel does not know that yet. To be asked after it was read.
    pub(crate) fn is_being_cut(&self, ino: InodeId) -> bool {
        self.settling.has(ino, Which::Cut)
    }

    /// Waits until it does. Answers whether that did not take too long.
    pub(crate) fn wait_until_cut(&self, ino: InodeId) -> bool {
        let is_settled = self.settling.wait(ino, Which::Cut);
        if !is_settled {
            tracing::debug!(%ino, "a file is read while its length is changed");
        }
        is_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);
    /// No thread has this number.
    const NO_THREAD: u32 = u32::MAX;

    #[test]
    fn what_has_not_begun_does_not_end() {
        let settling = Settling::default();
        settling.end(FILE);
        settling.begin(FILE);
        settling.end(OTHER);
        assert!(settling.has(FILE, Which::Any) && !settling.has(OTHER, Which::Any));
        settling.begin(OTHER);
        settling.begin(FILE);
        settling.end(FILE);
        assert!(!settling.has(FILE, Which::Any) && settling.has(OTHER, Which::Any));
        settling.end(OTHER);
        assert_eq!(settling.any.load(SeqCst), 0);
    }

    #[test]
    fn a_write_that_never_comes_is_not_waited_for_long() {
        let settling = Settling::default();
        let begun = Instant::now();
        settling.expect(FILE);
        settling.expect(OTHER);
        settling.begin(OTHER);
        assert!(settling.has(FILE, Which::Any) || begun.elapsed() >= SETTLE_WAIT_MAX);
        while settling.has(FILE, Which::Any) {
            std::thread::yield_now();
        }
        assert!(begun.elapsed() >= SETTLE_WAIT_MAX);
        assert!(settling.has(OTHER, Which::Any), "it has come");
        settling.begin(OTHER);
        assert_eq!(settling.any.load(SeqCst), 1, "the other is forgotten");
    }

    #[test]
    fn a_file_whose_length_was_changed_settles_when_who_did_it_has_run() {
        let settling = Settling::default();
        settling.begin(FILE);
        assert!(settling.has(FILE, Which::Any) && !settling.has(FILE, Which::Cut));
        settling.is_cut(FILE, 1);
        assert!(settling.has(FILE, Which::Any) && !settling.has(FILE, Which::Cut), "it was written to");
        settling.set(FILE, Stage::Cut);
        settling.set(OTHER, Stage::Cut);
        assert!(!settling.wait(FILE, Which::Cut), "nobody has been answered");
        // It runs, and nothing shows that it has since it was answered.
        settling.is_cut(FILE, nix::unistd::gettid().as_raw() as u32);
        assert!(settling.has(FILE, Which::Cut) && settling.has(OTHER, Which::Cut));
        while settling.has(FILE, Which::Cut) {
            std::hint::spin_loop();
        }
        settling.is_cut(OTHER, NO_THREAD);
        assert!(settling.wait(OTHER, Which::Cut), "who did it is gone");
        assert_eq!(settling.any.load(SeqCst), 0);
    }
}
