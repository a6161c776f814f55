//! How many extents refer to a block.

use super::KvTree;
use crate::heat;
use crate::keys;
use crate::kv::KvRead;
use crate::records::BlockRecord;
use crate::stored::{TreeError, read};
use shoal_types::{BlockId, BlockRef, InodeId};

/// What has become of a block.
pub(super) struct BlockSlot {
    /// As the store has it, as far as it has been read.
    pub(super) stored: Option<BlockRecord>,
    /// Declared by the session that acts, in this very command.
    pub(super) declared: Option<BlockRecord>,
    /// The file that it was declared for.
    pub(super) owner: InodeId,
    /// References gained less references lost.
    pub(super) gained: i64,
}

impl BlockSlot {
    pub(super) fn declared(record: BlockRecord, owner: InodeId) -> BlockSlot {
        BlockSlot { stored: None, declared: Some(record), owner, gained: 0 }
    }

    /// The record after the command. `None`: there is none, or it would lose more references than it has.
    pub(super) fn now(&self) -> Option<BlockRecord> {
        let record = self.declared.or(self.stored)?;
        Some(BlockRecord { refs: record.refs.checked_add_signed(self.gained)?, ..record })
    }
}

impl<S: KvRead + ?Sized> KvTree<'_, S> {
    /// Whether there is such a block, be it garbage.
    pub fn is_block_known(&mut self, id: BlockId) -> Result<bool, TreeError> {
        Ok(self.block_slot(id)?.is_some())
    }

    /// Whether content may refer to this part of a block: it was declared in this command, or was declared
    /// before and has not been without a reference since. What once was garbage may be gone already.
    pub fn may_refer(&mut self, block: &BlockRef) -> Result<bool, TreeError> {
        let record =
            self.block_slot(block.id)?.and_then(|slot| slot.declared.or(slot.stored.filter(|b| b.refs > 0)));
        let end = block.offset.checked_add(block.len);
        Ok(record.is_some_and(|record| end.is_some_and(|end| end <= record.info.len)))
    }

    fn block_slot(&mut self, id: BlockId) -> Result<Option<&BlockSlot>, TreeError> {
        if !self.blocks.contains_key(&id) {
            let Some(stored) = read(self.store, &keys::block(id))? else { return Ok(None) };
            let slot = BlockSlot { stored: Some(stored), declared: None, owner: heat::UNKNOWN, gained: 0 };
            self.blocks.insert(id, slot);
        }
        Ok(self.blocks.get(&id))
    }

    pub(super) fn count_block(&mut self, id: BlockId, by: i64) {
        match self.block_slot(id) {
            Ok(Some(_)) => {}
            Ok(None) => {
                return self
                    .fail(TreeError::damaged(&keys::block(id), "content refers to it, but it is not there"));
            }
            Err(error) => return self.fail(error),
        }
        if let Some(slot) = self.blocks.get_mut(&id) {
            slot.gained += by;
        }
    }
}
