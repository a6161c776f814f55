//! Write permits: the files that the kernel may write to.
//!
//! The kernel puts written bytes into its page cache before it sends WRITE, and readers of this mount see
//! them there. That is coherent only if the client already has the exclusive right to the file, and keeps it
//! until the WRITE has arrived. Before the first write the kernel requests `security.capability`
//! (`file_remove_privs`). The reply is the permit: it is sent when the client has the exclusive right. The
//! kernel remembers it (`S_NOSEC`), and sends no request before later writes.
//!
//! Before the right is given back the permit is revoked, so that the kernel requests it again
//! ([`KernelCache::hold_writes`](crate::KernelCache::hold_writes)). From then on until the right is gone no
//! permit is given: the file is *closed*.
//!
//! The kernel itself drops the permit when it refreshes the attributes. So it may also request it for a file
//! that has a permit here.

use super::recall::subject;
use super::retry_reservations::left_of;
use crate::limits::{HELD_AT_ONCE_MAX, WRITERS_MAX, WRITTEN_LATELY_MAX};
use rustc_hash::{FxHashMap, FxHashSet};
use shoal_types::{InodeId, Timestamp};
use shoal_wire::{Item, Recall};

/// The files with a permit, and those that are closed to new ones.
#[derive(Default, Debug)]
pub(crate) struct Writers {
    /// Files with a permit, each with the time of its last write or request.
    permits: FxHashMap<InodeId, Timestamp>,
    /// Recalled files and covers, each once for every recall that has closed it.
    closed: Vec<InodeId>,
    /// Closed files for which a writer waits for a permit.
    waiting: FxHashSet<InodeId>,
}

/// The inodes that a recall names.
struct Subjects {
    /// All inodes, sorted.
    all: Vec<InodeId>,
    /// The covers that are given back as a whole, sorted.
    covers: Vec<InodeId>,
}

impl Subjects {
    fn of(recall: &Recall) -> Subjects {
        let cover = |item: &Item| if let Item::Downgrade(cover) = item { Some(*cover) } else { None };
        let mut all: Vec<InodeId> = recall.items.iter().map(subject).collect();
        let mut covers: Vec<InodeId> = recall.items.iter().filter_map(cover).collect();
        all.sort_unstable();
        covers.sort_unstable();
        Subjects { all, covers }
    }

    fn has(&self, ino: InodeId) -> bool {
        self.all.binary_search(&ino).is_ok()
    }

    fn covers(&self, cover: InodeId) -> bool {
        self.covers.binary_search(&cover).is_ok()
    }
}

impl Writers {
    /// The kernel is given the permit: from now on it writes without a request.
    pub(super) fn may_write(&mut self, ino: InodeId, now: Timestamp) {
        if self.permits.len() >= WRITERS_MAX && !self.permits.contains_key(&ino) {
            self.forget_older_half();
        }
        self.permits.insert(ino, now);
    }

    /// Forgets the older half of the permits. A later write to such a file is treated as one without.
    fn forget_older_half(&mut self) {
        let mut times: Vec<Timestamp> = self.permits.values().copied().collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.permits.retain(|_, at| *at > median);
    }

    /// A write to the file has arrived.
    pub(super) fn has_written(&mut self, ino: InodeId, now: Timestamp) {
        if let Some(at) = self.permits.get_mut(&ino) {
            *at = now;
        }
    }

    /// Whether the file has a permit. Then the exclusive right has been here ever since.
    pub(crate) fn has_permit(&self, ino: InodeId) -> bool {
        self.permits.contains_key(&ino)
    }

    /// The kernel has forgotten the inode, or its attributes were invalidated.
    pub(crate) fn forget(&mut self, ino: InodeId) {
        self.permits.remove(&ino);
    }

