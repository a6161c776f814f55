//! Hides appended bytes that the kernel puts at the wrong offset of its page cache (`docs/KERNEL_CACHE.md`,
//! hazard 13).
//!
//! `generic_write_checks` takes the end of the file before the kernel requests `security.capability` (see
//! [`write_gate`](super::write_gate)), and other clients may append while the writer waits for that reply. So
//! the file is invalidated before the reply is sent. From then on until the write is carried out no reply
//! carries the size (see [`size_barrier`](super::size_barrier)).
//!
//! That leaves threads that got the size before and are about to read: they fill a page, into which the
//! kernel then puts the bytes. Such threads have sent GETATTR or READ recently. So each of them is waited for
//! until it sleeps outside of a read, or has run for long enough. If one has read by then, the file is
//! invalidated once more.

use super::getattr_inflight::ReplyConsumer;
use super::{Invalidator, whole};
use crate::host::HostRef;
use crate::limits::{APPEND_WAIT_MAX, ATTRIBUTES_LOOK_EVERY, LOOK_WAIT_MAX, READERS_KEPT_MAX};
use shoal_runtime::channel::{Receiver, RecvTimeoutError, bounded};
use shoal_runtime::planted::mistake;
use shoal_runtime::thread::Builder;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::collections::{BTreeSet, VecDeque};

/// A thread that has read a recently invalidated file.
#[derive(Debug)]
struct Reader {
    number: u64,
    ino: InodeId,
    tid: u32,
    at: Instant,
}

/// The last threads that read recently invalidated files.
#[derive(Default, Debug)]
pub(super) struct Readers {
    lately: VecDeque<Reader>,
    last_number: u64,
}

impl Readers {
    pub(super) fn reads(&mut self, ino: InodeId, tid: u32) {
        if self.lately.len() >= READERS_KEPT_MAX {
            self.lately.pop_front();
        }
        self.last_number += 1;
        self.lately.push_back(Reader { number: self.last_number, ino, tid, at: Instant::now() });
    }

    /// Whether a thread has read the file after the read with this number.
    fn have_read_since(&self, ino: InodeId, number: u64) -> bool {
        self.lately.iter().any(|reader| reader.ino == ino && reader.number > number)
    }

    fn threads(&self, ino: InodeId) -> impl Iterator<Item = u32> {
        let lately = self.lately.iter().filter(move |reader| reader.ino == ino);
        lately.filter(|reader| reader.at.elapsed() < LOOK_WAIT_MAX).map(|reader| reader.tid)
    }
}

/// A thread that may be about to read.
struct Waited {
    consumer: ReplyConsumer,
    /// Receives whether it is in a read of the file.
    probe: Option<Receiver<bool>>,
}

impl Waited {
    fn now(host: &HostRef, tid: u32) -> Waited {
        Waited { consumer: ReplyConsumer::now(host, tid), probe: None }
    }

    /// Whether the thread sleeps in a read of the file. Also true as long as that is not known.
    ///
    /// Another thread reads `/proc/TID/syscall`, because that takes `exec_update_lock`. execve(2) holds this
    /// lock while it closes files, and there it may wait for any mount, this one included.
    fn is_about_to_read(&mut self, ino: InodeId) -> bool {
        let (tid, host) = (self.consumer.tid, &self.consumer.host);
        let probe = self.probe.get_or_insert_with(|| {
            let host = host.clone();
            probe(move || host.reads(tid, ino))
        });
        let outcome = probe.recv_timeout(ATTRIBUTES_LOOK_EVERY);
        if outcome != Err(RecvTimeoutError::Timeout) {
            self.probe = None;
        }
        outcome.unwrap_or(true)
    }
}

/// Answers a question on a thread of its own.
fn probe(question: impl FnOnce() -> bool + Send + 'static) -> Receiver<bool> {
    let (tell, answer) = bounded(1);
    let ask = move || tell.send(question()).unwrap_or_default();
    if let Err(error) = Builder::new().name("probe".into()).spawn(ask) {
        tracing::debug!(%error, "cannot start a thread to read the state of a reader");
    }
    answer
}

