//! This process's view of the cluster: the newest map, the connection to every node, and its own local
//! services.
//!
//! **Models.** Nodes and clients alike hold a copy of the cluster map that only gets newer. It contains
//! the nodes of bricks and replicas. Services of this process are called without a connection.
//!
//! **Assumes** nothing about the copy's age: a node refuses requests to a service that it does not run.
//!
//! **Promises.** Reading the map costs one lock. A map is never replaced by an older one.

use super::access::not_started;
use super::calls::{NodeReply, NodeRequest, request_over};
use super::near_bricks::NearBricks;
use crate::address::is_own;
use crate::limits::{COPY_REPLY_WAIT_MAX, NODE_REPLY_WAIT_MAX};
use crate::measure::{MeasuredMeta, MetaWatches};
use parking_lot::{Condvar, Mutex, RwLock};
use shoal_cluster::{Bricks, ClusterMap, CopyRequest, Draining};
use shoal_net::remote::{RemoteBrick, RemoteMeta};
use shoal_net::{Fence, Lane, Link, NetError, Network};
use shoal_types::{BlockGroup, BrickId, GroupId, NodeId, ReplicaId};
use shoal_wire::{BlockService, Denial, MetaService};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Called with every map that is newer than the last.
pub type OnMap = Box<dyn Fn(&ClusterMap) + Send + Sync>;

/// A process's view of its cluster.
pub struct ClusterView {
    network: Arc<Network>,
    here: Option<NodeId>,
    /// The node on the machine of this client, if there is one.
    near: OnceLock<NodeId>,
    /// The bricks of that node whose files are read.
    near_bricks: NearBricks,
    reads_files: AtomicBool,
    map: RwLock<Arc<ClusterMap>>,
    /// Bricks that are being drained. Held while a map is learned.
    draining: Mutex<Draining>,
    on_map: OnMap,
    /// The last known nodes of replicas that the map does not name any more: their groups may still need
    /// them, and have to tell them that they were removed.
    former: Mutex<HashMap<ReplicaId, NodeId>>,
    bricks: RwLock<HashMap<BrickId, Arc<dyn BlockService>>>,
    metas: RwLock<HashMap<GroupId, Arc<dyn MetaService>>>,
    /// The last server's denial of the map, if that server knows a map as new as this one.
    denied: Mutex<Option<Denial>>,
    changes: Mutex<u64>,
    changed: Condvar,
}

