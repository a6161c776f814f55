//! Who may do what.
//!
//! **Models.** A certificate says which node or client somebody is; the cluster map says whether that still counts. Nodes may do
//! everything. Clients may use the volumes whose `auth.allow` names their address, and see the map without its secrets.
//!
//! **Promises.** What is refused is logged with who and why, though not more often than anybody wants to read. The caller gets a
//! [`Denial`] with the epoch of the map that says so.

use super::directory::Directory;
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

/// The lists of a map, read once for each epoch.
#[derive(Default)]
struct Lists {
    epoch: u64,
    allow: HashMap<GroupId, Arc<AllowList>>,
}

/// See the module.
pub struct Access {
    directory: Arc<Directory>,
    lists: RwLock<Lists>,
    refused: Mutex<(Instant, u64)>,
}

impl Access {
    /// By the newest map.
    pub fn new(directory: Arc<Directory>) -> Access {
        Access { directory, lists: RwLock::default(), refused: Mutex::new((Instant::now(), 0)) }
    }

    /// Whether somebody is a node of the cluster.
    pub fn node(&self, peer: &Peer) -> Result<(), Denial> {
        match &peer.role {
            Some(Role::Node(node)) => {
                let map = self.directory.map();
                // One that is not known yet has joined after this map.
                if map.nodes.contains_key(node) || node.0 >= map.next.node {
                    return Ok(());
                }
                let detail = format!("{node} is not in the cluster any more");
                self.refuse(peer, Denial { reason: Reason::NodeDetached, epoch: map.epoch, detail })
            }
            _ => {
                let (epoch, detail) =
                    (self.directory.map().epoch, "only nodes of the cluster may do this".into());
                self.refuse(peer, Denial { reason: Reason::NodesOnly, epoch, detail })
            }
        }
    }

    /// Whether somebody is a node or a client that was not revoked.
    pub fn member(&self, peer: &Peer) -> Result<(), Denial> {
        match &peer.role {
            Some(Role::Client(name)) => {
                let map = self.directory.map();
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

    /// Whether somebody may use a volume.
    pub fn volume(&self, peer: &Peer, volume: GroupId) -> Result<(), Denial> {
        self.member(peer)?;
        if matches!(peer.role, Some(Role::Node(_))) || self.admits(volume, peer.address.ip()) {
            return Ok(());
        }
        let map = self.directory.map();
        let name = map.volumes.get(&volume).map_or("?", |volume| volume.name.as_str());
        let detail = format!("auth.allow of volume {name} does not name {}", peer.address.ip());
        self.refuse(peer, Denial { reason: Reason::AddressNotAllowed, epoch: map.epoch, detail })
    }

    fn admits(&self, volume: GroupId, address: IpAddr) -> bool {
        let map = self.directory.map();
        let lists = self.lists.read();
        if lists.epoch == map.epoch
            && let Some(list) = lists.allow.get(&volume)
        {
            return list.admits(address);
        }
        drop(lists);
        // What cannot be read admits nobody; it was checked when it was set.
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
        }
        Err(denial)
    }
}

/// Why a volume serves no mounts, if a map says so. Mounts ask again and again, so that is no line in a server's log.
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
