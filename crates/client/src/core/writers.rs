//! Files that the kernel may write to without asking.
//!
//! What a program writes the kernel puts into its own cache before it sends it, and shows it there to whoever reads. That is right only if nobody else can
//! come in between: if the right to change the file is here already, and stays until the write has come. The kernel asks before it writes to a file, once, and
//! then writes as often as it likes until it is made to ask again. So it is answered when the right is here, and before the right is given back it is made to ask
//! ([`KernelCache::hold_writes`](crate::KernelCache::hold_writes)). From then on until the right is gone nobody is answered: the file is *closed*.
//!
//! The kernel forgets by itself that it has asked when it looks at the attributes anew. So a file that is noted here may be asked about all the same.

use super::recall::subject;
use super::retries::left_of;
use crate::limits::{HELD_AT_ONCE_MAX, WRITERS_MAX, WRITTEN_LATELY_MAX};
use rustc_hash::{FxHashMap, FxHashSet};
use shoal_types::{InodeId, Timestamp};
use shoal_wire::{Item, Recall};

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Writers {
    /// When each was written to last, or asked about.
    unasked: FxHashMap<InodeId, Timestamp>,
    /// Files, or what they are counted under, each as often as it is closed.
    closed: Vec<InodeId>,
    /// Files of these that somebody is about to write to, and waits.
    held_up: FxHashSet<InodeId>,
}

/// What a recall is about.
struct Subjects {
    /// All of it, in order.
    all: Vec<InodeId>,
    /// Those of which all that is counted under them is given back, in order.
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
    /// The kernel is about to be answered: from now on it writes without asking.
    pub(super) fn may_write(&mut self, ino: InodeId, now: Timestamp) {
        if self.unasked.len() >= WRITERS_MAX && !self.unasked.contains_key(&ino) {
            self.forget_older_half();
        }
        self.unasked.insert(ino, now);
    }

    /// Those that are forgotten are written to as if nobody had asked.
    fn forget_older_half(&mut self) {
        let mut times: Vec<Timestamp> = self.unasked.values().copied().collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.unasked.retain(|_, at| *at > median);
    }

    /// It has written.
    pub(super) fn has_written(&mut self, ino: InodeId, now: Timestamp) {
        if let Some(at) = self.unasked.get_mut(&ino) {
            *at = now;
        }
    }

    /// Whether what the kernel writes to a file was asked for, with a right that has been here since.
    pub(crate) fn may_write_unasked(&self, ino: InodeId) -> bool {
        self.unasked.contains_key(&ino)
    }

    /// The kernel does not know the file any more, or what it knew of it was dropped.
    pub(crate) fn forget(&mut self, ino: InodeId) {
        self.unasked.remove(&ino);
    }

