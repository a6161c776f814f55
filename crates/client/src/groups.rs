//! The cache of block groups: on which bricks a block is.
//!
//! **Model.** An entry is a hint. If a block is not where the hint says (it was healed or rebalanced), the
//! metadata leader is asked. The cache is bounded: the groups used longest ago are evicted first. Groups of
//! blocks that this client stored and whose batch is not committed are known to no server, and stay.
//!
//! **A volume without a cluster** keeps every block in the empty group. The first such block shows this. From
//! then on nothing is cached and no server is asked.

use crate::limits::GROUPS_KNOWN_MAX;
use rustc_hash::FxHashMap;
use shoal_runtime::sync::Mutex;
use shoal_types::{BatchSeq, BlockGroup, BlockId};
use shoal_wire::FileRecord;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// The groups of blocks.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Every block of the volume is in the empty group.
    local: AtomicBool,
    known: Mutex<Known>,
}

/// Two generations: what is used moves to the young one, and when that is full the old one is forgotten.
#[derive(Debug, Default)]
struct Known {
    young: FxHashMap<BlockId, BlockGroup>,
    old: FxHashMap<BlockId, BlockGroup>,
    /// Stored by this client, and not committed.
    own: FxHashMap<BlockId, BlockGroup>,
    /// Which of them were sent with which batch, in order.
    sent: VecDeque<(BatchSeq, Vec<BlockId>)>,
}

impl Known {
    fn learn(&mut self, id: BlockId, group: BlockGroup) {
        if self.young.len() >= GROUPS_KNOWN_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, group);
    }
}

impl Groups {
    /// Caches the groups of blocks.
    pub(crate) fn learn(&self, blocks: impl IntoIterator<Item = (BlockId, BlockGroup)>) {
        if self.is_local() {
            return;
        }
        let mut known = self.known.lock();
        for (id, group) in blocks {
            if group.is_empty() {
                self.local.store(true, Ordering::Release);
                return;
            }
            known.learn(id, group);
        }
    }

    /// Caches the groups of the blocks in file records.
    pub(crate) fn learn_records<'r>(&self, records: impl IntoIterator<Item = &'r FileRecord>) {
        let blocks = records.into_iter().flat_map(|record| &record.blocks);
        self.learn(blocks.map(|(id, info)| (*id, info.group)));
    }

    /// The group of a block, if it is known.
    pub(crate) fn find(&self, id: BlockId) -> Option<BlockGroup> {
        if self.is_local() {
            return Some(BlockGroup::default());
        }
        let mut known = self.known.lock();
        if let Some(group) = known.young.get(&id).or_else(|| known.own.get(&id)) {
            return Some(*group);
        }
        let group = known.old.remove(&id)?;
        known.learn(id, group);
        Some(group)
    }

    /// Whether the volume has no cluster around it.
    pub(crate) fn is_local(&self) -> bool {
        self.local.load(Ordering::Acquire)
    }

    /// This client has stored a block: it is remembered until the batch that names it is committed.
    pub(crate) fn stored(&self, id: BlockId, group: BlockGroup) {
        match group.is_empty() {
            true => self.local.store(true, Ordering::Release),
            false => drop(self.known.lock().own.insert(id, group)),
        }
    }

    /// A block of this client is not needed. Returns its group.
    pub(crate) fn dropped(&self, id: BlockId) -> BlockGroup {
        match self.is_local() {
            true => BlockGroup::default(),
            false => self.known.lock().own.remove(&id).unwrap_or_default(),
        }
    }

    /// The group of a block that this client has stored and whose batch is not committed.
    pub(crate) fn own(&self, id: BlockId) -> Option<BlockGroup> {
        match self.is_local() {
            true => Some(BlockGroup::default()),
            false => self.known.lock().own.get(&id).copied(),
        }
    }

    /// These blocks are named by a batch that is being sent.
    pub(crate) fn sending(&self, seq: BatchSeq, ids: Vec<BlockId>) {
        if !self.is_local() && !ids.is_empty() {
            self.known.lock().sent.push_back((seq, ids));
        }
    }

    /// All batches up to this one are committed: the servers know the blocks they name.
    pub(crate) fn committed(&self, seq: BatchSeq) {
        if self.is_local() {
            return;
        }
        let mut known = self.known.lock();
        while let Some((first, _)) = known.sent.front()
            && *first <= seq
            && let Some((_, ids)) = known.sent.pop_front()
        {
            for id in ids {
                if let Some(group) = known.own.remove(&id) {
                    known.learn(id, group);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::{BrickId, SessionId};

    fn block(seq: u64) -> BlockId {
        BlockId { session: SessionId(1), seq }
    }

    fn group(brick: u16) -> BlockGroup {
        BlockGroup::new([BrickId(brick)]).expect("one brick fits")
    }

    #[test]
    fn group_of_an_uncommitted_block_is_not_evicted() {
        let groups = Groups::default();
        groups.stored(block(0), group(7));
        groups.stored(block(1), group(8));
        groups.sending(BatchSeq(1), vec![block(1)]);
        groups.committed(BatchSeq(1));
        assert_eq!(groups.find(block(1)), Some(group(8)));
        groups.learn((2..3 * GROUPS_KNOWN_MAX as u64).map(|seq| (block(seq), group(1))));
        assert_eq!(groups.find(block(0)), Some(group(7)));
        assert_eq!(groups.find(block(1)), None);
        let known = groups.known.lock();
        assert!(known.young.len() + known.old.len() <= GROUPS_KNOWN_MAX);
    }

    #[test]
    fn group_that_is_used_is_evicted_after_one_that_is_not() {
        let groups = Groups::default();
        groups.learn([(block(0), group(7))]);
        groups.learn([(block(1), group(7))]);
        for seq in 2..GROUPS_KNOWN_MAX as u64 {
            groups.learn([(block(seq), group(1))]);
            assert_eq!(groups.find(block(0)), Some(group(7)));
        }
        groups.learn((0..10).map(|n| (block(GROUPS_KNOWN_MAX as u64 + n), group(1))));
        assert_eq!(groups.find(block(0)), Some(group(7)));
        assert_eq!(groups.find(block(1)), None);
    }

    #[test]
    fn one_block_in_the_empty_group_shows_that_all_are() {
        let groups = Groups::default();
        assert_eq!(groups.find(block(5)), None);
        groups.learn([(block(0), BlockGroup::default())]);
        assert_eq!(groups.find(block(5)), Some(BlockGroup::default()));
    }
}