impl Invalidator {
    /// The kernel is about to get the permit to append to a file to which other clients may have appended.
    /// The client has the right to change the file.
    pub(crate) fn is_about_to_append(&self, ino: InodeId) {
        if mistake("append without invalidating the file") {
            return;
        }
        let mut begun = None;
        loop {
            self.size_barrier.expect(ino);
            self.record_invalidations(&[ino]);
            let known = self.state.lock().readers.last_number;
            self.send(&whole(&[ino]));
            // A READ in flight may have delayed the notification for longer than this.
            let in_time = self.wait_for_readers(ino, *begun.get_or_insert_with(Instant::now));
            if !in_time || !self.state.lock().readers.have_read_since(ino, known) {
                break;
            }
        }
        self.size_barrier.expect(ino);
    }

    /// The bytes were stored at another offset than that at which the page cache has them. The client has the
    /// right to change the file and keeps it: the rest of the program's write may be in flight.
    pub(crate) fn has_appended_elsewhere(&self, ino: InodeId) {
        if mistake("keep the pages of a misplaced append") {
            return;
        }
        self.record_invalidations(&[ino]);
        self.send(&whole(&[ino]));
    }

    /// Waits until threads that recently sent GETATTR or READ of the file have consumed the replies. Returns
    /// false if that took too long.
    fn wait_for_readers(&self, ino: InodeId, begun: Instant) -> bool {
        if mistake("append without waiting for readers") {
            return true;
        }
        let state = self.state.lock();
        let threads: BTreeSet<u32> = state.getattrs.threads(ino).chain(state.readers.threads(ino)).collect();
        drop(state);
        let mut waited: Vec<Waited> = threads.into_iter().map(|tid| Waited::now(&self.host, tid)).collect();
        loop {
            let state = self.state.lock();
            let (is_read, ended) = (state.is_read(ino), state.ended);
            drop(state);
            // Other readers may sleep until a READ in flight is answered.
            if !is_read {
                waited.retain_mut(|thread| {
                    let is_asking = self.size_barrier.is_asking(thread.consumer.tid);
                    !thread.consumer.has_consumed() || (!is_asking && thread.is_about_to_read(ino))
                });
            }
            if ended || (!is_read && waited.is_empty()) {
                return true;
            }
            if begun.elapsed() >= APPEND_WAIT_MAX {
                return false;
            }
            shoal_runtime::thread::sleep(ATTRIBUTES_LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);

    #[test]
    fn reader_whose_state_cannot_be_read_does_not_block_the_writer() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let hung = probe(move || held.recv().is_ok());
        let mut waited = Waited { probe: Some(hung), ..Waited::now(&HostRef::default(), std::process::id()) };
        assert!(waited.is_about_to_read(FILE) && waited.is_about_to_read(FILE), "it may read");
        assert!(waited.probe.is_some(), "one probe is enough");
        drop(release);
        while waited.is_about_to_read(FILE) {}
        assert!(waited.probe.is_none());
    }

    #[test]
    fn who_has_read_lately_is_known() {
        let mut readers = Readers::default();
        readers.reads(FILE, 1);
        readers.reads(OTHER, 2);
        let known = readers.last_number;
        assert!(!readers.have_read_since(FILE, known));
        readers.reads(OTHER, 1);
        assert!(!readers.have_read_since(FILE, known) && readers.have_read_since(OTHER, known));
        readers.reads(FILE, 3);
        assert!(readers.have_read_since(FILE, known));
        assert_eq!(readers.threads(FILE).collect::<Vec<_>>(), [1, 3]);
        for tid in 0..READERS_KEPT_MAX as u32 {
            readers.reads(OTHER, tid);
        }
        assert_eq!(readers.threads(FILE).count(), 0, "its entries were replaced");
        assert_eq!(readers.lately.len(), READERS_KEPT_MAX);
    }
}