    /// From now on nobody is answered who is about to write to what is recalled. Answers which files the kernel has to be made to ask about. Of many that are
    /// counted under the same, these are the ones that somebody may be writing to at this moment.
    pub(super) fn close(
        &mut self,
        recall: &Recall,
        cover: impl Fn(InodeId) -> Option<InodeId>,
        now: Timestamp,
    ) -> Vec<InodeId> {
        let subjects = Subjects::of(recall);
        self.closed.extend(&subjects.all);
        // A clock may have been set back.
        let is_late = |at: Timestamp| at >= now || left_of(WRITTEN_LATELY_MAX, at, now).is_some();
        let known = |ino: &InodeId| Some((*self.unasked.get(ino)?, *ino));
        let mut found: Vec<(Timestamp, InodeId)> = subjects.all.iter().filter_map(known).collect();
        if !subjects.covers.is_empty() {
            let is_under = |ino| cover(ino).is_some_and(|cover| subjects.covers(cover)) && !subjects.has(ino);
            let under = self.unasked.iter().filter(|(ino, at)| is_late(**at) && is_under(**ino));
            found.extend(under.map(|(ino, at)| (*at, *ino)));
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, ino)| ino).take(HELD_AT_ONCE_MAX).collect()
    }

    /// The right is gone: whoever waits may ask for it.
    pub(super) fn open(&mut self, recall: &Recall, cover: impl Fn(InodeId) -> Option<InodeId>) {
        let subjects = Subjects::of(recall);
        for subject in &subjects.all {
            if let Some(at) = self.closed.iter().position(|closed| closed == subject) {
                self.closed.swap_remove(at);
            }
            self.unasked.remove(subject);
        }
        if !subjects.covers.is_empty() {
            // Of what is not here it is not known what it is counted under.
            let stays = |ino| cover(ino).is_some_and(|cover| !subjects.covers(cover));
            self.unasked.retain(|ino, _| stays(*ino));
        }
        if self.closed.is_empty() {
            self.held_up.clear();
        }
    }

    /// Whether a file is closed that is counted under this.
    pub(super) fn is_closed(&self, ino: InodeId, cover: Option<InodeId>) -> bool {
        !self.closed.is_empty() && self.closed.iter().any(|closed| *closed == ino || Some(*closed) == cover)
    }

    /// Somebody is about to write to a file that is closed, and waits.
    pub(super) fn hold_up(&mut self, ino: InodeId) {
        self.held_up.insert(ino);
    }

    /// Whether somebody waits to write to a file that is closed. He has asked, and nobody else writes meanwhile: the kernel has him wait under the file's lock.
    pub(crate) fn is_held_up(&self, ino: InodeId) -> bool {
        self.held_up.contains(&ino)
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
        assert!(
            writers.may_write_unasked(ONE) && writers.may_write_unasked(OTHER),
            "the right is here still"
        );
        assert!(writers.is_closed(ONE, Some(DIR)) && !writers.is_closed(ELSEWHERE, Some(ELSEWHERE)));
        writers.open(&all, cover);
        assert!(!writers.is_closed(ONE, Some(DIR)));
        assert!(!writers.may_write_unasked(ONE) && !writers.may_write_unasked(OTHER));
        assert!(writers.may_write_unasked(ELSEWHERE));
        // One that is recalled alone is asked about however long ago that was.
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
        writers.hold_up(ONE);
        writers.open(&one, cover);
        assert!(writers.is_closed(ONE, Some(DIR)) && writers.is_held_up(ONE));
        writers.open(&all, cover);
        assert!(writers.is_closed(ONE, Some(DIR)) && !writers.is_closed(OTHER, Some(DIR)));
        writers.open(&one, cover);
        assert!(!writers.is_closed(ONE, Some(DIR)) && !writers.is_held_up(ONE));
    }

    #[test]
    fn what_was_written_to_last_is_asked_about_if_it_is_too_much() {
        let mut writers = Writers::default();
        let count = WRITERS_MAX as u64 + 1;
        for n in 0..count {
            let ino = InodeId(100 + n);
            writers.may_write(ino, Timestamp { secs: 1, nanos: n as u32 });
        }
        assert!(writers.unasked.len() <= WRITERS_MAX);
        assert!(!writers.may_write_unasked(InodeId(100)));
        let asked = writers.close(&recall(Item::Downgrade(DIR)), cover, at(1));
        assert_eq!(asked.len(), HELD_AT_ONCE_MAX);
        assert_eq!(asked[0], InodeId(100 + count - 1));
    }

    #[test]
    fn a_file_that_is_written_to_again_and_again_is_not_forgotten() {
        let mut writers = Writers::default();
        writers.has_written(ONE, at(1));
        assert!(!writers.may_write_unasked(ONE), "nobody has asked");
        writers.may_write(ONE, at(1));
        writers.has_written(ONE, at(90));
        assert_eq!(writers.close(&recall(Item::Downgrade(DIR)), cover, at(90)), [ONE]);
        writers.forget(ONE);
        assert!(!writers.may_write_unasked(ONE));
    }
}
