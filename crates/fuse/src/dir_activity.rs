//! Directories whose inode lock may be held, or about to be taken (`docs/KERNEL_CACHE.md`, hazard 5).
//!
//! A thread whose request waits in this process certainly holds it. Another thread may have taken the lock
//! before its request arrives, or still hold it after the reply. So each thread that has recently looked up
//! or changed a name in the directory counts as well.

use crate::limits::{BUSY_LATELY_MAX, BUSY_SLOTS};
use crate::slot_table::{SlotTable, TID_BITS};
use shoal_types::InodeId;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A thread id, with the millisecond in which the thread was there in the higher bits; 0 if no thread was.
#[derive(Default, Debug)]
struct Slot {
    last: AtomicU64,
    /// The last entry of another thread than that.
    other: AtomicU64,
}

impl Slot {
    fn note(&self, tid: u32, now_ms: u64) {
        let next = (now_ms << TID_BITS) | u64::from(tid);
        let last = self.last.load(Relaxed);
        if last == next {
            return;
        }
        if last as u32 != tid {
            self.other.store(last, Relaxed);
        }
        self.last.store(next, Relaxed);
    }

    /// The millisecond in which another thread than this was here last.
    fn others_ms(&self, tid: u32) -> Option<u64> {
        let last = self.last.load(Relaxed);
        let seen = if last as u32 == tid { self.other.load(Relaxed) } else { last };
        (seen != 0).then_some(seen >> TID_BITS)
    }
}

/// The threads that have recently worked with names, by directory.
#[derive(Debug)]
pub(crate) struct DirActivity {
    slots: SlotTable<Slot>,
    /// Threads that move something between directories: the kernel has a rename lock for that.
    moves: Slot,
}

impl DirActivity {
    pub(crate) fn new() -> DirActivity {
        DirActivity { slots: SlotTable::new(BUSY_SLOTS), moves: Slot::default() }
    }

    /// A thread is about to change a name in a directory, has changed one, or looks one up, perhaps in order
    /// to change it.
    pub(crate) fn note(&self, tid: u32, dir: InodeId) {
        self.slots.of(dir).note(tid, self.slots.now_ms());
    }

    /// A thread changes names in two directories.
    pub(crate) fn note_both(&self, tid: u32, [one, other]: [InodeId; 2]) {
        let now = self.slots.now_ms();
        self.slots.of(one).note(tid, now);
        if one != other {
            self.slots.of(other).note(tid, now);
            self.moves.note(tid, now);
        }
    }

    /// Whether other threads have recently worked with names in a directory, or moved something between any
    /// directories.
    pub(crate) fn are_others(&self, tid: u32, dir: InodeId) -> bool {
        let now = self.slots.now_ms();
        let is_late = |then: u64| now.saturating_sub(then) < BUSY_LATELY_MAX.as_millis() as u64;
        [self.slots.of(dir), &self.moves].iter().filter_map(|slot| slot.others_ms(tid)).any(is_late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(7);
    const ELSEWHERE: InodeId = InodeId(8);
    const ME: u32 = 100;
    const OTHER: u32 = 200;

    #[test]
    fn only_thread_of_a_directory_does_not_find_it_busy() {
        let busy = DirActivity::new();
        assert!(!busy.are_others(ME, DIR));
        busy.note(ME, DIR);
        busy.note_both(ME, [DIR, ELSEWHERE]);
        assert!(!busy.are_others(ME, DIR));
        busy.note(OTHER, InodeId(9));
        assert!(!busy.are_others(ME, DIR));
    }

    #[test]
    fn directory_stays_busy_for_a_moment_after_another_thread_left() {
        let mut busy = DirActivity::new();
        busy.note(OTHER, DIR);
        assert!(busy.are_others(ME, DIR) && !busy.are_others(OTHER, DIR));
        busy.note(ME, DIR);
        busy.note(ME, DIR);
        assert!(busy.are_others(ME, DIR) && busy.are_others(OTHER, DIR));
        busy.slots.begun -= BUSY_LATELY_MAX * 2;
        assert!(!busy.are_others(ME, DIR) && !busy.are_others(OTHER, DIR));
    }

    #[test]
    fn move_between_directories_makes_every_directory_busy() {
        let busy = DirActivity::new();
        busy.note_both(OTHER, [DIR; 2]);
        assert!(!busy.are_others(ME, ELSEWHERE));
        busy.note_both(OTHER, [DIR, ELSEWHERE]);
        assert!(busy.are_others(ME, InodeId(9)));
    }
}
