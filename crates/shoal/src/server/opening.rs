//! Opening the replicas of this node: of the group that holds the cluster map, and of volumes.

use super::calls::ReplicaReport;
use super::dir::NodeDir;
use super::directory::Directory;
use super::groups::{Group, Opener};
use super::machine::{self, MapMachine};
use super::peers::GroupPeers;
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_cluster::{Brick, Bricks, ClusterMap, Outcome, ReplicaPlace, ReplicatedBlocks};
use shoal_meta::{HealStatus, Machine, Replica, ReplicaOptions, Server, fetch_state};
use shoal_types::{BrickId, GroupId, ReplicaId};
use shoal_wire::MetaError;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The replica that holds the cluster map.
pub struct MapGroup {
    replica: Replica<MapMachine>,
    id: ReplicaId,
}

impl MapGroup {
    /// Has a change decided.
    pub fn propose(&self, command: Vec<u8>) -> Result<Outcome, MetaError> {
        self.replica.ensure_leading()?;
        self.replica.propose(command)
    }
}

/// A replica of a volume's metadata group.
pub struct VolumeGroup {
    server: Arc<Server>,
    group: GroupId,
    id: ReplicaId,
    seen: Mutex<Seen>,
}

/// What a volume's replica has made of the map so far.
#[derive(Default)]
struct Seen {
    /// Bricks and how they are used.
    bricks: Vec<(BrickId, Brick)>,
    /// Rebalances that the map asked for, those of before this process included.
    rebalance: Option<u64>,
    /// Rebalances that this process was asked for.
    asked: u64,
}

impl VolumeGroup {
    /// Whether a rebalance is still to come to its end.
    pub fn awaits_rebalance(&self, status: &HealStatus) -> bool {
        self.seen.lock().asked > status.rebalances
    }

    /// What it serves.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

/// See the module.
pub struct LocalOpener {
    dir: Arc<NodeDir>,
    directory: Arc<Directory>,
    /// Where there are two of a group, one of which the map does not name any more, it is the other.
    map: Mutex<Weak<MapGroup>>,
    /// The same.
    volumes: Mutex<std::collections::HashMap<GroupId, Weak<VolumeGroup>>>,
}

impl LocalOpener {
    /// Nothing is open.
    pub fn new(dir: Arc<NodeDir>, directory: Arc<Directory>) -> LocalOpener {
        LocalOpener { dir, directory, map: Mutex::default(), volumes: Mutex::default() }
    }

    /// The replica that holds the map, if it is open here.
    pub fn map_group(&self) -> Option<Arc<MapGroup>> {
        self.map.lock().upgrade()
    }

    /// The replica of a volume, if it is open here.
    pub fn volume(&self, group: GroupId) -> Option<Arc<VolumeGroup>> {
        self.volumes.lock().get(&group)?.upgrade()
    }

    /// Sees to it that there is something to open: the empty directory of a founder, the state of another replica, or what was here
    /// before.
    fn prepare(
        &self,
        path: &Path,
        place: &ReplicaPlace,
        peers: &GroupPeers,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let shown = path.display();
        if self.dir.made_replica(place.id) {
            if path.exists() {
                return Ok(());
            }
            return Err(format!(
                "{shown} is missing, and {} was there before: is its disk mounted? If it is lost, detach this node (`shoal peer \
                 detach`, with `force`) and join anew with an empty data directory",
                place.id
            ));
        }
        if founders(&self.directory.map(), peers.group, place).is_some() {
            make_durable(path).map_err(|error| format!("{shown}: {error}"))?;
        } else {
            if let Some(parent) = path.parent() {
                make_durable(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
            }
            fetch_state(path, peers, &|| stop.load(Ordering::Acquire))?;
        }
        self.dir.begin_replica(place.id).map(drop).map_err(|error| format!("{error:#}"))
    }
}

/// Those that a group begins with, if this one is among them and the group is still as it began: one that comes later gets the state
/// of those that have begun.
fn founders(map: &ClusterMap, group: GroupId, place: &ReplicaPlace) -> Option<Vec<ReplicaId>> {
    let places = map.replicas(group);
    let all = place.founder && places.iter().all(|place| place.founder);
    all.then(|| places.iter().map(|place| place.id).collect())
}

fn make_durable(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for changed in dir.ancestors().take(3) {
        std::fs::File::open(changed)?.sync_all()?;
    }
    Ok(())
}

impl Opener for LocalOpener {
    fn open(
        &self,
        group: GroupId,
        place: &ReplicaPlace,
        stop: &AtomicBool,
    ) -> Result<Arc<dyn Group>, String> {
        let path = self.dir.replica(group, place.id);
        let peers = Arc::new(GroupPeers { directory: self.directory.clone(), group, me: place.id });
        self.prepare(&path, place, &peers, stop)?;
        let map = self.directory.map();
        let named = map.node_of(group, place.id).is_some();
        let options =
            ReplicaOptions { group, id: place.id, founders: founders(&map, group, place), log_bytes: None };
        let failed = |error: shoal_meta::OpenError| format!("{}: {error}", path.display());
        if group == GroupId::CLUSTER {
            let directory = self.directory.clone();
            let machine = Arc::new(MapMachine::new(move |map| directory.learn(map)));
            let replica = Replica::open(&path, options, peers, machine).map_err(failed)?;
            self.directory.learn(machine::read(&**replica.store())?);
            let replica = Arc::new(MapGroup { replica, id: place.id });
            let mut known = self.map.lock();
            if named || known.upgrade().is_none() {
                *known = Arc::downgrade(&replica);
            }
            return Ok(replica);
        }
        let volume = map.volumes.get(&group).ok_or("the volume is not there any more")?;
        let bricks: Arc<dyn Bricks> = self.directory.clone();
        let blocks = ReplicatedBlocks::new(group, bricks);
        let returns = blocks.clone();
        let create =
            shoal_meta::Options { create: Some(group.0), replica: volume.replica, ..Default::default() };
        let server = Server::open_replica(&path, blocks, create, options, peers).map_err(failed)?;
        let told = Arc::downgrade(&server);
        returns.when_a_brick_returns(move || {
            if let Some(server) = told.upgrade() {
                server.placement_changed();
            }
        });
        let replica =
            Arc::new(VolumeGroup { server: server.clone(), group, id: place.id, seen: Mutex::default() });
        let mut volumes = self.volumes.lock();
        if named || volumes.get(&group).is_none_or(|known| known.strong_count() == 0) {
            volumes.insert(group, Arc::downgrade(&replica));
            self.directory.serve_meta(group, server);
        }
        Ok(replica)
    }