impl ClusterView {
    /// Begins with a map that may be old or empty.
    pub fn new(
        network: Arc<Network>,
        here: Option<NodeId>,
        map: ClusterMap,
        on_map: OnMap,
    ) -> Arc<ClusterView> {
        update_membership(&network, &map);
        let mut draining = Draining::default();
        draining.note(&map, shoal_runtime::time::Instant::now());
        Arc::new(ClusterView {
            network,
            here,
            near: OnceLock::new(),
            near_bricks: NearBricks::default(),
            reads_files: AtomicBool::new(true),
            map: RwLock::new(Arc::new(map)),
            draining: Mutex::new(draining),
            on_map,
            former: Mutex::default(),
            bricks: RwLock::default(),
            metas: RwLock::default(),
            denied: Mutex::default(),
            changes: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// For a client: finds out whether one of the nodes is on this machine. Its bricks are preferred for
    /// reading.
    pub fn find_local_node(&self) {
        let map = self.map();
        if let Some((id, _)) = map.nodes.iter().find(|(_, node)| is_own(&node.address)) {
            // A concurrent search has found the same.
            let _ = self.near.set(*id);
        }
    }

    /// For a client: sets whether it reads blocks of these bricks from their files. This is the default.
    pub fn read_files(&self, reads: bool) {
        self.reads_files.store(reads, Relaxed);
    }

    /// The bricks of this machine whose files are read.
    pub fn near_bricks(&self) -> &NearBricks {
        &self.near_bricks
    }

    /// The number of this node, unless this process is a client.
    pub fn own_node(&self) -> Option<NodeId> {
        self.here
    }

    /// The connections.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// The reason why this process may not serve as its node, if it learned one from peers or the map.
    pub fn fence(&self) -> Option<Fence> {
        self.network.membership().fence()
    }

    /// The newest map.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.map.read().clone()
    }

    /// Adopts a map if it is newer.
    pub fn learn(&self, map: ClusterMap) {
        // Under a lock of its own, so that an older map never replaces a newer one on disk, and readers of
        // the map do not wait for the disk.
        let mut draining = self.draining.lock();
        let current = self.map();
        if map.epoch <= current.epoch {
            return;
        }
        let kept =
            std::iter::once(&current.replicas).chain(current.volumes.values().map(|one| &one.replicas));
        self.former.lock().extend(kept.flatten().map(|place| (place.id, place.node)));
        (self.on_map)(&map);
        update_membership(&self.network, &map);
        draining.note(&map, shoal_runtime::time::Instant::now());
        *self.map.write() = Arc::new(map);
        drop(draining);
        self.notify_waiters();
    }

    /// Whether a brick has been drained or gone for so long that no new record is expected to name it.
    pub fn is_quiet(&self, brick: BrickId) -> bool {
        self.draining.lock().is_quiet(brick, shoal_runtime::time::Instant::now())
    }

    /// Wakes the threads that [wait](Self::wait), because something has changed.
    pub fn notify_waiters(&self) {
        *self.changes.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until something has changed since the last call, at most `longest`. `seen` is what that call
    /// returned.
    pub fn wait(&self, seen: u64, longest: Duration) -> u64 {
        let due = Instant::now() + longest;
        let mut changes = self.changes.lock();
        while *changes == seen && !self.changed.wait_until(&mut changes, due).timed_out() {}
        *changes
    }

    /// The node of a replica, or the last node from which it sent a message.
    pub fn node_of(&self, group: GroupId, replica: ReplicaId) -> Option<NodeId> {
        let now = self.map.read().node_of(group, replica);
        now.or_else(|| self.former.lock().get(&replica).copied())
    }

    /// Records the node that a replica has sent a message from. This finds a replica that the map does not
    /// name any more, which its group may still need.
    pub fn record_sender(&self, group: GroupId, replica: ReplicaId, node: NodeId) {
        if self.map.read().node_of(group, replica).is_none() {
            self.former.lock().insert(replica, node);
        }
    }

    /// The connection to a node.
    pub fn link(&self, node: NodeId, lane: Lane) -> Option<Arc<Link>> {
        let address = self.map.read().nodes.get(&node)?.address.clone();
        Some(self.network.link(&address, lane))
    }

    /// Sends a request to a node. The error is a message for administrators.
    pub fn request(
        &self,
        node: NodeId,
        request: &NodeRequest,
        patience: Duration,
    ) -> Result<NodeReply, String> {
        let link = self.link(node, Lane::Requests).ok_or_else(|| format!("{node} has left the cluster"))?;
        request_over(&link, request, patience).map_err(|error| error.to_string())
    }

    /// Fetches the map over a connection if it is newer there.
    pub fn catch_up(&self, link: &Link) -> Result<(), String> {
        let ask = NodeRequest::Map { epoch: self.map.read().epoch };
        let answer = request_over(link, &ask, NODE_REPLY_WAIT_MAX);
        match &answer {
            Ok(NodeReply::Map(_)) => *self.denied.lock() = None,
            Err(NetError::Denied { denial, .. }) if self.is_current(denial) => {
                *self.denied.lock() = Some(denial.clone());
            }
            _ => {}
        }
        match answer.map_err(|error| error.to_string())? {
            NodeReply::Map(Some(bytes)) => {
                let map =
                    ClusterMap::decode(&bytes).map_err(|error| format!("{}: {error}", link.address()))?;
                self.learn(map);
                Ok(())
            }
            NodeReply::Map(None) => Ok(()),
            other => Err(format!("{}: unexpected answer: {other:?}", link.address())),
        }
    }

    /// The reason why the last server that was asked for the map denied it.
    pub fn denied(&self) -> Option<Denial> {
        self.denied.lock().clone()
    }

    /// Whether a server that sends a denial knows a map at least as new as the one here.
    fn is_current(&self, denial: &Denial) -> bool {
        denial.epoch >= self.map.read().epoch
    }

    /// Registers a brick of this process.
    pub fn serve_brick(&self, id: BrickId, brick: Arc<dyn BlockService>) {
        self.bricks.write().insert(id, brick);
    }

    /// Unregisters a brick of this process.
    pub fn drop_brick(&self, id: BrickId) {
        self.bricks.write().remove(&id);
    }

    /// A brick of this process.
    pub fn local_brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        self.bricks.read().get(&id).cloned()
    }

    /// Registers this process's replica of a volume's metadata group.
    pub fn serve_meta(&self, group: GroupId, meta: Arc<dyn MetaService>) {
        self.metas.write().insert(group, meta);
    }

    /// Unregisters it.
    pub fn drop_meta(&self, group: GroupId) {
        self.metas.write().remove(&group);
    }

    /// This process's replica of a volume's metadata group.
    pub fn local_meta(&self, group: GroupId) -> Option<Arc<dyn MetaService>> {
        self.metas.read().get(&group).cloned()
    }
}

impl Bricks for ClusterView {
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        if let Some(local) = self.local_brick(id) {
            return Some(local);
        }
        let node = self.map.read().bricks.get(&id)?.node;
        if Some(node) == self.here {
            return None;
        }
        let remote = RemoteBrick::new(self.link(node, Lane::Blocks)?, id);
        if self.near.get() != Some(&node) || !self.reads_files.load(Relaxed) {
            return Some(Arc::new(remote));
        }
        let (path, tiered) = {
            let map = self.map.read();
            let brick = map.bricks.get(&id)?;
            (brick.path.clone(), map.tiers.contains_key(&brick.volume))
        };
        let requests = self.link(node, Lane::Requests)?;
        Some(Arc::new(self.near_bricks.brick((id, path), tiered, requests, remote)))
    }

    fn map(&self) -> Arc<ClusterMap> {
        ClusterView::map(self)
    }

    fn here(&self) -> Option<NodeId> {
        self.here.or_else(|| self.near.get().copied())
    }

    fn request_copy(&self, node: NodeId, volume: GroupId, request: &CopyRequest) -> Option<BlockGroup> {
        match self.request(node, &NodeRequest::Copy { volume, request: *request }, COPY_REPLY_WAIT_MAX) {
            Ok(NodeReply::Copied(Ok(group))) => Some(group),
            other => {
                tracing::debug!(block = %request.id, %node, ?other, "a delegated copy was not made");
                None
            }
        }
    }
}

/// Tells the network the nodes of the map, and their runs.
fn update_membership(network: &Network, map: &ClusterMap) {
    let nodes = map.nodes.keys().map(|node| (*node, map.runs.get(node).copied()));
    network.membership().learn(nodes, map.next.node);
}

/// The replicas of a volume's metadata group, for a client.
pub struct VolumeReplicas {
    /// The view of the cluster.
    pub view: Arc<ClusterView>,
    /// The volume.
    pub volume: GroupId,
    /// The latencies of the requests to them.
    pub requests: Arc<MetaWatches>,
}

impl shoal_client::Replicas for VolumeReplicas {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        let map = self.view.map();
        let reach = |node: NodeId| -> Option<(NodeId, Arc<dyn MetaService>)> {
            let link = self.view.link(node, Lane::Requests)?;
            let remote = Arc::new(RemoteMeta::new(link, self.volume));
            Some((node, Arc::new(MeasuredMeta::new(remote, self.requests.clone()))))
        };
        map.replicas(self.volume).iter().filter_map(|place| reach(place.node)).collect()
    }

    fn refresh(&self) {
        self.view.notify_waiters();
    }

    fn epoch(&self) -> u64 {
        self.view.map().epoch
    }

    fn denial(&self) -> Option<Denial> {
        not_started(&self.view.map(), self.volume).or_else(|| self.view.denied())
    }
}
