//! What this node has counted, for its control socket.

use super::context::ServerContext;
use super::groups::Figures;
use crate::control::{HealStatistics, NodeStatistics, ReplicaStatistics, Statistics};
use crate::mount_report::{number, resident_bytes};
use shoal_cluster::ClusterMap;
use shoal_types::{GroupId, ReplicaId};

impl ServerContext {
    /// What this node has counted since its server started.
    pub(super) fn statistics(&self) -> Statistics {
        let map = self.view.map();
        let replica = |(group, id, figures): (GroupId, ReplicaId, Option<Figures>)| ReplicaStatistics {
            volume: volume_name(&map, group),
            id: id.0,
            runs: figures.is_some(),
            leads: self.groups.leads(group),
            figures: figures.into_iter().flatten().map(|(name, value)| number(name, value)).collect(),
            heal: self.lacks(group),
        };
        let node = NodeStatistics {
            name: self.dir.identity().name.clone(),
            cluster: format!("{:032x}", self.cluster),
            epoch: map.epoch,
            replicas: self.groups.figures().into_iter().map(replica).collect(),
            bricks: self.bricks.statistics(&map),
        };
        Statistics {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.started.elapsed().as_secs(),
            resident_bytes: resident_bytes(),
            node: Some(node),
            ..Statistics::default()
        }
    }

    /// What a volume lacks, as far as its healer has found, if it is led here. Reads nothing from the store:
    /// it is asked every few seconds.
    fn lacks(&self, volume: GroupId) -> Option<HealStatistics> {
        let group = self.opener.volume(volume).filter(|group| group.server().replica().leads())?;
        let status = group.server().heal_status();
        let left = status.total_blocks.saturating_sub(status.done_blocks);
        Some(HealStatistics {
            degraded_blocks: left + status.waiting_blocks + status.failed_blocks,
            failed_blocks: status.failed_blocks,
            moved_blocks: status.all_moved_blocks,
            moved_bytes: status.all_moved_bytes,
        })
    }
}

/// The name of a volume; empty for the group of the cluster map.
pub(super) fn volume_name(map: &ClusterMap, group: GroupId) -> String {
    map.volumes.get(&group).map(|volume| volume.name.clone()).unwrap_or_default()
}
