//! Reports of configuration and health.

use super::super::calls::{ReplicaReport, Report};
use super::super::context::ServerContext;
use super::names;
use crate::admin::*;
use crate::limits::{DIGEST_ATTEMPTS, PORT_DEFAULT};
use shoal_cluster::{BrickState, ClusterMap, ReplicaPlace, Tolerance, Volume, kept_free};
use shoal_types::{BlockScheme, BrickId, GroupId, NodeId, Tier, Timestamp};
use std::collections::BTreeMap;

type Reports = BTreeMap<NodeId, Report>;

/// The name under which digests of the cluster map are taken, if no volume has it.
const MAP_NAME: &str = "cluster";

pub(super) fn seconds(time: Timestamp) -> u64 {
    time.secs.unsigned_abs()
}

impl ServerContext {
    pub(super) fn cluster_report(&self) -> ClusterReport {
        let reports = self.gather(false);
        let map = self.view.map();
        let volumes = map.volumes.iter().map(|(id, volume)| self.health(&map, &reports, *id, volume));
        let report = ClusterReport {
            cluster: format!("{:032x}", map.cluster),
            epoch: map.epoch,
            node: map.nodes.get(&self.node).map_or_else(String::new, |node| node.name.clone()),
            nodes: self.peers(&reports),
            map: replicas(&map, &reports, GroupId::CLUSTER),
            volumes: volumes.collect(),
            deleting: deleting(&map, &reports),
            attention: Vec::new(),
        };
        report.with_attention()
    }

    fn health(&self, map: &ClusterMap, reports: &Reports, id: GroupId, volume: &Volume) -> VolumeHealth {
        let bricks = bricks(map, reports, id);
        let replicas = replicas(map, reports, id);
        let leads = |report: &Report| report.replicas.iter().any(|one| one.group == id && one.leads);
        let has_leader = reports.values().any(leads);
        VolumeHealth {
            name: volume.name.clone(),
            state: state(volume),
            bricks_online: bricks.iter().filter(|brick| brick.online).count() as u32,
            bricks: bricks.len() as u32,
            replicas_online: replicas.iter().filter(|replica| replica.online).count() as u32,
            replicas: replicas.len() as u32,
            has_leader,
            degraded: if has_leader { self.degraded(id) } else { None },
            full_bricks: full(map, id, &bricks),
        }
    }

    pub(super) fn peers(&self, reports: &Reports) -> Vec<PeerReport> {
        let map = self.view.map();
        let peer = |(id, node): (&NodeId, &shoal_cluster::Node)| {
            let report = reports.get(id);
            PeerReport {
                node: id.0,
                name: node.name.clone(),
                address: node.address.clone(),
                connected: report.is_some(),
                local: *id == self.node,
                version: report.map(|report| report.version.clone()),
                pid: report.map(|report| report.pid),
                uptime_s: report.map(|report| report.uptime_s),
                epoch: report.map(|report| report.epoch),
            }
        };
        map.nodes.iter().map(peer).collect()
    }

    pub(super) fn volumes(&self, name: Option<&str>) -> Result<Vec<VolumeReport>, String> {
        let map = self.view.map();
        let one = |(id, volume): (GroupId, &Volume)| {
            let place = |(brick_id, brick): (BrickId, &shoal_cluster::Brick)| BrickPlace {
                id: brick_id.0,
                brick: names::called(&map, brick),
                draining: brick.state == BrickState::Draining,
                hot: map.tier_of(id, brick_id) == Tier::Hot,
            };
            let called = |place: &ReplicaPlace| Some(map.nodes.get(&place.node)?.name.clone());
            let survives = Tolerance::of(&map, id).unwrap_or_default();
            let arbiters = map.arbiters.get(&id).into_iter().flatten();
            VolumeReport {
                name: volume.name.clone(),
                id: id.to_string(),
                state: state(volume),
                replica: map.scheme_in(id, Tier::Cold).map_or(volume.replica, BlockScheme::copies),
                shards: map.schemes.get(&id).map(|shards| (shards.data, shards.parity)),
                created: seconds(volume.created),
                bricks: map.bricks_of(id).map(place).collect(),
                metadata: volume.replicas.iter().filter_map(called).collect(),
                arbiters: arbiters.filter_map(|node| Some(map.nodes.get(node)?.name.clone())).collect(),
                data_nodes_may_be_down: survives.data as u32,
                metadata_nodes_may_be_down: survives.metadata as u32,
                options: volume.options.clone(),
            }
        };
        Ok(chosen(&map, name)?.into_iter().map(one).collect())
    }

