//! Opens the replicas of this node: of the group that holds the cluster map, and of volumes.

use super::calls::ReplicaReport;
use super::cluster_view::ClusterView;
use super::groups::{Figures, Group, Opener};
use super::machine::{self, MapMachine};
use super::node_dir::NodeDir;
use super::peers::GroupPeers;
use crate::limits::REBALANCE_NEWS_PATIENCE;
use crate::measure::{MeasuredMeta, MetaWatches, op_stats};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_cluster::{
    Brick, Bricks, ClusterMap, FOUNDERS_MAX, Outcome, ReplicaPlace, ReplicatedBlocks, options,
};
use shoal_fuse::OpStats;
use shoal_meta::{HealStatus, Machine, Replica, ReplicaOptions, Server, TierSettings, fetch_state};
use shoal_types::{BlockScheme, BrickId, GroupId, ReplicaId, Schemes, Tier, parse_bytes};
use shoal_wire::MetaError;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The replica that holds the cluster map.
pub struct MapGroup {
    replica: Replica<MapMachine>,
    id: ReplicaId,
}

impl MapGroup {
    /// Proposes a change and waits for its outcome.
    pub fn propose(&self, command: Vec<u8>) -> Result<Outcome, MetaError> {
        self.replica.ensure_leading()?;
        self.replica.propose(command)
    }
}

/// A replica of a volume's metadata group.
pub struct VolumeGroup {
    server: Arc<Server>,
    /// Its requests, measured.
    requests: Arc<MetaWatches>,
    group: GroupId,
    id: ReplicaId,
    seen: Mutex<Seen>,
    /// The rebalance that had not completed when this node's server ended.
    interrupted: Option<u64>,
}

/// State that a volume's replica derives from the map.
#[derive(Default)]
struct Seen {
    /// Bricks and their states, the schemes of the cold tier, and those of directories.
    placement: (Vec<(BrickId, Brick)>, Vec<BlockScheme>, Schemes),
    /// Rebalances that the map has requested, those before this process included.
    rebalance: Option<u64>,
    /// Rebalances that were requested of this process, and when the last one was.
    asked: u64,
    asked_at: Option<Instant>,
}

impl VolumeGroup {
    /// Whether a requested rebalance has not completed yet.
    pub fn awaits_rebalance(&self, status: &HealStatus) -> bool {
        self.seen.lock().asked > status.rebalances
    }

    /// The replica, and the rebalance that has not completed: a restart has to resume it. `None` before the
    /// replica has seen the map.
    pub fn unfinished_rebalance(&self) -> Option<(ReplicaId, Option<u64>)> {
        let completed = self.server.heal_status().rebalances;
        let seen = self.seen.lock();
        let rebalance = seen.rebalance?;
        Some((self.id, (seen.asked > completed).then_some(rebalance)))
    }

    /// Cancels the request for this rebalance: the leader, which is another replica, has completed it.
    pub fn rebalance_is_completed(&self, rebalance: u64) {
        let seen = self.seen.lock();
        let is_old = seen.asked_at.is_some_and(|at| at.elapsed() > REBALANCE_NEWS_PATIENCE);
        if seen.rebalance == Some(rebalance) && is_old && !self.server.replica().leads() {
            self.server.stop_rebalance();
        }
    }

    /// The metadata server of the volume.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

/// Opens replicas, and finds those that are open.
pub struct LocalOpener {
    dir: Arc<NodeDir>,
    view: Arc<ClusterView>,
    /// The open replica of the map's group. If two are open, the one that the map names.
    map: Mutex<Weak<MapGroup>>,
    /// The open replica of each volume; if two are open, the one that the map names.
    volumes: Mutex<std::collections::HashMap<GroupId, Weak<VolumeGroup>>>,
}

impl LocalOpener {
    /// Nothing is open.
    pub fn new(dir: Arc<NodeDir>, view: Arc<ClusterView>) -> LocalOpener {
        LocalOpener { dir, view, map: Mutex::default(), volumes: Mutex::default() }
    }

    /// The replica that holds the map, if it is open here.
    pub fn map_group(&self) -> Option<Arc<MapGroup>> {
        self.map.lock().upgrade()
    }

    /// The replica of a volume, if it is open here.
    pub fn volume(&self, group: GroupId) -> Option<Arc<VolumeGroup>> {
        self.volumes.lock().get(&group)?.upgrade()
    }

