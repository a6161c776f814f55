//! What is known of the cluster, in one place: the newest map, the way to every node, and what this process itself serves.
//!
//! **Models.** Nodes and clients alike hold a copy of the cluster map that only ever gets newer. From it they know where bricks and
//! replicas are; what they serve themselves they reach without a connection.
//!
//! **Assumes** nothing about the copy's age: whoever is asked for what it does not have says so.
//!
//! **Promises.** Looking at the map costs a lock. A map is never replaced by an older one.

use super::access::not_started;
use super::calls::{Answer, Ask, pack, unpack};
use crate::address::is_own;
use crate::limits::ASK_PATIENCE;
use parking_lot::{Condvar, Mutex, RwLock};
use shoal_cluster::{Bricks, ClusterMap};
use shoal_net::remote::{RemoteBrick, RemoteMeta};
use shoal_net::{Fence, Lane, Link, NetError, Network, Service};
use shoal_types::{BrickId, GroupId, NodeId, ReplicaId};
use shoal_wire::{BlockService, Denial, MetaService};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Hears of every map that is newer than the last.
pub type OnMap = Box<dyn Fn(&ClusterMap) + Send + Sync>;

/// See the module.
pub struct Directory {
    network: Arc<Network>,
    here: Option<NodeId>,
    /// The node whose machine this client runs on, too, if there is one.
    near: OnceLock<NodeId>,
    map: RwLock<Arc<ClusterMap>>,
    learning: Mutex<()>,
    on_map: OnMap,
    /// Where replicas are of which the map says nothing any more: their groups may still need them, and have to tell them otherwise.
    former: Mutex<HashMap<ReplicaId, NodeId>>,
    bricks: RwLock<HashMap<BrickId, Arc<dyn BlockService>>>,
    metas: RwLock<HashMap<GroupId, Arc<dyn MetaService>>>,
    /// Why the server that was asked for the map last did not answer, if it knows a map as new as this one.
    denied: Mutex<Option<Denial>>,
    pokes: Mutex<u64>,
    poked: Condvar,
}

impl Directory {
    /// With a map to begin with, which may be old or empty.
    pub fn new(
        network: Arc<Network>,
        here: Option<NodeId>,
        map: ClusterMap,
        on_map: OnMap,
    ) -> Arc<Directory> {
        tell(&network, &map);
        Arc::new(Directory {
            network,
            here,
            near: OnceLock::new(),
            map: RwLock::new(Arc::new(map)),
            learning: Mutex::new(()),
            on_map,
            former: Mutex::default(),
            bricks: RwLock::default(),
            metas: RwLock::default(),
            denied: Mutex::default(),
            pokes: Mutex::default(),
            poked: Condvar::new(),
        })
    }

    /// Of a client: finds out whether one of the nodes is this machine. Its bricks are read first.
    pub fn find_near(&self) {
        let map = self.map();
        if let Some((id, _)) = map.nodes.iter().find(|(_, node)| is_own(&node.address)) {
            // Whoever looked before has found the same.
            let _ = self.near.set(*id);
        }
    }

    /// The node that this process is, unless it is a client.
    pub fn own_node(&self) -> Option<NodeId> {
        self.here
    }

    /// The connections.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// Why this process may not serve as its node, if peers or the map have said so.
    pub fn fence(&self) -> Option<Fence> {
        self.network.membership().fence()
    }

