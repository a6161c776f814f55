//! Shares the copying of blocks among the nodes of a volume.
//!
//! **Model.** One node, the leader, decides which blocks are healed or moved, and commits their places. The
//! reading and storing of a block is done by a node that has a copy or a shard of it. So the work of a lost
//! disk is not bounded by the network of one machine.
//!
//! **Promises.** Nothing depends on an answer. If the other node refuses, does not answer, or can do nothing,
//! the leader copies the block itself. What the other node may have stored nevertheless is a copy that no
//! record names, and the sweep deletes it.

use super::{Inner, ReplicatedBlocks};
use crate::limits::COPIES_FOR_OTHERS_MAX;
use crate::map::ClusterMap;
use crate::placement;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, NodeId, Tier};
use shoal_wire::BlockError;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a block is copied; see [`VolumeBlocks`](shoal_wire::VolumeBlocks) for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CopyTask {
    /// To where it is missing.
    Heal,
    /// To where placement would put it today.
    Rebalance,
    /// As a whole, in another scheme: `convert`.
    Convert(Option<BlockScheme>),
    /// As a whole, to another tier: `move_to`.
    Move(Tier, Option<BlockScheme>),
}

/// A block that another node is to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyOrder {
    /// The block.
    pub id: BlockId,
    /// Its length, and where it is.
    pub info: BlockInfo,
    /// How it is copied.
    pub task: CopyTask,
    /// The epoch of the map by which this was decided.
    pub epoch: u64,
}

/// Counts a copy for another node while it is made.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// `None` if there are too many already.
    fn new(count: &'a AtomicUsize) -> Option<Counted<'a>> {
        let counted = Counted(count);
        let before = count.fetch_add(1, Ordering::Relaxed);
        (before < COPIES_FOR_OTHERS_MAX).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReplicatedBlocks {
    /// Copies a block for another node. Fails if that node knows a newer map, or if too many blocks are being
    /// copied for others, and as the copying of the task fails.
    pub fn copy_for(&self, order: &CopyOrder) -> Result<BlockGroup, BlockError> {
        let epoch = self.inner.bricks.map().epoch;
        if epoch < order.epoch {
            let why = format!("the cluster map known here has epoch {epoch}, and {} is needed", order.epoch);
            return Err(BlockError::Unreachable(why));
        }
        let Some(_counted) = Counted::new(&self.inner.copies_for_others) else {
            let why = format!("{COPIES_FOR_OTHERS_MAX} blocks are being copied for other nodes");
            return Err(BlockError::Unreachable(why));
        };
        self.inner.copy_here(order.id, order.info, order.task)
    }
}

impl Inner {
    /// Copies a block, on another node if that has it.
    pub(super) fn copy_anywhere(
        self: &Arc<Inner>,
        id: BlockId,
        info: BlockInfo,
        task: CopyTask,
    ) -> Result<BlockGroup, BlockError> {
        match self.copy_elsewhere(id, info, task) {
            Some(group) => Ok(group),
            None => self.copy_here(id, info, task),
        }
    }

    fn copy_here(
        self: &Arc<Inner>,
        id: BlockId,
        info: BlockInfo,
        task: CopyTask,
    ) -> Result<BlockGroup, BlockError> {
        match task {
            CopyTask::Heal => self.heal(id, info),
            CopyTask::Rebalance => self.rebalance(id, info),
            CopyTask::Convert(scheme) => {
                self.store_anew(&self.bricks.map(), id, info, (info.group.tier(), scheme))
            }
            CopyTask::Move(tier, scheme) => self.move_to(id, info, (tier, scheme)),
        }
    }

    /// The new group of a block that another node has copied.
    fn copy_elsewhere(self: &Arc<Inner>, id: BlockId, info: BlockInfo, task: CopyTask) -> Option<BlockGroup> {
        let map = self.bricks.map();
        let node = self.copier(&map, id, &info.group)?;
        let order = CopyOrder { id, info, task, epoch: map.epoch };
        self.bricks.copy_on(node, self.volume, &order).filter(|group| *group != info.group)
    }

    /// The node that copies a block: those that have a part of it take turns. `None`: this one.
    fn copier(self: &Arc<Inner>, map: &ClusterMap, id: BlockId, group: &BlockGroup) -> Option<NodeId> {
        let here = self.bricks.here()?;
        let can_read = |brick: &BrickId| !placement::is_gone(map, *brick) && self.is_good(*brick);
        let node = |brick: BrickId| map.bricks.get(&brick).map(|it| it.node);
        let holders: Vec<NodeId> = group.bricks().filter(can_read).filter_map(node).collect();
        let turn = (id.seq as usize).checked_rem(holders.len())?;
        holders.get(turn).copied().filter(|node| *node != here)
    }

    /// How many nodes have bricks of the volume that answer; at least 1.
    pub(super) fn copying_nodes(self: &Arc<Inner>) -> usize {
        let map = self.bricks.map();
        let good = map.bricks_of(self.volume).filter(|(brick, _)| self.is_good(*brick));
        good.map(|(_, brick)| brick.node).collect::<BTreeSet<NodeId>>().len().max(1)
    }
}
