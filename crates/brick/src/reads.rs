//! How often blocks are read.

use crate::limits::READS_REMEMBERED_MAX;
use parking_lot::Mutex;
use shoal_types::BlockId;
use std::collections::HashMap;

/// Counts reads of blocks until they are taken. Remembers a bounded number of blocks: reads of others are
/// not counted until then.
#[derive(Default)]
pub struct ReadCounts(Mutex<HashMap<BlockId, u32>>);

impl ReadCounts {
    /// A block was read so often.
    pub fn add(&self, id: BlockId, count: u32) {
        let mut counts = self.0.lock();
        if counts.len() < READS_REMEMBERED_MAX || counts.contains_key(&id) {
            let sum = counts.entry(id).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Vec<(BlockId, u32)> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
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
        for seq in 0..READS_REMEMBERED_MAX as u64 + 5 {
            counts.add(id(seq), 1);
        }
        counts.add(id(3), 2);
        let taken: HashMap<BlockId, u32> = counts.take().into_iter().collect();
        assert_eq!((taken.len(), taken[&id(3)]), (READS_REMEMBERED_MAX, 3));
        assert_eq!(counts.take(), []);
    }
}
