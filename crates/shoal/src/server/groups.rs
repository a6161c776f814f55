//! The replicas of metadata groups on this node.
//!
//! **Models.** The cluster map says which replicas there should be here. What is not open is opened, on a thread of its own, since
//! replaying a log or fetching a state takes its time; what the map does not name any more is kept for a while, so that its
//! group can tell it, and then removed.
//!
//! **Promises.** A replica that was open here once is never made anew: if its directory is gone, it stays away, and says so. One that is
//! made for a group that exists already begins with the state of another replica.

use super::calls::ReplicaReport;
use super::dir::NodeDir;
use super::directory::Directory;
use crate::limits::{REOPEN_AFTER, REPLICA_GRACE};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_cluster::{ClusterMap, ReplicaPlace};
use shoal_types::{GroupId, NodeId, ReplicaId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A replica, whatever it keeps.
pub trait Group: Send + Sync {
    /// A message from another replica.
    fn receive(&self, from: ReplicaId, message: &[u8]);
    /// A question of another replica.
    fn answer(&self, request: &[u8]) -> Result<Bytes, String>;
    /// Whether it leads its group now.
    fn leads(&self) -> bool;
    /// The leader sees to it that these are the group's members.
    fn steer(&self, wanted: &[ReplicaId]);
    /// What the map says may concern it.
    fn map_changed(&self, map: &ClusterMap);
    /// Whether it has to be closed and opened again, to take on a newer state.
    fn needs_reopening(&self) -> bool;
    /// Why it does not go on, if it does not.
    fn failure(&self) -> Option<String>;
    /// Who leads, as far as it knows.
    fn leader(&self) -> Option<ReplicaId>;
    /// How it does.
    fn report(&self, digest: bool) -> ReplicaReport;
    /// Hands the lead over and stops.
    fn shutdown(&self);
}

/// How to open replicas.
pub trait Opener: Send + Sync + 'static {
    /// Opens a replica, and makes it known as a service if it is one. `stop` is asked now and then.
    fn open(&self, group: GroupId, place: &ReplicaPlace, stop: &AtomicBool)
    -> Result<Arc<dyn Group>, String>;
    /// It is going to be closed.
    fn closing(&self, group: GroupId);
}

enum Slot {
    Opening,
    Running(Arc<dyn Group>),
    /// Not running, why, and since when.
    Away(String, Instant),
}

struct Kept {
    slot: Slot,
    /// The map says that it should not be here, since then.
    unwanted: Option<Instant>,
    /// The epoch of the map that it was told of.
    epoch: u64,
}

/// See the module.
pub struct Groups {
    dir: Arc<NodeDir>,
    directory: Arc<Directory>,
    opener: Arc<dyn Opener>,
    kept: Mutex<BTreeMap<(GroupId, ReplicaId), Kept>>,
    stop: Arc<AtomicBool>,
}

impl Groups {
    /// None so far.
    pub fn new(dir: Arc<NodeDir>, directory: Arc<Directory>, opener: Arc<dyn Opener>) -> Arc<Groups> {
        Arc::new(Groups {
            dir,
            directory,
            opener,
            kept: Mutex::default(),
            stop: Arc::new(AtomicBool::new(false)),
        })
    }

    /// A replica that runs here.
    pub fn find(&self, group: GroupId, id: ReplicaId) -> Option<Arc<dyn Group>> {
        match &self.kept.lock().get(&(group, id))?.slot {
            Slot::Running(replica) => Some(replica.clone()),
            _ => None,
        }
    }

    /// The replica of a group that runs here and that the map knows.
    pub fn of(&self, group: GroupId) -> Option<Arc<dyn Group>> {
        let here = self.dir.identity().node;
        let map = self.directory.map();
        let place = map.replicas(group).iter().find(|place| place.node == here)?;
        self.find(group, place.id)
    }

    /// Where a group's leader is, as far as replicas here know.
    pub fn leader_node(&self, group: GroupId) -> Option<NodeId> {
        self.directory.node_of(group, self.of(group)?.leader()?)
    }

    /// How all of them do.
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
        // Without the lock: a digest takes its time.
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