    /// Gives no more permits for what is recalled. Returns the files whose permit has to be revoked in the
    /// kernel. Of the files under a recalled cover these are only those that were written to lately.
    pub(super) fn close(
        &mut self,
        recall: &Recall,
        cover: impl Fn(InodeId) -> Option<InodeId>,
        now: Timestamp,
    ) -> Vec<InodeId> {
        let subjects = Subjects::of(recall);
        self.closed.extend(&subjects.all);
        // A time in the future counts: the clock may have been set back.
        let is_late = |at: Timestamp| at >= now || left_of(WRITTEN_LATELY_MAX, at, now).is_some();
        let known = |ino: &InodeId| Some((*self.permits.get(ino)?, *ino));
        let mut found: Vec<(Timestamp, InodeId)> = subjects.all.iter().filter_map(known).collect();
        if !subjects.covers.is_empty() {
            let is_under = |ino| cover(ino).is_some_and(|cover| subjects.covers(cover)) && !subjects.has(ino);
            let under = self.permits.iter().filter(|(ino, at)| is_late(**at) && is_under(**ino));
            found.extend(under.map(|(ino, at)| (*at, *ino)));
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, ino)| ino).take(HELD_AT_ONCE_MAX).collect()
    }

    /// The right has been given back: a waiting writer may acquire it again.
    pub(super) fn open(&mut self, recall: &Recall, cover: impl Fn(InodeId) -> Option<InodeId>) {
        let subjects = Subjects::of(recall);
        for subject in &subjects.all {
            if let Some(at) = self.closed.iter().position(|closed| closed == subject) {
                self.closed.swap_remove(at);
            }
            self.permits.remove(subject);
        }
        if !subjects.covers.is_empty() {
            // The cover of a file that is not cached is unknown, so its permit goes too.
            let stays = |ino| cover(ino).is_some_and(|cover| !subjects.covers(cover));
            self.permits.retain(|ino, _| stays(*ino));
        }
        if self.closed.is_empty() {
            self.waiting.clear();
        }
    }

    /// Whether this file, or the cover it belongs to, is closed.
    pub(super) fn is_closed(&self, ino: InodeId, cover: Option<InodeId>) -> bool {
        !self.closed.is_empty() && self.closed.iter().any(|closed| *closed == ino || Some(*closed) == cover)
    }

    /// A writer waits for a permit of a closed file.
    pub(super) fn note_waiter(&mut self, ino: InodeId) {
        self.waiting.insert(ino);
    }

    /// Whether a writer waits for a permit of this closed file. Then no other thread writes to it: the kernel
    /// sent the request under the inode lock.
    pub(crate) fn has_waiter(&self, ino: InodeId) -> bool {
        self.waiting.contains(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(7);
    const ONE: InodeId = InodeId(8);
    const OTHER: InodeId = InodeId(9);
    const ELSEWHERE: InodeId = InodeId(10);

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn recall(item: Item) -> Recall {
        Recall { id: 1, after: Vec::new(), items: vec![item] }
    }

    fn cover(ino: InodeId) -> Option<InodeId> {
        Some(if ino == ELSEWHERE { ELSEWHERE } else { DIR })
    }

    #[test]
    fn the_kernel_is_made_to_ask_about_what_it_may_be_writing_to() {
        let mut writers = Writers::default();
        writers.may_write(ONE, at(1));
        writers.may_write(OTHER, at(50));
        writers.may_write(ELSEWHERE, at(50));
        let all = recall(Item::Downgrade(DIR));
        assert_eq!(writers.close(&all, cover, at(50)), [OTHER], "the other was written to long ago");
        assert!(writers.has_permit(ONE) && writers.has_permit(OTHER), "the right has not been given back");
        assert!(writers.is_closed(ONE, Some(DIR)) && !writers.is_closed(ELSEWHERE, Some(ELSEWHERE)));
        writers.open(&all, cover);
        assert!(!writers.is_closed(ONE, Some(DIR)));
        assert!(!writers.has_permit(ONE) && !writers.has_permit(OTHER));
        assert!(writers.has_permit(ELSEWHERE));
        // A file that is recalled by itself is included, however long ago it was written to.
        let one = recall(Item::Release(ELSEWHERE));
        assert_eq!(writers.close(&one, cover, at(1000)), [ELSEWHERE]);
        writers.open(&one, cover);
        assert!(writers.close(&one, cover, at(1000)).is_empty());
    }

    #[test]
    fn what_is_closed_twice_is_open_when_both_are_over() {
        let mut writers = Writers::default();
        let (all, one) = (recall(Item::Downgrade(DIR)), recall(Item::Release(ONE)));
        writers.close(&one, cover, at(1));
        writers.close(&all, cover, at(1));
        writers.close(&one, cover, at(1));
        writers.note_waiter(ONE);
        writers.open(&one, cover);
        assert!(writers.is_closed(ONE, Some(DIR)) && writers.has_waiter(ONE));
        writers.open(&all, cover);
        assert!(writers.is_closed(ONE, Some(DIR)) && !writers.is_closed(OTHER, Some(DIR)));
        writers.open(&one, cover);
        assert!(!writers.is_closed(ONE, Some(DIR)) && !writers.has_waiter(ONE));
    }

    #[test]
    fn most_recently_written_files_are_kept_if_there_are_too_many() {
        let mut writers = Writers::default();
        let count = WRITERS_MAX as u64 + 1;
        for n in 0..count {
            let ino = InodeId(100 + n);
            writers.may_write(ino, Timestamp { secs: 1, nanos: n as u32 });
        }
        assert!(writers.permits.len() <= WRITERS_MAX);
        assert!(!writers.has_permit(InodeId(100)));
        let asked = writers.close(&recall(Item::Downgrade(DIR)), cover, at(1));
        assert_eq!(asked.len(), HELD_AT_ONCE_MAX);
        assert_eq!(asked[0], InodeId(100 + count - 1));
    }

    #[test]
    fn file_that_is_written_to_keeps_its_permit() {
        let mut writers = Writers::default();
        writers.has_written(ONE, at(1));
        assert!(!writers.has_permit(ONE), "no permit was requested");
        writers.may_write(ONE, at(1));
        writers.has_written(ONE, at(90));
        assert_eq!(writers.close(&recall(Item::Downgrade(DIR)), cover, at(90)), [ONE]);
        writers.forget(ONE);
        assert!(!writers.has_permit(ONE));
    }
}
