//! The order in which blocks are healed: those that survive the fewest further losses come first.
//!
//! **Model.** A walk over all blocks, in the order of their ids, puts those that have to be healed into
//! classes. Class 0 has the blocks that the next loss of a brick may destroy. Behind the classes of blocks
//! that survive more come those that cannot be read now, and then those that lack nothing and only lie in the
//! wrong place or scheme.
//!
//! **Bounded.** A class remembers a bounded number of blocks. When it is full, it remembers where it was cut,
//! and the rest of it is found by another walk from there, before the next class is healed.

use crate::limits::HEAL_RANKS;
use shoal_types::BlockId;

/// Classes: one for each number of further losses, the last of which has all larger numbers; blocks that
/// cannot be read now; and blocks that lack nothing.
const CLASSES: usize = HEAL_RANKS + 2;

/// How urgent it is to heal a block; the smallest is the most urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class(usize);

impl Class {
    /// A block that lacks copies or shards, and survives so many further losses; `None`: it cannot be read.
    pub(super) fn lacking(losses_survived: Option<usize>) -> Class {
        Class(losses_survived.map_or(HEAL_RANKS, |losses| losses.min(HEAL_RANKS - 1)))
    }

    /// A block that lacks nothing.
    pub(super) fn misplaced() -> Class {
        Class(HEAL_RANKS + 1)
    }
}

#[derive(Default)]
struct Found {
    blocks: Vec<BlockId>,
    /// The last block before the first one that was left out: the rest is behind it.
    cut: Option<BlockId>,
}

/// The blocks to heal, as far as they have been found.
pub(super) struct Triage {
    classes: [Found; CLASSES],
    blocks_max: usize,
}

/// Some blocks of one class.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) class: Class,
    pub(super) blocks: Vec<BlockId>,
    /// The rest of the class is to be found behind this block.
    pub(super) cut: Option<BlockId>,
}

impl Triage {
    /// Remembers at most so many blocks of each class.
    pub(super) fn new(blocks_max: usize) -> Triage {
        Triage { classes: Default::default(), blocks_max: blocks_max.max(1) }
    }

    /// Takes in a block. Within one walk they come in the order of their ids. Returns whether the class had
    /// room for it.
    pub(super) fn add(&mut self, class: Class, id: BlockId) -> bool {
        let Some(found) = self.classes.get_mut(class.0) else { return false };
        if found.blocks.len() >= self.blocks_max {
            found.cut = found.cut.or(found.blocks.last().copied());
            return false;
        }
        found.blocks.push(id);
        true
    }

    /// Takes out the blocks of the most urgent class that has any.
    pub(super) fn next(&mut self) -> Option<Batch> {
        let index = self.classes.iter().position(|found| !found.blocks.is_empty())?;
        let Found { blocks, cut } = std::mem::take(&mut self.classes[index]);
        Some(Batch { class: Class(index), blocks, cut })
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
    fn order(triage: &mut Triage) -> Vec<(Vec<u64>, Option<u64>)> {
        std::iter::from_fn(|| triage.next())
            .map(|batch| (batch.blocks.iter().map(|id| id.seq).collect(), batch.cut.map(|id| id.seq)))
            .collect()
    }

    #[test]
    fn blocks_that_survive_the_fewest_losses_come_first_and_misplaced_ones_last() {
        let mut triage = Triage::new(10);
        let classes = [
            Class::misplaced(),
            Class::lacking(Some(1)),
            Class::lacking(None),
            Class::lacking(Some(0)),
            Class::lacking(Some(100)),
            Class::lacking(Some(1)),
            Class::lacking(Some(0)),
            Class::lacking(Some(2)),
        ];
        for (seq, class) in classes.into_iter().enumerate() {
            assert!(triage.add(class, id(seq as u64)));
        }
        let blocks: Vec<_> = order(&mut triage).into_iter().map(|(blocks, _)| blocks).collect();
        assert_eq!(blocks, [vec![3, 6], vec![1, 5], vec![7], vec![4], vec![2], vec![0]]);
    }

    #[test]
    fn full_class_says_where_its_rest_begins_and_leaves_room_to_the_others() {
        let mut triage = Triage::new(2);
        for seq in [1, 2, 4, 7] {
            assert_eq!(triage.add(Class::lacking(Some(1)), id(seq)), seq < 4);
        }
        assert!(triage.add(Class::lacking(Some(0)), id(9)), "another class is not full");
        assert_eq!(order(&mut triage), [(vec![9], None), (vec![1, 2], Some(2))]);
        assert!(triage.add(Class::lacking(Some(1)), id(4)), "it was emptied");
    }
}
