//! Repairs damaged copies that readers find.

use super::{Inner, names};
use bytes::Bytes;
use shoal_types::{BlockGroup, BlockId, BrickId};
use shoal_wire::BlockError;
use std::sync::Arc;

impl Inner {
    /// Replaces a damaged copy or shard by a good one, on another thread.
    pub(super) fn repair(self: &Arc<Inner>, id: BlockId, group: BlockGroup, damaged: BrickId) {
        let Some(permit) = self.repairs.try_acquire() else { return };
        let of = self.clone();
        let job = move || {
            match of.repair_now(id, group, damaged) {
                Ok(()) => tracing::info!(block = %id, brick = %damaged, "repaired a damaged copy"),
                Err(error) => {
                    tracing::warn!(block = %id, brick = %damaged, %error, "repairing a damaged copy")
                }
            }
            drop(permit);
        };
        if let Err(error) = shoal_runtime::thread::Builder::new().name("repair".into()).spawn(job) {
            tracing::warn!(%error, "no thread to repair a block");
        }
    }

    /// A brick replaces a block that it finds damaged, and keeps one that it finds good.
    pub(super) fn repair_now(
        self: &Arc<Inner>,
        id: BlockId,
        group: BlockGroup,
        damaged: BrickId,
    ) -> Result<(), BlockError> {
        // A brick that finds damage names the shard as it has stored it.
        let (id, index) = names::parse(id);
        let index = index.or(group.shard_on(damaged));
        let (content, id) = match index {
            Some(index) => (self.restored_shard((id, index), group, damaged)?, names::of_shard(id, index)),
            None => (self.whole_copy(id, group, damaged)?, id),
        };
        let brick = self.bricks.brick(damaged);
        let brick = brick.ok_or_else(|| BlockError::Unreachable(format!("{damaged} is not connected")))?;
        match brick.put(id, &[content]) {
            Err(BlockError::Exists(_)) => Ok(()),
            other => other,
        }
    }

    /// The content of a block of unknown length, from any brick but one.
    fn whole_copy(
        self: &Arc<Inner>,
        id: BlockId,
        group: BlockGroup,
        but: BrickId,
    ) -> Result<Bytes, BlockError> {
        let mut failure = BlockError::Missing(id);
        for holder in self.holders(&self.bricks.map(), id, group) {
            let Some(brick) = self.bricks.brick(holder).filter(|_| holder != but) else { continue };
            match brick.length(id).and_then(|len| brick.get(id, 0, len)) {
                Ok(content) => return Ok(content),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}
