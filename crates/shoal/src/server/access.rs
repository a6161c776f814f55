//! Access control: which requests a certificate may make.
//!
//! **Models.** A certificate proves which node or client a peer is; the cluster map says whether that is
//! still valid. Nodes may do everything. Clients may use the volumes whose `auth.allow` names their address,
//! and may read the map without its secrets.
//!
//! **Promises.** A refusal is logged with the peer and the reason, at a limited rate. The peer gets a
//! [`Denial`] with the epoch of the map that says so.

use super::cluster_view::ClusterView;
use super::events::Events;
use crate::admin::EventKind;
use crate::limits::REFUSALS_LOGGED_MAX;
use parking_lot::{Mutex, RwLock};
use shoal_cluster::options::AllowList;
use shoal_cluster::{ClusterMap, VolumeState};
use shoal_net::{Peer, Role};
use shoal_types::GroupId;
use shoal_wire::{Denial, Reason};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The access lists of a map, parsed once for each epoch.
#[derive(Default)]
struct Lists {
    epoch: u64,
    allow: HashMap<GroupId, Arc<AllowList>>,
}

/// Decides what peers may do, by the newest map.
pub struct Access {
    view: Arc<ClusterView>,
    lists: RwLock<Lists>,
    refused: Mutex<(Instant, u64)>,
    events: Arc<Events>,
}

impl Access {
    /// By the newest map of `view`. Refusals are recorded as `events`.
    pub fn new(view: Arc<ClusterView>, events: Arc<Events>) -> Access {
        Access { view, lists: RwLock::default(), refused: Mutex::new((Instant::now(), 0)), events }
    }

    /// Whether a peer is a node of the cluster.
    pub fn node(&self, peer: &Peer) -> Result<(), Denial> {
        match &peer.role {
            Some(Role::Node(node)) => {
                let map = self.view.map();
                // A node beyond the map's last number has joined after this map.
                if map.nodes.contains_key(node) || node.0 >= map.next.node {
                    return Ok(());
                }
                let detail = format!("{node} is not in the cluster any more");
                self.refuse(peer, Denial { reason: Reason::NodeDetached, epoch: map.epoch, detail })
            }
            _ => {
                let (epoch, detail) = (self.view.map().epoch, "only nodes of the cluster may do this".into());
                self.refuse(peer, Denial { reason: Reason::NodesOnly, epoch, detail })
            }
        }
    }

    /// Whether a peer is a node, or a client that was not revoked.
    pub fn member(&self, peer: &Peer) -> Result<(), Denial> {
        match &peer.role {
            Some(Role::Client(name)) => {
                let map = self.view.map();
                if map.revoked.contains(name) {
                    let detail = format!("the credentials of '{name}' were revoked");
                    let denial = Denial { reason: Reason::ClientRevoked, epoch: map.epoch, detail };
                    return self.refuse(peer, denial);
                }
                Ok(())
            }
            _ => self.node(peer),
        }
    }

    /// Whether a peer may use a volume.
    pub fn volume(&self, peer: &Peer, volume: GroupId) -> Result<(), Denial> {
        self.member(peer)?;
        if matches!(peer.role, Some(Role::Node(_))) || self.admits(volume, peer.address.ip()) {
            return Ok(());
        }
        let map = self.view.map();
        let name = map.volumes.get(&volume).map_or("?", |volume| volume.name.as_str());
        let detail = format!("auth.allow of volume {name} does not name {}", peer.address.ip());
        self.refuse(peer, Denial { reason: Reason::AddressNotAllowed, epoch: map.epoch, detail })
    }

    fn admits(&self, volume: GroupId, address: IpAddr) -> bool {
        let map = self.view.map();
        let lists = self.lists.read();
        if lists.epoch == map.epoch
            && let Some(list) = lists.allow.get(&volume)
        {
            return list.admits(address);
        }
        drop(lists);
        // A list that cannot be parsed admits no client; it was checked when it was set.
        let value = map.option(volume, "auth.allow").unwrap_or_default();
        let Ok(list) = value.parse::<AllowList>() else { return false };
        let admitted = list.admits(address);
        let mut lists = self.lists.write();
        if lists.epoch < map.epoch {
            *lists = Lists { epoch: map.epoch, allow: HashMap::new() };
        }
        if lists.epoch == map.epoch {
            lists.allow.insert(volume, Arc::new(list));
        }
        admitted
    }

    fn refuse(&self, peer: &Peer, denial: Denial) -> Result<(), Denial> {
        let mut refused = self.refused.lock();
        if refused.0.elapsed() > Duration::from_secs(60) {
            *refused = (Instant::now(), 0);
        }
        refused.1 += 1;
        if refused.1 <= REFUSALS_LOGGED_MAX {
            let who = peer.role.as_ref().map_or("a stranger".into(), Role::to_string);
            tracing::warn!(peer = %peer.address, who, why = %denial, "a request was refused");
            let text = format!("a request of {who} at {} was refused: {denial}", peer.address);
            self.events.note(EventKind::Refused, None, &text);
        }
        Err(denial)
    }
}

/// Why a volume serves no mounts, if the map says so. Mounts retry, so this is not logged by the server.
pub fn not_started(map: &ClusterMap, volume: GroupId) -> Option<Denial> {
    let (reason, detail) = match map.volumes.get(&volume) {
        Some(volume) => match volume.state {
            VolumeState::Started => return None,
            VolumeState::Stopped => (Reason::VolumeStopped, format!("volume {} is stopped", volume.name)),
            VolumeState::Created => {
                (Reason::VolumeStopped, format!("volume {} was never started", volume.name))
            }
        },
        None => (Reason::VolumeDeleted, "the volume was deleted".into()),
    };
    Some(Denial { reason, epoch: map.epoch, detail })
}
