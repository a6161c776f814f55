//! Delegates the copying of blocks to the nodes that have them.
//!
//! **Model.** The leader decides which blocks are healed or moved, and commits their places. A node that has
//! a copy or a shard of a block reads and stores it. So the network of one machine does not bound how fast a
//! lost disk is rebuilt.
//!
//! **Promises.** The leader depends on no reply. If the other node refuses, does not reply, or can do
//! nothing, the leader copies the block itself. What the other node may have stored nevertheless is a copy
//! that no record names, and the sweep deletes it.

use super::{Inner, ReplicatedBlocks};
use crate::limits::DELEGATED_COPIES_MAX;
use crate::map::ClusterMap;
use crate::placement;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, NodeId, Tier};
use shoal_wire::BlockError;
use std::collections::BTreeSet;
use std::sync::Arc;

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

/// A request to copy a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyRequest {
    /// The block.
    pub id: BlockId,
    /// Its length, and where it is.
    pub info: BlockInfo,
    /// How it is copied.
    pub task: CopyTask,
    /// The epoch of the map by which this was decided.
    pub epoch: u64,
}

impl ReplicatedBlocks {
    /// Copies a block for the leader of its volume. Fails if that has decided by a newer map, if too many
    /// such requests are being served, or if the block cannot be copied.
    pub fn serve_copy(&self, request: &CopyRequest) -> Result<BlockGroup, BlockError> {
        let epoch = self.inner.bricks.map().epoch;
        if epoch < request.epoch {
            let why =
                format!("the cluster map known here has epoch {epoch}, and {} is needed", request.epoch);
            return Err(BlockError::Unreachable(why));
        }
        let Some(_permit) = self.inner.delegated.try_acquire() else {
            let why = format!("{DELEGATED_COPIES_MAX} delegated copies are in progress");
            return Err(BlockError::Unreachable(why));
        };
        self.inner.copy_locally(request.id, request.info, request.task)
    }
}

impl Inner {
    /// Copies a block, or has a node that has it copy it.
    pub(super) fn copy_or_delegate(
        self: &Arc<Inner>,
        id: BlockId,
        info: BlockInfo,
        task: CopyTask,
    ) -> Result<BlockGroup, BlockError> {
        match self.delegate(id, info, task) {
            Some(group) => Ok(group),
            None => self.copy_locally(id, info, task),
        }
    }

    fn copy_locally(
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

    /// Has another node copy a block. The reply is its new group; `None`: that node has not copied it.
    fn delegate(self: &Arc<Inner>, id: BlockId, info: BlockInfo, task: CopyTask) -> Option<BlockGroup> {
        let map = self.bricks.map();
        let node = self.delegate_node(&map, id, &info.group)?;
        let request = CopyRequest { id, info, task, epoch: map.epoch };
        self.bricks.request_copy(node, self.volume, &request).filter(|group| *group != info.group)
    }

    /// The node that copies a block: its holders in round-robin order. `None`: this one.
    fn delegate_node(self: &Arc<Inner>, map: &ClusterMap, id: BlockId, group: &BlockGroup) -> Option<NodeId> {
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
