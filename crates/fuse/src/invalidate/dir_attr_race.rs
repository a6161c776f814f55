//! Replies with attributes of directories that a local change may overtake (`docs/KERNEL_CACHE.md`, hazard
//! 8).
//!
//! The kernel invalidates the attributes of a directory when a local change in it has been answered. Another
//! thread that was answered before the change may run only after it, and then takes its reply for valid. So
//! the attributes are invalidated before the change is answered: the kernel ignores replies to earlier
//! requests. That costs a notification. It is sent only after a recent request of another thread than the
//! caller; the caller itself has consumed all its replies.
//!
//! The table has a fixed size. Directories that share a slot count as one, which only costs notifications.
//! Only directories are recorded: after a local change of a file's content, size or link count the kernel
//! itself ignores earlier replies.

use crate::limits::{ATTR_RACE_SLOTS, LATE_ANSWER_MAX};
use crate::slot_table::{SlotTable, TID_BITS};
use shoal_types::InodeId;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// No thread has sent a request.
const NONE: u64 = 0;
/// Stands for all threads of other containers: the kernel reports them as 0.
const FOREIGN_TID: u32 = u32::MAX;

#[derive(Default, Debug)]
struct Slot {
    /// The thread of the last request. The higher bits are the millisecond until which another thread was the
    /// last one; 0 if there was none.
    asked: AtomicU64,
    /// The number of the last change.
    changed: AtomicU64,
}

/// The threads that last requested attributes of directories, and the last changes there.
#[derive(Debug)]
pub(super) struct DirAttrRace {
    slots: SlotTable<Slot>,
    /// Changes so far.
    changes: AtomicU64,
}

/// A request in flight, with the number of changes before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrRequest {
    tid: u32,
    changes: u64,
    /// The number of skipped invalidations before it.
    pub skips: u64,
}

fn known_tid(tid: u32) -> u32 {
    if tid == 0 { FOREIGN_TID } else { tid }
}

impl DirAttrRace {
    pub(super) fn new() -> DirAttrRace {
        DirAttrRace { slots: SlotTable::new(ATTR_RACE_SLOTS), changes: AtomicU64::new(0) }
    }

    /// A request of a thread for any inode has arrived. To be called before the inode is read.
    pub(super) fn begin(&self, tid: u32, skips: u64) -> AttrRequest {
        AttrRequest { tid: known_tid(tid), changes: self.changes.load(SeqCst), skips }
    }

    /// A reply carries the attributes of a directory. Returns whether the kernel may cache them: otherwise
    /// they may be from before a change.
    pub(super) fn answered(&self, request: AttrRequest, dir: InodeId) -> bool {
        let slot = self.slots.of(dir);
        let mut seen = slot.asked.load(SeqCst);
        while seen as u32 != request.tid {
            let since = if seen == NONE { 0 } else { self.slots.now_ms() };
            let next = (since << TID_BITS) | u64::from(request.tid);
            match slot.asked.compare_exchange_weak(seen, next, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // `SeqCst`: either this thread sees the number of the change, or `changed` sees this thread's entry.
        slot.changed.load(SeqCst) <= request.changes
    }

    /// A thread has changed a directory, and is about to be answered. Returns whether replies to other
    /// threads may not have been consumed.
    pub(super) fn changed(&self, tid: u32, dir: InodeId) -> bool {
        let slot = self.slots.of(dir);
        let number = self.changes.fetch_add(1, SeqCst) + 1;
        slot.changed.fetch_max(number, SeqCst);
        let asked = slot.asked.load(SeqCst);
        let (last, other_ms) = (asked as u32, asked >> TID_BITS);
        let is_late = || self.slots.now_ms().saturating_sub(other_ms) < LATE_ANSWER_MAX.as_millis() as u64;
        asked != NONE && (last != known_tid(tid) || last == FOREIGN_TID || (other_ms > 0 && is_late()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(7);
    const ME: u32 = 100;
    const OTHER: u32 = 200;

    fn getattr(race: &DirAttrRace, tid: u32) {
        assert!(race.answered(race.begin(tid, 0), DIR), "nothing has changed meanwhile");
    }

    #[test]
    fn only_thread_of_a_directory_is_not_slowed_down() {
        let race = DirAttrRace::new();
        assert!(!race.changed(ME, DIR));
        getattr(&race, ME);
        assert!(!race.changed(ME, DIR));
        getattr(&race, ME);
        assert!(!race.changed(ME, InodeId(DIR.0 + 1)));
    }

    #[test]
    fn an_answer_to_another_thread_may_be_on_its_way_while_a_change_is_answered() {
        let race = DirAttrRace::new();
        getattr(&race, OTHER);
        assert!(race.changed(ME, DIR));
        // A request of the changing thread says nothing of other threads.
        getattr(&race, ME);
        assert!(race.changed(ME, DIR));
        assert!(race.changed(OTHER, DIR));
    }

    #[test]
    fn an_answer_that_a_change_overtakes_is_not_kept() {
        let race = DirAttrRace::new();
        let request = race.begin(OTHER, 0);
        assert!(!race.changed(ME, DIR), "no other thread was answered");
        assert!(!race.answered(request, DIR));
        getattr(&race, OTHER);
        let elsewhere = race.begin(OTHER, 0);
        race.changed(ME, InodeId(DIR.0 + 1));
        assert!(race.answered(elsewhere, DIR));
    }

    #[test]
    fn threads_of_other_containers_count_as_different_threads() {
        let race = DirAttrRace::new();
        getattr(&race, 0);
        assert!(race.changed(0, DIR));
    }

    #[test]
    fn getattr_of_another_thread_long_ago_is_ignored() {
        let mut race = DirAttrRace::new();
        getattr(&race, OTHER);
        getattr(&race, ME);
        race.slots.begun -= LATE_ANSWER_MAX * 2;
        assert!(!race.changed(ME, DIR));
    }
}