    pub(super) fn statuses(&self, name: Option<&str>, digest: bool) -> Result<Vec<VolumeStatus>, String> {
        // Checked before other nodes are contacted: there may be no such volume.
        chosen(&self.view.map(), name)?;
        let reports = self.gather(digest);
        let map = self.view.map();
        let status = |(id, volume): (GroupId, &Volume)| VolumeStatus {
            name: volume.name.clone(),
            state: state(volume),
            bricks: bricks(&map, &reports, id),
            replicas: replicas(&map, &reports, id),
        };
        Ok(chosen(&map, name)?.into_iter().map(status).collect())
    }

    /// Digests, taken again until the running replicas are at one index, for a bounded number of rounds.
    pub(super) fn digests(&self, name: &str) -> Result<VolumeStatus, String> {
        let map = self.view.map();
        let (group, state) = match names::volume(&map, name) {
            Ok((id, volume)) => (id, state(volume)),
            Err(_) if name == MAP_NAME => (GroupId::CLUSTER, VolumeState::Started),
            Err(why) => return Err(why),
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let replicas = replicas(&map, &self.gather(true), group);
            let mut indexes =
                replicas.iter().filter_map(|one| one.digest.as_ref()).map(|digest| digest.index);
            let first = indexes.next();
            if indexes.all(|index| Some(index) == first) || attempt >= DIGEST_ATTEMPTS {
                return Ok(VolumeStatus { name: name.to_owned(), state, bricks: Vec::new(), replicas });
            }
        }
    }

    pub(super) fn clients(&self) -> Vec<ClientReport> {
        let map = self.view.map();
        let issued = map.clients.iter().map(|(name, time)| ClientReport {
            name: name.clone(),
            issued: Some(seconds(*time)),
            revoked: false,
        });
        let revoked =
            map.revoked.iter().map(|name| ClientReport { name: name.clone(), issued: None, revoked: true });
        let mut clients: Vec<_> = issued.chain(revoked).collect();
        clients.sort_by(|a, b| a.name.cmp(&b.name));
        clients
    }
}

/// Retired bricks whose files are being deleted, on all nodes that answer.
fn deleting(map: &ClusterMap, reports: &Reports) -> Vec<DeletingReport> {
    let mut all = Vec::new();
    for (node, report) in reports {
        let host = map.nodes.get(node).map_or_else(|| node.to_string(), |node| node.name.clone());
        all.extend(report.retired.iter().map(|one| DeletingReport {
            brick: BrickName { host: host.clone(), path: one.path.clone() },
            deleted_blocks: one.deleted_blocks,
            trouble: one.trouble.clone(),
        }));
    }
    all
}

/// All volumes by name, or the one that is asked for.
pub(super) fn chosen<'a>(
    map: &'a ClusterMap,
    name: Option<&str>,
) -> Result<Vec<(GroupId, &'a Volume)>, String> {
    if let Some(name) = name {
        return Ok(vec![names::volume(map, name)?]);
    }
    let mut all: Vec<_> = map.volumes.iter().map(|(id, volume)| (*id, volume)).collect();
    all.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    Ok(all)
}

pub(super) fn state(volume: &Volume) -> VolumeState {
    match volume.state {
        shoal_cluster::VolumeState::Created => VolumeState::Created,
        shoal_cluster::VolumeState::Started => VolumeState::Started,
        shoal_cluster::VolumeState::Stopped => VolumeState::Stopped,
    }
}