    /// Sees to it that what should run does, and the other way round.
    pub fn reconcile(self: &Arc<Self>, map: &ClusterMap) {
        let here = self.dir.identity().node;
        let groups = std::iter::once(GroupId::CLUSTER).chain(map.volumes.keys().copied());
        let wanted: BTreeMap<_, _> = groups
            .flat_map(|group| map.replicas(group).iter().map(move |place| ((group, place.id), *place)))
            .filter(|(_, place)| place.node == here)
            .collect();
        for (key, place) in &wanted {
            self.want(*key, *place);
        }
        let mut leaving = Vec::new();
        let mut turned = Vec::new();
        let mut leaders = Vec::new();
        {
            let mut kept = self.kept.lock();
            for (key, one) in kept.iter_mut() {
                one.unwanted =
                    if wanted.contains_key(key) { None } else { one.unwanted.or(Some(Instant::now())) };
                let Slot::Running(replica) = &one.slot else { continue };
                if one.unwanted.is_some_and(|since| since.elapsed() > REPLICA_GRACE) {
                    leaving.push(*key);
                } else if let Some(why) = replica.failure() {
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
                replica.steer(&ids);
            }
        }
        turned.into_iter().for_each(|(key, why)| self.turn(key, why));
        leaving.into_iter().for_each(|key| self.leave(key));
    }

    /// Opens what is not open.
    fn want(self: &Arc<Self>, key: (GroupId, ReplicaId), place: ReplicaPlace) {
        let mut kept = self.kept.lock();
        match kept.get(&key).map(|one| &one.slot) {
            Some(Slot::Opening | Slot::Running(_)) => return,
            Some(Slot::Away(_, since)) if since.elapsed() < REOPEN_AFTER => return,
            _ => {}
        }
        let said = match kept.get(&key).map(|one| &one.slot) {
            Some(Slot::Away(why, _)) => Some(why.clone()),
            _ => None,
        };
        kept.insert(key, Kept { slot: Slot::Opening, unwanted: None, epoch: 0 });
        drop(kept);
        let groups = self.clone();
        spawn("shoal-open", move || {
            let opened = groups.opener.open(key.0, &place, &groups.stop);
            if let Err(why) = &opened
                && said.as_ref() != Some(why)
            {
                tracing::error!(group = %key.0, replica = %key.1, why, "a metadata replica cannot be opened");
            }
            groups.settle(key, opened);
        });
    }

    fn settle(&self, key: (GroupId, ReplicaId), opened: Result<Arc<dyn Group>, String>) {
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
        self.directory.poke();
    }

    /// Closes a replica, for it to be opened again: at once, or, if it has failed, after a while.
    fn turn(self: &Arc<Self>, key: (GroupId, ReplicaId), failure: Option<String>) {
        let Some(replica) = self.take(key, Slot::Opening) else { return };
        let groups = self.clone();
        spawn("shoal-reopen", move || {
            groups.opener.closing(key.0);
            replica.shutdown();
            groups.wait_closed(replica);
            let why = failure.unwrap_or_else(|| "taking on a newer state".into());
            tracing::info!(group = %key.0, replica = %key.1, why, "a metadata replica was closed, to be opened again");
            let again = Instant::now().checked_sub(REOPEN_AFTER).filter(|_| why.starts_with("taking on"));
            if let Some(one) = groups.kept.lock().get_mut(&key) {
                one.slot = Slot::Away(why, again.unwrap_or_else(Instant::now));
            }
            groups.directory.poke();
        });
    }

    /// Closes a replica for good and removes what it kept.
    fn leave(self: &Arc<Self>, key: (GroupId, ReplicaId)) {
        let Some(replica) = self.take(key, Slot::Opening) else { return };
        let groups = self.clone();
        spawn("shoal-leave", move || {
            groups.opener.closing(key.0);
            replica.shutdown();
            groups.wait_closed(replica);
            let path = groups.dir.replica(key.0, key.1);
            tracing::info!(group = %key.0, replica = %key.1, "a metadata replica is not needed here any more");
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "removing it");
            }
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

    /// Waits until nobody uses a replica any more: its files are open until then.
    fn wait_closed(&self, replica: Arc<dyn Group>) {
        let weak = Arc::downgrade(&replica);
        drop(replica);
        while weak.strong_count() > 0 && !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Removes what replicas kept here that the map does not name any more, and that no process got to remove. To be called
    /// once the map is not as old as the last start.
    pub fn sweep(&self) {
        let map = self.directory.map();
        for (group, id) in self.dir.volume_replicas() {
            let known = map.replicas(group).iter().any(|place| place.id == id);
            if known || self.kept.lock().contains_key(&(group, id)) {
                continue;
            }
            let path = self.dir.replica(group, id);
            tracing::info!(path = %path.display(), "removing what is left of a metadata replica that is not needed any more");
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "removing it");
            }
        }
    }

    /// Hands all leads over and closes everything.
    pub fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        let all = std::mem::take(&mut *self.kept.lock());
        let running = all.into_iter().filter_map(|(key, one)| match one.slot {
            Slot::Running(replica) => Some((key, replica)),
            _ => None,
        });
        std::thread::scope(|scope| {
            for ((group, _), replica) in running {
                scope.spawn(move || {
                    replica.shutdown();
                    self.opener.closing(group);
                });
            }
        });
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    drop(thread.expect("the system has room for a thread"));
}