    /// The newest map.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.map.read().clone()
    }

    /// Takes a map if it is newer.
    pub fn learn(&self, map: ClusterMap) {
        // One after the other, so that what is kept on disk does not go back either; but nobody waits for that disk to read.
        let learning = self.learning.lock();
        let current = self.map();
        if map.epoch <= current.epoch {
            return;
        }
        let kept =
            std::iter::once(&current.replicas).chain(current.volumes.values().map(|one| &one.replicas));
        self.former.lock().extend(kept.flatten().map(|place| (place.id, place.node)));
        (self.on_map)(&map);
        tell(&self.network, &map);
        *self.map.write() = Arc::new(map);
        drop(learning);
        self.poke();
    }

    /// Something has changed: whoever [waits](Self::wait) looks again.
    pub fn poke(&self) {
        *self.pokes.lock() += 1;
        self.poked.notify_all();
    }

    /// Waits until something has changed since the last time, but not for long. `seen` is what was answered then.
    pub fn wait(&self, seen: u64, longest: Duration) -> u64 {
        let due = Instant::now() + longest;
        let mut pokes = self.pokes.lock();
        while *pokes == seen && !self.poked.wait_until(&mut pokes, due).timed_out() {}
        *pokes
    }

    /// Where a replica is, or was when it was last heard of.
    pub fn node_of(&self, group: GroupId, replica: ReplicaId) -> Option<NodeId> {
        let now = self.map.read().node_of(group, replica);
        now.or_else(|| self.former.lock().get(&replica).copied())
    }

    /// A replica has spoken from a node. One that the map does not name any more is found there: its group may still need it.
    pub fn heard_from(&self, group: GroupId, replica: ReplicaId, node: NodeId) {
        if self.map.read().node_of(group, replica).is_none() {
            self.former.lock().insert(replica, node);
        }
    }

    /// The way to a node.
    pub fn link(&self, node: NodeId, lane: Lane) -> Option<Arc<Link>> {
        let address = self.map.read().nodes.get(&node)?.address.clone();
        Some(self.network.link(&address, lane))
    }

    /// Asks a node. The error is for people.
    pub fn ask(&self, node: NodeId, ask: &Ask, patience: Duration) -> Result<Answer, String> {
        let link = self.link(node, Lane::Requests).ok_or_else(|| format!("{node} has left the cluster"))?;
        ask_over(&link, ask, patience).map_err(|error| error.to_string())
    }

    /// Fetches the map from somewhere if it is newer there.
    pub fn catch_up(&self, link: &Link) -> Result<(), String> {
        let ask = Ask::Map { epoch: self.map.read().epoch };
        let answer = ask_over(link, &ask, ASK_PATIENCE);
        match &answer {
            Ok(Answer::Map(_)) => *self.denied.lock() = None,
            Err(NetError::Denied { denial, .. }) if self.is_current(denial) => {
                *self.denied.lock() = Some(denial.clone());
            }
            _ => {}
        }
        match answer.map_err(|error| error.to_string())? {
            Answer::Map(Some(bytes)) => {
                let map =
                    ClusterMap::decode(&bytes).map_err(|error| format!("{}: {error}", link.address()))?;
                self.learn(map);
                Ok(())
            }
            Answer::Map(None) => Ok(()),
            other => Err(format!("{} answered something else: {other:?}", link.address())),
        }
    }

    /// Why the map is withheld from this process, as the server that was asked last says.
    pub fn denied(&self) -> Option<Denial> {
        self.denied.lock().clone()
    }

    /// Whether a server that says so knows a map at least as new as the one here.
    fn is_current(&self, denial: &Denial) -> bool {
        denial.epoch >= self.map.read().epoch
    }

    /// This process serves a brick from now on.
    pub fn serve_brick(&self, id: BrickId, brick: Arc<dyn BlockService>) {
        self.bricks.write().insert(id, brick);
    }

    /// It does so no more.
    pub fn drop_brick(&self, id: BrickId) {
        self.bricks.write().remove(&id);
    }

    /// A brick of this process.
    pub fn local_brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        self.bricks.read().get(&id).cloned()
    }

    /// This process has a replica of a volume's metadata group from now on.
    pub fn serve_meta(&self, group: GroupId, meta: Arc<dyn MetaService>) {
        self.metas.write().insert(group, meta);
    }

    /// It has it no more.
    pub fn drop_meta(&self, group: GroupId) {
        self.metas.write().remove(&group);
    }

    /// The replica of this process.
    pub fn local_meta(&self, group: GroupId) -> Option<Arc<dyn MetaService>> {
        self.metas.read().get(&group).cloned()
    }
}

impl Bricks for Directory {
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        if let Some(local) = self.local_brick(id) {
            return Some(local);
        }
        let node = self.map.read().bricks.get(&id)?.node;
        if Some(node) == self.here {
            return None;
        }
        Some(Arc::new(RemoteBrick::new(self.link(node, Lane::Blocks)?, id)))
    }

    fn map(&self) -> Arc<ClusterMap> {
        Directory::map(self)
    }

    fn here(&self) -> Option<NodeId> {
        self.here.or_else(|| self.near.get().copied())
    }
}

/// Tells the network which nodes there are, and which runs of them.
fn tell(network: &Network, map: &ClusterMap) {
    let nodes = map.nodes.keys().map(|node| (*node, map.runs.get(node).copied()));
    network.membership().learn(nodes, map.next.node);
}

/// The replicas of a volume's metadata group, for a client.
pub struct VolumeReplicas {
    /// What is known of the cluster.
    pub directory: Arc<Directory>,
    /// The volume.
    pub volume: GroupId,
}

impl shoal_client::Replicas for VolumeReplicas {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        let map = self.directory.map();
        let reach = |node: NodeId| -> Option<(NodeId, Arc<dyn MetaService>)> {
            let link = self.directory.link(node, Lane::Requests)?;
            Some((node, Arc::new(RemoteMeta::new(link, self.volume))))
        };
        map.replicas(self.volume).iter().filter_map(|place| reach(place.node)).collect()
    }

    fn refresh(&self) {
        self.directory.poke();
    }

    fn epoch(&self) -> u64 {
        self.directory.map().epoch
    }

    fn denial(&self) -> Option<Denial> {
        not_started(&self.directory.map(), self.volume).or_else(|| self.directory.denied())
    }
}

/// Asks whoever is at the end of a link.
pub fn ask_over(link: &Link, ask: &Ask, patience: Duration) -> Result<Answer, NetError> {
    let body = link.call(Service::Cluster, false, vec![pack(ask)], patience)?;
    let refused = |why: String| NetError::Refused { address: link.address().to_owned(), why };
    unpack(&body).map_err(|error| refused(format!("its answer was not understood: {error}")))
}
