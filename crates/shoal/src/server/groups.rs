//! The replicas of metadata groups on this node.
//!
//! **Models.** The cluster map says which replicas should run here. Each one is opened on a thread of its
//! own, since replaying a log or fetching a state takes time. One that the map does not name any more runs on
//! until its group does not need it ([`leaving`](super::leaving)), and is then removed.
//!
//! **Promises.** A replica that was open here once is never recreated: if its directory is gone, it stays
//! offline, and the report says so. A replica that joins an existing group begins with the state of another
//! replica.

use super::calls::ReplicaReport;
use super::cluster_view::ClusterView;
use super::leaving::Unnamed;
use super::node_dir::NodeDir;
use crate::limits::{REOPEN_AFTER, REPLICA_GRACE};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_cluster::{ClusterMap, ReplicaPlace};
use shoal_fuse::OpStats;
use shoal_types::{GroupId, NodeId, ReplicaId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The counters of a replica.
#[derive(Default)]
pub struct Figures {
    /// Counters, by name.
    pub numbers: Vec<(&'static str, u64)>,
    /// Latencies of the steps of its proposals.
    pub steps: Vec<OpStats>,
    /// Latencies of the requests that clients made of it.
    pub requests: Vec<OpStats>,
}

/// A replica, of the cluster map or of a volume.
pub trait Group: Send + Sync {
    /// A message from another replica.
    fn receive(&self, from: ReplicaId, message: &[u8]);
    /// A request of another replica.
    fn answer(&self, request: &[u8]) -> Result<Bytes, String>;
    /// Whether it leads its group now.
    fn leads(&self) -> bool;
    /// Passes the wanted members to the group; its leader changes the membership accordingly.
    fn set_wanted_members(&self, wanted: &[ReplicaId]);
    /// Passes a new map, parts of which may concern it.
    fn map_changed(&self, map: &ClusterMap);
    /// Whether it has to be closed and opened again, to adopt a newer state.
    fn needs_reopening(&self) -> bool;
    /// Why it has stopped, if it has.
    fn failure(&self) -> Option<String>;
    /// The leader, as far as it knows.
    fn leader(&self) -> Option<ReplicaId>;
    /// The voters and learners of the group, by the log that this replica has applied; empty if it does not
    /// know them yet.
    fn members(&self) -> Vec<ReplicaId>;
    /// Its state.
    fn report(&self, digest: bool) -> ReplicaReport;
    /// Its counters.
    fn figures(&self) -> Figures;
    /// Transfers the leadership and stops.
    fn shutdown(&self);
}

/// Opens replicas.
pub trait Opener: Send + Sync + 'static {
    /// Opens a replica, and registers its service. `stop` is checked periodically.
    fn open(&self, group: GroupId, place: &ReplicaPlace, stop: &AtomicBool)
    -> Result<Arc<dyn Group>, String>;
    /// Called before a replica is closed.
    fn closing(&self, group: GroupId, id: ReplicaId);
}

enum Slot {
    Opening,
    Running(Arc<dyn Group>),
    /// Why it does not run, and since when.
    Away(String, Instant),
}

struct Kept {
    slot: Slot,
    /// Since when the map has not named it.
    unwanted: Option<Instant>,
    /// By its own state it has been a member of its group.
    was_member: bool,
    /// The epoch of the last map that it was given.
    epoch: u64,
}

impl Kept {
    fn running(&self) -> Option<&Arc<dyn Group>> {
        match &self.slot {
            Slot::Running(replica) => Some(replica),
            Slot::Opening | Slot::Away(..) => None,
        }
    }
}

/// Whether the map has such a group.
fn is_there(map: &ClusterMap, group: GroupId) -> bool {
    group == GroupId::CLUSTER || map.volumes.contains_key(&group)
}

/// The replicas of this node.
pub struct Groups {
    dir: Arc<NodeDir>,
    view: Arc<ClusterView>,
    opener: Arc<dyn Opener>,
    kept: Mutex<BTreeMap<(GroupId, ReplicaId), Kept>>,
    stop: Arc<AtomicBool>,
}

impl Groups {
    /// None runs yet.
    pub fn new(dir: Arc<NodeDir>, view: Arc<ClusterView>, opener: Arc<dyn Opener>) -> Arc<Groups> {
        Arc::new(Groups { dir, view, opener, kept: Mutex::default(), stop: Arc::new(AtomicBool::new(false)) })
    }

    /// A replica that runs here.
    pub fn find(&self, group: GroupId, id: ReplicaId) -> Option<Arc<dyn Group>> {
        self.kept.lock().get(&(group, id))?.running().cloned()
    }

    /// The replica of a group that runs here and that the map names.
    pub fn of(&self, group: GroupId) -> Option<Arc<dyn Group>> {
        let here = self.dir.node();
        let map = self.view.map();
        let place = map.replicas(group).iter().find(|place| place.node == here)?;
        self.find(group, place.id)
    }

    /// The node of a group's leader, as far as replicas here know.
    pub fn leader_node(&self, group: GroupId) -> Option<NodeId> {
        self.view.node_of(group, self.of(group)?.leader()?)
    }

    /// The state of all of them.
    pub fn reports(&self, digest: bool) -> Vec<ReplicaReport> {
        let look = |((group, id), one): (&(GroupId, ReplicaId), &Kept)| {
            let slot = match &one.slot {
                Slot::Opening => Err("starting".to_owned()),
                Slot::Away(why, _) => Err(why.clone()),
                Slot::Running(replica) => Ok(replica.clone()),
            };
            (*group, *id, slot)
        };
        let all: Vec<_> = self.kept.lock().iter().map(look).collect();
        // Without the lock, because a digest takes time.
        let report = |(group, id, slot): (GroupId, ReplicaId, Result<Arc<dyn Group>, String>)| match slot {
            Ok(replica) => replica.report(digest),
            Err(role) => ReplicaReport {
                group,
                id,
                runs: false,
                role,
                leads: false,
                term: 0,
                applied: 0,
                members: Vec::new(),
                digest: None,
            },
        };
        all.into_iter().map(report).collect()
    }

    /// The counters of all of them; `None` of one that does not run.
    pub fn figures(&self) -> Vec<(GroupId, ReplicaId, Option<Figures>)> {
        let all: Vec<_> = self.kept.lock().iter().map(|(key, one)| (*key, one.running().cloned())).collect();
        let figures = |((group, id), replica): (_, Option<Arc<dyn Group>>)| {
            (group, id, replica.map(|replica| replica.figures()))
        };
        all.into_iter().map(figures).collect()
    }

    /// Whether a replica of a group on this node leads it.
    pub fn leads(&self, group: GroupId) -> bool {
        self.led_members(group).is_some()
    }

    /// The members of a group that is led by this node.
    pub fn led_members(&self, group: GroupId) -> Option<Vec<ReplicaId>> {
        let of_group = (group, ReplicaId(0))..=(group, ReplicaId(u64::MAX));
        let all: Vec<_> =
            self.kept.lock().range(of_group).filter_map(|(_, one)| one.running().cloned()).collect();
        all.into_iter().find(|replica| replica.leads()).map(|leader| leader.members())
    }

    /// Whether a replica may be removed that the map does not name. `led` are the members by the leader of
    /// its group, if it was asked.
    fn may_go(
        &self,
        one: &Kept,
        key: (GroupId, ReplicaId),
        map: &ClusterMap,
        led: Option<&[ReplicaId]>,
    ) -> bool {
        let Some(since) = one.unwanted.map(|since| since.elapsed()) else { return false };
        let own = one.running().map(|replica| replica.members()).unwrap_or_default();
        let (group, id) = key;
        let (has_group, was_open) = (is_there(map, group), self.dir.made_replica(id));
        Unnamed { id, since, has_group, was_open, was_member: one.was_member, own: &own, led }.may_go()
    }

    /// Replicas that could be removed if their groups do not need them.
    pub fn removal_candidates(&self) -> Vec<(GroupId, ReplicaId)> {
        let waits = |one: &Kept| one.unwanted.is_some_and(|since| since.elapsed() > REPLICA_GRACE);
        self.kept.lock().iter().filter(|(_, one)| waits(one)).map(|(key, _)| *key).collect()
    }

    /// Records the members of a replica's group, as its leader has just reported them.
    pub fn members_are(self: &Arc<Self>, key: (GroupId, ReplicaId), members: &[ReplicaId]) {
        let map = self.view.map();
        let may_go = |one: &Kept| self.may_go(one, key, &map, Some(members));
        if self.kept.lock().get(&key).is_some_and(may_go) {
            self.leave(key);
        }
    }

    /// Opens the replicas that should run, and removes those that should not.
    pub fn reconcile(self: &Arc<Self>, map: &ClusterMap) {
        let here = self.dir.node();
        let groups = std::iter::once(GroupId::CLUSTER).chain(map.volumes.keys().copied());
        let wanted: BTreeMap<_, _> = groups
            .flat_map(|group| map.replicas(group).iter().map(move |place| ((group, place.id), *place)))
            .filter(|(_, place)| place.node == here)
            .collect();
        for (key, place) in &wanted {
            self.want(*key, *place);
        }
        let kept: Vec<_> = self.kept.lock().keys().copied().collect();
        for key in kept.into_iter().filter(|key| !wanted.contains_key(key)) {
            self.reopen_unnamed(map, key);
        }
        let mut leaving = Vec::new();
        let mut turned = Vec::new();
        let mut leaders = Vec::new();
        {
            let mut kept = self.kept.lock();
            for (key, one) in kept.iter_mut() {
                one.unwanted =
                    if wanted.contains_key(key) { None } else { one.unwanted.or(Some(Instant::now())) };
                if self.may_go(one, *key, map, None) {
                    leaving.push(*key);
                    continue;
                }
                let Slot::Running(replica) = &one.slot else { continue };
                one.was_member = one.was_member || replica.members().contains(&key.1);
                if let Some(why) = replica.failure() {
                    turned.push((*key, Some(why)));
                } else if replica.needs_reopening() {
                    turned.push((*key, None));
                } else {
                    if one.epoch != map.epoch {
                        one.epoch = map.epoch;
                        replica.map_changed(map);
                    }
                    leaders.push((key.0, replica.clone()));
                }
            }
        }
        for (group, replica) in leaders {
            if replica.leads() {
                let ids: Vec<_> = map.replicas(group).iter().map(|place| place.id).collect();
                replica.set_wanted_members(&ids);
            }
        }
        turned.into_iter().for_each(|(key, why)| self.turn(key, why));
        leaving.into_iter().for_each(|key| self.leave(key));
    }

    /// Opens a replica that is not open.
    fn want(self: &Arc<Self>, key: (GroupId, ReplicaId), place: ReplicaPlace) {
        let mut kept = self.kept.lock();
        match kept.get(&key).map(|one| &one.slot) {
            Some(Slot::Opening | Slot::Running(_)) => return,
            Some(Slot::Away(_, since)) if since.elapsed() < REOPEN_AFTER => return,
            _ => {}
        }
        let before = kept.entry(key).or_insert(Kept {
            slot: Slot::Opening,
            unwanted: None,
            was_member: false,
            epoch: 0,
        });
        before.epoch = 0;
        let said = match std::mem::replace(&mut before.slot, Slot::Opening) {
            Slot::Away(why, _) => Some(why),
            _ => None,
        };
        drop(kept);
        let groups = self.clone();
        spawn("shoal-open", move || {
            let opened = groups.opener.open(key.0, &place, &groups.stop);
            if let Err(why) = &opened
                && said.as_ref() != Some(why)
            {
                tracing::error!(group = %key.0, replica = %key.1, why, "a metadata replica cannot be opened");
            }
            groups.record_opened(key, opened);
        });
    }

    /// Opens a replica that was open before the map ceased to name it, as long as its group exists.
    fn reopen_unnamed(self: &Arc<Self>, map: &ClusterMap, (group, id): (GroupId, ReplicaId)) {
        if is_there(map, group) && self.dir.made_replica(id) {
            self.want((group, id), ReplicaPlace { id, node: self.dir.node(), founder: false });
        }
    }

    fn record_opened(&self, key: (GroupId, ReplicaId), opened: Result<Arc<dyn Group>, String>) {
        let mut kept = self.kept.lock();
        let Some(one) = kept.get_mut(&key) else { return };
        match opened {
            Ok(replica) if self.stop.load(Ordering::Acquire) => {
                kept.remove(&key);
                drop(kept);
                replica.shutdown();
            }
            Ok(replica) => one.slot = Slot::Running(replica),
            Err(why) => one.slot = Slot::Away(why, Instant::now()),
        }
        self.view.notify_waiters();
    }

    /// Closes a replica so that it is opened again: at once, or, if it has failed, after a pause.
    fn turn(self: &Arc<Self>, key: (GroupId, ReplicaId), failure: Option<String>) {
        let Some(replica) = self.take(key, Slot::Opening) else { return };
        let groups = self.clone();
        spawn("shoal-reopen", move || {
            groups.opener.closing(key.0, key.1);
            replica.shutdown();
            groups.wait_closed(replica);
            let why = failure.unwrap_or_else(|| "taking on a newer state".into());
            tracing::info!(group = %key.0, replica = %key.1, why, "a metadata replica was closed, to be opened again");
            let again = Instant::now().checked_sub(REOPEN_AFTER).filter(|_| why.starts_with("taking on"));
            if let Some(one) = groups.kept.lock().get_mut(&key) {
                one.slot = Slot::Away(why, again.unwrap_or_else(Instant::now));
            }
            groups.view.notify_waiters();
        });
    }

    /// Closes a replica for good and removes its directory.
    fn leave(self: &Arc<Self>, key: (GroupId, ReplicaId)) {
        let replica = {
            let mut kept = self.kept.lock();
            let Some(one) = kept.get_mut(&key) else { return };
            match std::mem::replace(&mut one.slot, Slot::Opening) {
                Slot::Running(replica) => Some(replica),
                Slot::Away(..) => None,
                // By the next round it has been opened, or was removed.
                Slot::Opening => return,
            }
        };
        let groups = self.clone();
        spawn("shoal-leave", move || {
            if let Some(replica) = replica {
                groups.opener.closing(key.0, key.1);
                replica.shutdown();
                groups.wait_closed(replica);
            }
            groups.remove(key);
            groups.kept.lock().remove(&key);
        });
    }

    fn take(&self, key: (GroupId, ReplicaId), instead: Slot) -> Option<Arc<dyn Group>> {
        let mut kept = self.kept.lock();
        let one = kept.get_mut(&key)?;
        match std::mem::replace(&mut one.slot, instead) {
            Slot::Running(replica) => Some(replica),
            other => {
                one.slot = other;
                None
            }
        }
    }

    /// Waits until a replica has no users any more: its files are open until then.
    fn wait_closed(&self, replica: Arc<dyn Group>) {
        let weak = Arc::downgrade(&replica);
        drop(replica);
        while weak.strong_count() > 0 && !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Directories of replicas that neither run nor are named by the map.
    fn orphans(&self, map: &ClusterMap) -> Vec<(GroupId, ReplicaId)> {
        let orphan = |(group, id): &(GroupId, ReplicaId)| {
            map.node_of(*group, *id).is_none() && !self.kept.lock().contains_key(&(*group, *id))
        };
        self.dir.replicas().into_iter().filter(orphan).collect()
    }

    /// Opens replicas that the map had ceased to name before this process began: their groups may still need
    /// them.
    pub fn reopen_orphans(self: &Arc<Self>, map: &ClusterMap) {
        self.orphans(map).into_iter().for_each(|key| self.reopen_unnamed(map, key));
    }

    /// Removes the directories of replicas of deleted volumes, and of those that were never opened. A replica
    /// that is newer than the map stays, as its volume may be newer, too: this node could not save the map
    /// that names it, and has not reached the others since.
    pub fn sweep(self: &Arc<Self>, map: &ClusterMap) {
        self.reopen_orphans(map);
        let is_known = |(_, id): &(GroupId, ReplicaId)| id.0 < map.next.replica;
        self.orphans(map).into_iter().filter(is_known).for_each(|key| self.remove(key));
    }

    fn remove(&self, (group, id): (GroupId, ReplicaId)) {
        let path = self.dir.replica(group, id);
        tracing::info!(%group, replica = %id, path = %path.display(), "removing a metadata replica that is not needed here any more");
        if let Err(error) = std::fs::remove_dir_all(&path) {
            tracing::warn!(path = %path.display(), %error, "removing the replica's directory failed");
        }
    }

    /// Transfers all leaderships and closes everything.
    pub fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        let all = std::mem::take(&mut *self.kept.lock());
        let running = all.into_iter().filter_map(|(key, one)| match one.slot {
            Slot::Running(replica) => Some((key, replica)),
            _ => None,
        });
        std::thread::scope(|scope| {
            for ((group, id), replica) in running {
                scope.spawn(move || {
                    replica.shutdown();
                    self.opener.closing(group, id);
                });
            }
        });
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    drop(thread.expect("the system has room for a thread"));
}
