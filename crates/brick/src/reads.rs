//! How often blocks are read.

use crate::limits::READS_REMEMBERED_MAX;
use parking_lot::Mutex;
use shoal_types::BlockId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counts reads of blocks, from the first time that the counts are taken. A brick of a volume without a hot
/// tier is never asked for them, and counts nothing.
///
/// Between two takes it remembers a bounded number of blocks; reads of further blocks are not counted.
#[derive(Default)]
pub struct ReadCounts {
    wanted: AtomicBool,
    counts: Mutex<HashMap<BlockId, u32>>,
}

impl ReadCounts {
    /// A block was read so often.
    pub fn add(&self, id: BlockId, count: u32) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        let mut counts = self.counts.lock();
        if counts.len() < READS_REMEMBERED_MAX || counts.contains_key(&id) {
            let sum = counts.entry(id).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Vec<(BlockId, u32)> {
        self.wanted.store(true, Ordering::Relaxed);
        std::mem::take(&mut *self.counts.lock()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    #[test]
    fn reads_are_counted_once_and_of_a_bounded_number_of_blocks() {
        let counts = ReadCounts::default();
        let id = |seq| BlockId { session: SessionId(1), seq };
        counts.add(id(0), 1);
        assert_eq!(counts.take(), [], "the counts had not been asked for");
        for seq in 0..READS_REMEMBERED_MAX as u64 + 5 {
            counts.add(id(seq), 1);
        }
        counts.add(id(3), 2);
        let taken: HashMap<BlockId, u32> = counts.take().into_iter().collect();
        assert_eq!((taken.len(), taken[&id(3)]), (READS_REMEMBERED_MAX, 3));
        assert_eq!(counts.take(), []);
    }
}
