//! Has nobody see what the kernel is about to put in the wrong place.
//!
//! Where a program appends, the kernel takes the end of the file from its cache, asks whether it may write (see [`ask`](super::ask)), and puts the bytes there. Others may
//! have appended while it waited. So what it has of the file is dropped before it is answered, and from then on until the write is carried out
//! nobody is told the length (see [`settle`](super::settle)).
//!
//! That leaves whoever had been told before, and is about to read: then the kernel fills a page anew, and the bytes are put into it. Those who do
//! have asked or read lately. So it is waited until each of them sleeps, but not because it reads, or has run for long enough; and if anybody has read by then, all is dropped once more.

use super::asked::Looker;
use super::{Dropper, whole};
use crate::limits::{APPEND_WAIT_MAX, ATTRIBUTES_LOOK_EVERY, LOOK_WAIT_MAX, READERS_KEPT_MAX};
use crate::thread::reads;
use shoal_types::InodeId;
use std::collections::{HashSet, VecDeque};
use std::time::Instant;

/// A thread reads a file that is dropped now and then.
#[derive(Debug)]
struct Reader {
    number: u64,
    ino: InodeId,
    tid: u32,
    at: Instant,
}

/// The last such threads.
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

    /// Whether anybody reads it after that many had in all.
    fn have_read_since(&self, ino: InodeId, number: u64) -> bool {
        self.lately.iter().any(|reader| reader.ino == ino && reader.number > number)
    }

    fn threads(&self, ino: InodeId) -> impl Iterator<Item = u32> {
        let lately = self.lately.iter().filter(move |reader| reader.ino == ino);
        lately.filter(|reader| reader.at.elapsed() < LOOK_WAIT_MAX).map(|reader| reader.tid)
    }
}

impl Dropper {
    /// The kernel is about to be let append to a file to which others may have appended. Who writes has the right to.
    pub(crate) fn is_about_to_append(&self, ino: InodeId) {
        let begun = Instant::now();
        loop {
            self.settling.expect(ino);
            self.note_drops(&[ino]);
            let known = self.state.lock().readers.last_number;
            self.send(&whole(&[ino]));
            let in_time = self.wait_for_readers(ino, begun);
            if !in_time || !self.state.lock().readers.have_read_since(ino, known) {
                break;
            }
        }
        self.settling.expect(ino);
    }

    /// What was appended is somewhere else than where the kernel has put it. The right to write is here, and stays: the rest of what the program writes may be
    /// on its way.
    pub(crate) fn has_appended_elsewhere(&self, ino: InodeId) {
        self.note_drops(&[ino]);
        self.send(&whole(&[ino]));
    }

    /// Whether a thread sleeps because it reads a file, and we have not heard of that yet.
    fn is_about_to_read(&self, tid: u32, ino: InodeId) -> bool {
        !self.settling.is_asking(tid) && reads(tid, ino)
    }

    /// Waits until whoever was told something of a file not long ago has made of it what it will. Answers whether that did not take too long.
    fn wait_for_readers(&self, ino: InodeId, begun: Instant) -> bool {
        let state = self.state.lock();
        let threads: HashSet<u32> = state.questions.threads(ino).chain(state.readers.threads(ino)).collect();
        drop(state);
        let mut lookers: Vec<Looker> = threads.into_iter().map(Looker::now).collect();
        loop {
            let state = self.state.lock();
            let (is_read, ended) = (state.is_read(ino), state.ended);
            drop(state);
            // Others may sleep until that has been answered.
            if !is_read {
                lookers.retain_mut(|looker| !looker.has_looked() || self.is_about_to_read(looker.tid, ino));
            }
            if ended || (!is_read && lookers.is_empty()) {
                return true;
            }
            if begun.elapsed() >= APPEND_WAIT_MAX {
                return false;
            }
            std::thread::sleep(ATTRIBUTES_LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);

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
        assert_eq!(readers.threads(FILE).count(), 0, "it is forgotten");
        assert_eq!(readers.lately.len(), READERS_KEPT_MAX);
    }
}
