//! Writes that the kernel has put into its cache before they could be carried out.
//!
//! Others may have changed the file meanwhile, so what the kernel has around the bytes may be old, and where a program appends, the bytes may be at the wrong
//! place. The pages are dropped once more when the write has been carried out, and before it is answered
//! ([`UnderWay::carried_out`](super::UnderWay::carried_out)). Between the two the file is longer, and the kernel may have nothing but zeros there: so nobody
//! is told its length. The write is *settling*.
//!
//! Where a program appends, the file settles from earlier on: from before the kernel is answered that asks before it writes (see [`append`](super::append)).

use super::{Dropper, Holds, Write};
use crate::limits::SETTLE_WAIT_MAX;
use parking_lot::{Condvar, Mutex};
use shoal_types::InodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Files to which such writes are.
#[derive(Default, Debug)]
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

#[derive(Debug)]
struct File {
    ino: InodeId,
    /// So long a write is expected, which may never come; `None`: it has.
    until: Option<Instant>,
}

impl File {
    fn is_settling(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Settling {
    /// A write has come.
    fn begin(&self, ino: InodeId) {
        self.set(File { ino, until: None });
    }

    /// The kernel is about to write, as far as it is known. From now on until it has, or it takes too long.
    pub(super) fn expect(&self, ino: InodeId) {
        self.set(File { ino, until: Some(Instant::now() + SETTLE_WAIT_MAX) });
    }

    /// A file is written to by one at a time.
    fn set(&self, file: File) {
        let mut files = self.files.lock();
        let now = Instant::now();
        files.retain(|known| known.ino != file.ino && known.is_settling(now));
        files.push(file);
        self.any.store(files.len(), SeqCst);
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

    fn has(&self, ino: InodeId) -> bool {
        self.any.load(SeqCst) > 0 && has(&self.files.lock(), ino)
    }
}

fn has(files: &[File], ino: InodeId) -> bool {
    let now = Instant::now();
    files.iter().any(|file| file.ino == ino && file.is_settling(now))
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
        self.settling.has(ino)
    }

    /// Waits until it may be told. Answers whether that did not take too long.
    pub(crate) fn wait_until_settled(&self, ino: InodeId) -> bool {
        let until = Instant::now() + SETTLE_WAIT_MAX;
        let mut files = self.settling.files.lock();
        while has(&files, ino) {
            if self.settling.over.wait_until(&mut files, until).timed_out() {
                tracing::debug!(%ino, "a file is told of while it is written to");
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);

    #[test]
    fn what_has_not_begun_does_not_end() {
        let settling = Settling::default();
        settling.end(FILE);
        settling.begin(FILE);
        settling.end(OTHER);
        assert!(settling.has(FILE) && !settling.has(OTHER));
        settling.begin(OTHER);
        settling.begin(FILE);
        settling.end(FILE);
        assert!(!settling.has(FILE) && settling.has(OTHER));
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
        assert!(settling.has(FILE) || begun.elapsed() >= SETTLE_WAIT_MAX);
        while settling.has(FILE) {
            std::thread::yield_now();
        }
        assert!(begun.elapsed() >= SETTLE_WAIT_MAX);
        assert!(settling.has(OTHER), "it has come");
        settling.begin(OTHER);
        assert_eq!(settling.any.load(SeqCst), 1, "the other is forgotten");
    }
}