    /// Creates what opening a replica requires: an empty directory for a founder, or the state fetched from
    /// another replica. A replica that was made here before must still be there.
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
        if founders(&self.view.map(), peers.group, place).is_some() {
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

/// The replicas that a new group begins with, if this one is among them and the map still names them all.
/// Otherwise this one fetches the state of a replica that has begun. Replicas may have been added to the
/// founders before the group has begun; they fetch a state as well.
fn founders(map: &ClusterMap, group: GroupId, place: &ReplicaPlace) -> Option<Vec<ReplicaId>> {
    let places = map.replicas(group);
    let founders: Vec<ReplicaId> = places.iter().filter(|one| one.founder).map(|one| one.id).collect();
    let are_all = founders.len() == places.len() || founders.len() == FOUNDERS_MAX;
    (place.founder && are_all).then_some(founders)
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
        let peers = Arc::new(GroupPeers { view: self.view.clone(), group, me: place.id });
        self.prepare(&path, place, &peers, stop)?;
        let map = self.view.map();
        let named = map.node_of(group, place.id).is_some();
        let options =
            ReplicaOptions { group, id: place.id, founders: founders(&map, group, place), log_bytes: None };
        let failed = |error: shoal_meta::OpenError| format!("{}: {error}", path.display());
        if group == GroupId::CLUSTER {
            let view = self.view.clone();
            let machine = Arc::new(MapMachine::new(move |map| view.learn(map)));
            let replica = Replica::open(&path, options, peers, machine).map_err(failed)?;
            self.view.learn(machine::read(&**replica.store())?);
            let replica = Arc::new(MapGroup { replica, id: place.id });
            let mut known = self.map.lock();
            if named || known.upgrade().is_none() {
                *known = Arc::downgrade(&replica);
            }
            return Ok(replica);
        }
        let volume = map.volumes.get(&group).ok_or("the volume is not there any more")?;
        let bricks: Arc<dyn Bricks> = self.view.clone();
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
        let requests = Arc::new(MetaWatches::default());
        let measured = MeasuredMeta::new(server.clone(), requests.clone());
        let (id, seen) = (place.id, Mutex::default());
        let interrupted = self.dir.unfinished_rebalance(id);
        let replica = Arc::new(VolumeGroup { server, requests, group, id, seen, interrupted });
        let mut volumes = self.volumes.lock();
        if named || volumes.get(&group).is_none_or(|known| known.strong_count() == 0) {
            volumes.insert(group, Arc::downgrade(&replica));
            self.view.serve_meta(group, Arc::new(measured));
        }
        Ok(replica)
    }

    fn closing(&self, group: GroupId, id: ReplicaId) {
        let mut volumes = self.volumes.lock();
        let known = volumes.get(&group).and_then(Weak::upgrade);
        if known.is_some_and(|known| known.id == id) {
            volumes.remove(&group);
            self.view.drop_meta(group);
        }
    }
}

fn steps<M: Machine>(replica: &Replica<M>) -> Vec<OpStats> {
    let steps = replica.latencies();
    steps.iter().map(|(name, latency)| op_stats(name, latency)).collect()
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
    fn set_wanted_members(&self, wanted: &[ReplicaId]) {
        self.replica.set_wanted_members(wanted);
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
    fn figures(&self) -> Figures {
        Figures { numbers: self.replica.stats(), steps: steps(&self.replica), requests: Vec::new() }
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
    fn set_wanted_members(&self, wanted: &[ReplicaId]) {
        self.server.replica().set_wanted_members(wanted);
    }
    fn map_changed(&self, map: &ClusterMap) {
        let Some(volume) = map.volumes.get(&self.group) else { return };
        let rate = map.option(self.group, "heal.bytes-per-second").and_then(|rate| parse_bytes(&rate).ok());
        self.server.set_heal_rate(rate.unwrap_or(0));
        self.server.set_tiers(tier_settings(map, self.group));
        let mut seen = self.seen.lock();
        let bricks: Vec<_> =
            volume.bricks.iter().filter_map(|id| Some((*id, map.bricks.get(id)?.clone()))).collect();
        let schemes = map.schemes_in(self.group, Tier::Cold).collect();
        let placement = (bricks, schemes, map.policies(self.group).schemes);
        if seen.placement != placement {
            seen.placement = placement;
            self.server.placement_changed();
        }
        let has_changed = match seen.rebalance {
            Some(before) => before != volume.rebalance,
            None => self.interrupted == Some(volume.rebalance),
        };
        if has_changed {
            if volume.is_rebalance_stopped() {
                self.server.stop_rebalance();
            } else {
                seen.asked += 1;
                seen.asked_at = Some(Instant::now());
                self.server.rebalance();
            }
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
    fn figures(&self) -> Figures {
        let (numbers, steps) = (self.server.stats(), steps(self.server.replica()));
        Figures { numbers, steps, requests: self.requests.stats() }
    }
    fn report(&self, digest: bool) -> ReplicaReport {
        report(self.server.replica(), self.group, self.id, digest)
    }
    fn shutdown(&self) {
        self.server.shutdown();
    }
}

/// The settings by which blocks move between the tiers of a volume; `None`: it has no hot tier.
pub(super) fn tier_settings(map: &ClusterMap, volume: GroupId) -> Option<TierSettings> {
    let tier = map.tiers.get(&volume)?;
    let set = |key: &str| map.option(volume, key).unwrap_or_default();
    Some(TierSettings {
        detaching: tier.detaching,
        demote_after_s: options::parse_seconds(&set(options::TIER_DEMOTE_AFTER)).unwrap_or(u64::MAX),
        rest_s: shoal_meta::limits::TIER_REST_S,
        promote_reads: set(options::TIER_PROMOTE_READS).parse().unwrap_or(0),
        high_percent: set(options::TIER_HIGH_WATERMARK).parse().unwrap_or(100),
        low_percent: set(options::TIER_LOW_WATERMARK).parse().unwrap_or(100),
        bytes_per_second: parse_bytes(&set(options::TIER_BYTES_PER_SECOND)).unwrap_or(0),
        paused: set(options::TIER_PAUSE) == "on",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::{Command, apply};
    use shoal_types::{NodeId, Timestamp};

    const VOLUME: GroupId = GroupId(9);
    const SECRET: u128 = 1;

    fn then(map: &ClusterMap, command: &Command) -> ClusterMap {
        let (next, outcome) = apply(map, command);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{command:?}: {outcome:?}");
        next
    }

    /// A map of `nodes` nodes, with a volume that has a brick on each of the first three.
    fn map(nodes: u32) -> ClusterMap {
        let (time, expires) = (Timestamp::default(), Timestamp { secs: 1, nanos: 0 });
        let node = |number: u32| (format!("n{number}"), format!("n{number}:7470"));
        let (name, address) = node(1);
        let init = Command::Init { cluster: 7, name, address, authority: "pem".into(), time };
        let map = then(&ClusterMap::default(), &init);
        let map = then(&map, &Command::IssueToken { secret: SECRET, expires, time });
        let map = (2..=nodes).map(node).fold(map, |map, (name, address)| {
            then(&map, &Command::Join { secret: SECRET, name, address, time })
        });
        let bricks = (1..=nodes.min(3)).map(|node| (NodeId(node), "/b".into())).collect();
        let (name, id) = ("v".to_owned(), VOLUME);
        then(&map, &Command::CreateVolume { name, id, replica: 1, bricks, force: true, time })
    }

    fn with_replicas(map: &ClusterMap, count: &str) -> ClusterMap {
        let (key, value) = ("cluster.metadata-replicas".to_owned(), Some(count.to_owned()));
        then(map, &Command::SetOption { volume: VOLUME, key, value })
    }

    fn founders_by_place(map: &ClusterMap) -> Vec<Option<Vec<ReplicaId>>> {
        map.replicas(VOLUME).iter().map(|place| founders(map, VOLUME, place)).collect()
    }

    #[test]
    fn group_that_grows_before_it_has_begun_begins_with_its_founders() {
        let map = map(5);
        let all: Vec<ReplicaId> = map.replicas(VOLUME).iter().map(|place| place.id).collect();
        assert_eq!(all.len(), FOUNDERS_MAX);
        let begin = vec![Some(all); 3];
        assert_eq!(founders_by_place(&map), begin);
        let larger = founders_by_place(&with_replicas(&map, "5"));
        assert_eq!(larger, [&begin[..], &[None, None]].concat());
    }

    #[test]
    fn group_does_not_begin_while_a_founder_is_missing() {
        let lost = then(&map(5), &Command::Detach { node: NodeId(2), force: true });
        for map in [with_replicas(&lost, "5"), lost] {
            let begin = founders_by_place(&map);
            assert!(begin.len() == 3 && begin.iter().all(Option::is_none), "{begin:?}");
        }
    }

    #[test]
    fn a_group_of_one_begins_alone() {
        let begun = founders_by_place(&map(1));
        assert!(matches!(&begun[..], [Some(alone)] if alone.len() == 1), "{begun:?}");
    }
}
