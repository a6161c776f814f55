//! The order in which blocks are healed: those that survive the fewest further losses come first.
//!
//! **Model.** A walk over all blocks, in the order of their ids, gives each that has to be healed a priority.
//! Priority 0 is that of blocks which the next loss of a brick may destroy. Behind those that survive more
//! come those that cannot be read now, and then those that lack nothing and only lie in the wrong place or
//! scheme.
//!
//! **Bounded.** A bounded number of blocks of each priority is remembered. Beyond it only the place where the
//! list was cut is. The rest is found by another walk from there, before the next priority is healed.

use crate::limits::HEAL_RANKS;
use shoal_types::BlockId;

/// Priorities: one for each number of further losses, the last of which has all larger numbers; blocks that
/// cannot be read now; and blocks that lack nothing.
const PRIORITIES: usize = HEAL_RANKS + 2;

/// How urgent it is to heal a block; the smallest is the most urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Priority(usize);

impl Priority {
    /// A block that lacks copies or shards, and survives so many further losses; `None`: it cannot be read.
    pub(super) fn lacking(losses_survived: Option<usize>) -> Priority {
        Priority(losses_survived.map_or(HEAL_RANKS, |losses| losses.min(HEAL_RANKS - 1)))
    }

    /// A block that lacks nothing.
    pub(super) fn misplaced() -> Priority {
        Priority(HEAL_RANKS + 1)
    }
}

#[derive(Default)]
struct Found {
    blocks: Vec<BlockId>,
    /// The last block before the first one that was left out: the rest is behind it.
    cut: Option<BlockId>,
}

/// The blocks to heal, as far as they have been found.
pub(super) struct HealQueue {
    priorities: [Found; PRIORITIES],
    blocks_max: usize,
}

/// Some blocks of one priority.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) priority: Priority,
    pub(super) blocks: Vec<BlockId>,
    /// The rest of the priority is to be found behind this block.
    pub(super) cut: Option<BlockId>,
}

impl HealQueue {
    /// Remembers at most so many blocks of each priority.
    pub(super) fn new(blocks_max: usize) -> HealQueue {
        HealQueue { priorities: Default::default(), blocks_max: blocks_max.max(1) }
    }

    /// Takes in a block. Within one walk they come in the order of their ids. Returns whether there was room
    /// for it.
    pub(super) fn add(&mut self, priority: Priority, id: BlockId) -> bool {
        let Some(found) = self.priorities.get_mut(priority.0) else { return false };
        if found.blocks.len() >= self.blocks_max {
            found.cut = found.cut.or(found.blocks.last().copied());
            return false;
        }
        found.blocks.push(id);
        true
    }

    /// Whether a block of this priority found no room since its blocks were taken out.
    pub(super) fn is_cut(&self, priority: Priority) -> bool {
        self.priorities.get(priority.0).is_some_and(|found| found.cut.is_some())
    }

    /// Takes out the blocks of the most urgent priority that has any.
    pub(super) fn next(&mut self) -> Option<Batch> {
        let index = self.priorities.iter().position(|found| !found.blocks.is_empty())?;
        let Found { blocks, cut } = std::mem::take(&mut self.priorities[index]);
        Some(Batch { priority: Priority(index), blocks, cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    fn id(seq: u64) -> BlockId {
        BlockId { session: SessionId(1), seq }
    }

    /// The blocks of a walk in the order in which they are taken out, with what was cut.
    fn order(queue: &mut HealQueue) -> Vec<(Vec<u64>, Option<u64>)> {
        std::iter::from_fn(|| queue.next())
            .map(|batch| (batch.blocks.iter().map(|id| id.seq).collect(), batch.cut.map(|id| id.seq)))
            .collect()
    }

    #[test]
    fn blocks_that_survive_the_fewest_losses_come_first_and_misplaced_ones_last() {
        let mut queue = HealQueue::new(10);
        let priorities = [
            Priority::misplaced(),
            Priority::lacking(Some(1)),
            Priority::lacking(None),
            Priority::lacking(Some(0)),
            Priority::lacking(Some(100)),
            Priority::lacking(Some(1)),
            Priority::lacking(Some(0)),
            Priority::lacking(Some(2)),
        ];
        for (seq, priority) in priorities.into_iter().enumerate() {
            assert!(queue.add(priority, id(seq as u64)));
        }
        let blocks: Vec<_> = order(&mut queue).into_iter().map(|(blocks, _)| blocks).collect();
        assert_eq!(blocks, [vec![3, 6], vec![1, 5], vec![7], vec![4], vec![2], vec![0]]);
    }

    #[test]
    fn full_class_says_where_its_rest_begins_and_leaves_room_to_the_others() {
        let mut queue = HealQueue::new(2);
        for seq in [1, 2, 4, 7] {
            assert_eq!(queue.is_cut(Priority::lacking(Some(1))), seq > 4);
            assert_eq!(queue.add(Priority::lacking(Some(1)), id(seq)), seq < 4);
        }
        assert!(queue.add(Priority::lacking(Some(0)), id(9)), "another priority is not full");
        assert_eq!(order(&mut queue), [(vec![9], None), (vec![1, 2], Some(2))]);
        assert!(queue.add(Priority::lacking(Some(1)), id(4)), "it was emptied");
    }
}
