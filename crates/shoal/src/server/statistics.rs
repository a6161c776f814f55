//! The counters of this node, for its control socket.

use super::context::ServerContext;
use super::groups::Figures;
use super::healing::lacking;
use crate::control::{HealStatistics, NodeStatistics, ReplicaStatistics, Statistics};
use crate::memory;
use crate::mount_report::{number, reports, resident_bytes, traffic_figures};
use shoal_cluster::ClusterMap;
use shoal_types::{GroupId, ReplicaId};

impl ServerContext {
    /// The counts of this node since its server started.
    pub(super) fn statistics(&self) -> Statistics {
        let map = self.view.map();
        let replica = |(group, id, figures): (GroupId, ReplicaId, Option<Figures>)| {
            let runs = figures.is_some();
            let Figures { numbers, steps, requests } = figures.unwrap_or_default();
            ReplicaStatistics {
                volume: volume_name(&map, group),
                id: id.0,
                runs,
                leads: self.groups.leads(group),
                figures: numbers.into_iter().map(|(name, value)| number(name, value)).collect(),
                steps: reports(&steps),
                requests: reports(&requests),
                heal: self.lacks(group),
            }
        };
        let traffic = self.view.network().traffic();
        let node = NodeStatistics {
            name: self.dir.identity().name.clone(),
            cluster: format!("{:032x}", self.cluster),
            epoch: map.epoch,
            fenced: self.fenced.get().is_some(),
            figures: traffic_figures(traffic).into_iter().chain(memory::figures()).collect(),
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

    /// Degraded blocks of a volume that this node leads, as its healer counts them. Does not read the store,
    /// because it is called every few seconds.
    fn lacks(&self, volume: GroupId) -> Option<HealStatistics> {
        let group = self.opener.volume(volume).filter(|group| group.server().replica().leads())?;
        let status = group.server().heal_status();
        Some(HealStatistics {
            degraded_blocks: lacking(&status),
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
