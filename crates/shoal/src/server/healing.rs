//! Requests to the healer of a volume's leader.

use super::calls::{Heal, NodeReply, NodeRequest};
use super::context::ServerContext;
use super::opening::VolumeGroup;
use crate::limits::NODE_REPLY_WAIT_MAX;
use shoal_cluster::ClusterMap;
use shoal_meta::{HealStatus, HealTask};
use shoal_types::{BrickId, GroupId};
use shoal_wire::MetaError;
use std::sync::Arc;

impl ServerContext {
    /// Gets the answer of a volume's leader, which may be this node.
    pub(super) fn led(
        &self,
        volume: GroupId,
        answer: impl FnOnce(&VolumeGroup) -> Result<NodeReply, MetaError>,
    ) -> NodeReply {
        let leads = |one: &Arc<VolumeGroup>| one.server().replica().leads();
        let Some(group) = self.opener.volume(volume).filter(leads) else {
            return NodeReply::NotLeader(self.groups.leader_node(volume));
        };
        answer(&group).unwrap_or_else(|error| NodeReply::Failed(error.to_string()))
    }

    /// The state of healing. With `full`, a check of every block on the bricks is started first.
    pub(super) fn heal(&self, volume: GroupId, full: bool) -> NodeReply {
        self.led(volume, |group| {
            let server = group.server();
            if full {
                server.check_copies();
            }
            let status = server.heal_status();
            Ok(NodeReply::Heal(Heal {
                degraded: server.degraded_count()?.max(lacking(&status)),
                busy: !server.is_healed(),
                rebalancing: status.task == HealTask::Rebalance || group.awaits_rebalance(&status),
                status,
            }))
        })
    }

    /// Records which rebalances have not completed, so that they are resumed after a restart of all servers.
    pub(super) fn record_rebalances(&self, map: &ClusterMap) {
        let groups = map.volumes.keys().filter_map(|volume| self.opener.volume(*volume));
        for (id, rebalance) in groups.filter_map(|group| group.unfinished_rebalance()) {
            if let Err(error) = self.dir.set_unfinished_rebalance(id, rebalance) {
                tracing::warn!(replica = %id, error = format!("{error:#}"), "a rebalance cannot be recorded");
            }
        }
    }

    /// Followers ask the leaders of volumes whether the requested rebalance has completed. A follower that
    /// did not know would repeat it as the next leader.
    pub(super) fn learn_completed_rebalances(&self) {
        for volume in self.view.map().volumes.keys() {
            let Some(group) = self.opener.volume(*volume) else { continue };
            let Some((_, Some(rebalance))) = group.unfinished_rebalance() else { continue };
            if group.server().replica().leads() {
                continue;
            }
            let request = NodeRequest::Heal { volume: *volume };
            let answer = self.request_from_leader(*volume, &request, NODE_REPLY_WAIT_MAX);
            if let Ok((_, NodeReply::Heal(heal))) = answer
                && !heal.rebalancing
            {
                group.rebalance_is_completed(rebalance);
            }
        }
    }

    /// How many blocks are on a brick.
    pub(super) fn blocks_on(&self, volume: GroupId, brick: BrickId) -> NodeReply {
        self.led(volume, |group| {
            let used = group.server().brick_use()?;
            Ok(NodeReply::Blocks(used.get(&brick).map_or(0, |used| used.blocks)))
        })
    }

    /// The use of each brick by the records of blocks.
    pub(super) fn used(&self, volume: GroupId) -> NodeReply {
        self.led(volume, |group| group.server().brick_use().map(NodeReply::Used))
    }
}

/// Blocks that lack copies or shards, as far as the healer of this process has found.
pub(super) fn lacking(status: &HealStatus) -> u64 {
    status.lacking_blocks.max(status.failed_blocks)
}

/// Blocks that lack copies or lie on the wrong bricks, as far as the healer of this process has found. Blocks
/// that a check has yet to examine are not among them.
pub(super) fn to_move(status: &HealStatus) -> u64 {
    let left = status.total_blocks.saturating_sub(status.done_blocks);
    match status.last {
        HealTask::Check => lacking(status),
        _ => left + status.waiting_blocks + status.failed_blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_moved_or_checked_do_not_lack_copies() {
        let moving =
            HealStatus { last: HealTask::Rebalance, total_blocks: 9, done_blocks: 4, ..Default::default() };
        assert_eq!((lacking(&moving), to_move(&moving)), (0, 5));
        let checking = HealStatus { last: HealTask::Check, lacking_blocks: 2, ..moving };
        assert_eq!((lacking(&checking), to_move(&checking)), (2, 2));
    }
}