/// The state of a volume's bricks.
pub(super) fn bricks(map: &ClusterMap, reports: &Reports, volume: GroupId) -> Vec<BrickStatus> {
    let status = |(id, brick): (BrickId, &shoal_cluster::Brick)| {
        let report = reports.get(&brick.node);
        let found = report.and_then(|report| report.bricks.iter().find(|one| one.id == id));
        let trouble = match (report, found) {
            (None, _) => Some("its node does not answer".to_owned()),
            (_, None) => Some("its node has not opened it yet".to_owned()),
            (_, Some(found)) => found.offline.clone(),
        };
        let online = trouble.is_none();
        let port = map.nodes.get(&brick.node).and_then(|node| node.address.rsplit_once(':')?.1.parse().ok());
        BrickStatus {
            id: id.0,
            brick: names::called(map, brick),
            online,
            trouble,
            draining: brick.state == BrickState::Draining,
            port: port.unwrap_or(PORT_DEFAULT),
            pid: report.map(|report| report.pid),
            total_bytes: found.filter(|_| online).map(|found| found.total_bytes),
            free_bytes: found.filter(|_| online).map(|found| found.free_bytes),
        }
    };
    map.bricks_of(volume).map(status).collect()
}

/// The bricks of a volume that take no more blocks, those of its hot tier left out.
fn full(map: &ClusterMap, volume: GroupId, bricks: &[BrickStatus]) -> Vec<BrickName> {
    let full = bricks.iter().filter(|brick| {
        map.tier_of(volume, BrickId(brick.id)) == Tier::Cold
            && has_no_room(brick.total_bytes, brick.free_bytes)
    });
    full.map(|brick| brick.brick.clone()).collect()
}

/// Whether a disk of this size with so much room gets no more blocks.
fn has_no_room(total_bytes: Option<u64>, free_bytes: Option<u64>) -> bool {
    let (Some(total), Some(free)) = (total_bytes, free_bytes) else { return false };
    total > 0 && free < kept_free(total)
}

/// The state of a group's replicas.
fn replicas(map: &ClusterMap, reports: &Reports, group: GroupId) -> Vec<ReplicaStatus> {
    let find = |place: &ReplicaPlace| -> Option<&ReplicaReport> {
        reports.get(&place.node)?.replicas.iter().find(|one| one.group == group && one.id == place.id)
    };
    let places = map.replicas(group);
    let foremost = places.iter().filter_map(find).filter(|one| one.runs).map(|one| one.applied).max();
    let status = |place: &ReplicaPlace| {
        let found = find(place);
        let running = found.filter(|one| one.runs);
        ReplicaStatus {
            replica: place.id.0,
            node: map.nodes.get(&place.node).map_or_else(|| place.node.to_string(), |node| node.name.clone()),
            online: running.is_some(),
            role: match (found, reports.contains_key(&place.node)) {
                (Some(report), _) => report.role.clone(),
                (None, true) => "not opened yet".into(),
                (None, false) => "its node does not answer".into(),
            },
            term: running.map(|one| one.term),
            applied: running.map(|one| one.applied),
            lag: running.and_then(|one| Some(foremost?.saturating_sub(one.applied))),
            digest: running
                .and_then(|one| one.digest)
                .map(|(index, digest)| DigestReport { index, digest: format!("{digest:032x}") }),
        }
    };
    places.iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::limits::ROOM_LOW_BYTES;

    #[test]
    fn disk_has_no_room_below_the_free_space_at_which_writers_pass_it_over() {
        let disk = Some(100 << 30);
        assert!(has_no_room(disk, Some(0)) && has_no_room(disk, Some(ROOM_LOW_BYTES - 1)));
        assert!(!has_no_room(disk, Some(ROOM_LOW_BYTES)));
        assert!(!has_no_room(Some(160 << 20), Some(10 << 20)), "a small disk has less to spare");
        assert!(!has_no_room(None, None) && !has_no_room(Some(0), Some(0)), "its size is not known");
    }
}