    fn closing(&self, group: GroupId, id: ReplicaId) {
        let mut volumes = self.volumes.lock();
        let known = volumes.get(&group).and_then(Weak::upgrade);
        if known.is_some_and(|known| known.id == id) {
            volumes.remove(&group);
            self.directory.drop_meta(group);
        }
    }
}

fn members<M: Machine>(replica: &Replica<M>) -> Vec<ReplicaId> {
    let status = replica.status();
    status.voters.into_iter().chain(status.learners).collect()
}

fn report<M: Machine>(replica: &Replica<M>, group: GroupId, id: ReplicaId, digest: bool) -> ReplicaReport {
    let status = replica.status();
    let digest = if digest { replica.digest().ok() } else { None };
    ReplicaReport {
        group,
        id,
        runs: replica.failure().is_none(),
        role: replica.failure().unwrap_or_else(|| status.role.to_string()),
        leads: replica.leads(),
        term: status.term,
        applied: replica.applied(),
        members: status.voters,
        digest,
    }
}

impl Group for MapGroup {
    fn receive(&self, from: ReplicaId, message: &[u8]) {
        self.replica.receive(from, message);
    }
    fn answer(&self, request: &[u8]) -> Result<Bytes, String> {
        self.replica.answer(request)
    }
    fn leads(&self) -> bool {
        self.replica.leads()
    }
    fn steer(&self, wanted: &[ReplicaId]) {
        self.replica.steer(wanted);
    }
    fn map_changed(&self, _: &ClusterMap) {}
    fn needs_reopening(&self) -> bool {
        self.replica.needs_reopening()
    }
    fn failure(&self) -> Option<String> {
        self.replica.failure()
    }
    fn leader(&self) -> Option<ReplicaId> {
        self.replica.status().leader
    }
    fn members(&self) -> Vec<ReplicaId> {
        members(&self.replica)
    }
    fn report(&self, digest: bool) -> ReplicaReport {
        report(&self.replica, GroupId::CLUSTER, self.id, digest)
    }
    fn shutdown(&self) {
        self.replica.shutdown();
    }
}

impl Group for VolumeGroup {
    fn receive(&self, from: ReplicaId, message: &[u8]) {
        self.server.replica().receive(from, message);
    }
    fn answer(&self, request: &[u8]) -> Result<Bytes, String> {
        self.server.replica().answer(request)
    }
    fn leads(&self) -> bool {
        self.server.replica().leads()
    }
    fn steer(&self, wanted: &[ReplicaId]) {
        self.server.replica().steer(wanted);
    }
    fn map_changed(&self, map: &ClusterMap) {
        let Some(volume) = map.volumes.get(&self.group) else { return };
        let rate = map.option(self.group, "heal.bytes-per-second").and_then(|rate| rate.parse().ok());
        self.server.set_heal_rate(rate.unwrap_or(0));
        let mut seen = self.seen.lock();
        let bricks: Vec<_> =
            volume.bricks.iter().filter_map(|id| Some((*id, map.bricks.get(id)?.clone()))).collect();
        if seen.bricks != bricks {
            seen.bricks = bricks;
            self.server.placement_changed();
        }
        if seen.rebalance.is_some_and(|before| before < volume.rebalance) {
            seen.asked += 1;
            self.server.rebalance();
        }
        seen.rebalance = Some(volume.rebalance);
    }
    fn needs_reopening(&self) -> bool {
        self.server.replica().needs_reopening()
    }
    fn failure(&self) -> Option<String> {
        self.server.replica().failure()
    }
    fn leader(&self) -> Option<ReplicaId> {
        self.server.replica().status().leader
    }
    fn members(&self) -> Vec<ReplicaId> {
        members(self.server.replica())
    }
    fn report(&self, digest: bool) -> ReplicaReport {
        report(self.server.replica(), self.group, self.id, digest)
    }
    fn shutdown(&self) {
        self.server.shutdown();
    }
}
