//! The cluster map: nodes, bricks, volumes, and the places of replicas.
//!
//! **Model.** One value, changed by [`Command`](crate::Command)s, each of which makes the next epoch. A small
//! metadata group decides the order of commands. All other processes hold a copy of some epoch and ask for
//! newer ones. Acting on an old map is safe: the bricks of a block are recorded with the block, and a
//! volume's leader is elected by Raft.
//!
//! **Promises.** Numbers of nodes, bricks and replicas are never reused: a node or replica that returns
//! without its promised state gets a new number.

use crate::options::OP_VERSION;
use serde::{Deserialize, Serialize};
pub use shoal_types::Shards;
use shoal_types::{
    BlockScheme, BrickId, GroupId, Incarnation, NodeId, Pins, Policies, ReplicaId, Schemes, Tier, Timestamp,
};
use shoal_wire::{CodecError, decode, encode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Version of an encoded map with every field. A map whose last fields are empty is encoded as the version
/// before them, so that older nodes and clients read it. They refuse a volume that they would not know how to
/// read.
pub const MAP_VERSION: u8 = 7;
/// Version 6 lacks the last field, [`ClusterMap::copies`].
const MAP_VERSION_DIRECTORIES: u8 = 6;
/// Version 5 lacks [`ClusterMap::directory_schemes`], too.
const MAP_VERSION_PINS: u8 = 5;
/// Version 4 lacks [`ClusterMap::pins`], too.
const MAP_VERSION_TIERS: u8 = 4;
/// Version 3 lacks [`ClusterMap::tiers`], too.
const MAP_VERSION_SCHEMES: u8 = 3;
/// Version 2 lacks [`ClusterMap::schemes`], too.
const MAP_VERSION_COPIES: u8 = 2;
/// The oldest version that is read. It lacks the last fields, from [`ClusterMap::runs`] on.
const MAP_VERSION_OLDEST: u8 = 1;
/// What versions lack at their end: empty maps, as they are encoded.
const ADDED: [u8; 7] = [0; 7];

/// One epoch of the cluster map.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Grows by one with every change.
    pub epoch: u64,
    /// The cluster's identity; 0 before it was founded.
    pub cluster: u128,
    /// All nodes that have not been detached.
    pub nodes: BTreeMap<NodeId, Node>,
    /// All bricks that the record of a block may still name.
    pub bricks: BTreeMap<BrickId, Brick>,
    /// All volumes.
    pub volumes: BTreeMap<GroupId, Volume>,
    /// Replicas of the group that keeps this map.
    pub replicas: Vec<ReplicaPlace>,
    /// Names of clients whose credentials are refused.
    pub revoked: Vec<String>,
    /// Names of clients that were issued credentials, and when.
    pub clients: BTreeMap<String, Timestamp>,
    /// Only for nodes.
    pub secrets: Secrets,
    /// The next free numbers.
    pub next: NextIds,
    /// The latest known run of each node's server: older ones are refused everywhere.
    pub runs: BTreeMap<NodeId, Incarnation>,
    /// Volumes with arbiters, and the nodes that arbitrate: they keep metadata and no blocks. Of a block's
    /// two copies one is enough for a write while the other node is down, as a majority decides which copy
    /// counts. The set is empty while there is no such node.
    pub arbiters: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Volumes whose blocks are stored as shards. A block that is too short to be split has one copy more
    /// than there are parity shards, and survives as many losses.
    pub schemes: BTreeMap<GroupId, Shards>,
    /// The hot tiers of volumes that have one.
    pub tiers: BTreeMap<GroupId, HotTier>,
    /// Directories and files that are pinned to a tier. Volumes without any are not listed.
    pub pins: BTreeMap<GroupId, Pins>,
    /// Directories and files with a scheme of their own. Volumes without any are not listed.
    pub directory_schemes: BTreeMap<GroupId, Schemes>,
    /// Volumes where blocks may survive another number of losses than at their creation, and the copies of
    /// new short blocks. Once listed they stay: their blocks' groups may have numbers of copies of their own.
    pub copies: BTreeMap<GroupId, u8>,
}

/// The hot tier of a volume: bricks with a scheme of their own, which new blocks are stored on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HotTier {
    /// Its bricks. All other bricks of the volume are the cold tier.
    pub bricks: BTreeSet<BrickId>,
    /// Copies of a block; if it is in shards, one more than the parity shards.
    pub replica: u8,
    /// The scheme, if blocks are stored as shards.
    pub shards: Option<Shards>,
    /// It is being emptied: new blocks are stored on the cold tier.
    pub detaching: bool,
}

/// The part of the map that clients do not get.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Secrets {
    /// Certificate and key of the cluster's authority, in PEM: any node can issue credentials.
    pub authority: String,
    /// Tokens with which nodes may join.
    pub tokens: Vec<Token>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secrets)")
    }
}

/// A join token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// The secret that the joining node must present.
    pub secret: u128,
    /// The token expires then.
    pub expires: Timestamp,
}

/// Free numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NextIds {
    /// The next node's.
    pub node: u32,
    /// The next brick's.
    pub brick: u16,
    /// The next replica's, of any group.
    pub replica: u64,
}

impl Default for NextIds {
    fn default() -> NextIds {
        NextIds { node: 1, brick: 1, replica: 1 }
    }
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// The administrator's name for it: the part before the colon in `HOST:/BRICK`.
    pub name: String,
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// When it joined.
    pub joined: Timestamp,
}

impl Node {
    /// The address without its port.
    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host)
    }
}

/// A directory that stores blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Brick {
    /// The machine it is on.
    pub node: NodeId,
    /// The path on that machine.
    pub path: PathBuf,
    /// The volume whose blocks it stores.
    pub volume: GroupId,
    /// Whether it may be written to and read from.
    pub state: BrickState,
    /// It is being replaced: it is removed when it is empty.
    pub replaced: bool,
}

/// The state of a [`Brick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BrickState {
    /// In use.
    Active,
    /// Its blocks are being moved elsewhere: it is read from, and gets no new blocks.
    Draining,
    /// It is lost, and so are its copies.
    Gone,
}

/// A file system tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Its name, unique among all volumes.
    pub name: String,
    /// Copies of a block when the volume was created, for ever: it is the number of copies of those blocks
    /// whose group has none of its own. See [`ClusterMap::scheme_in`] for new blocks.
    pub replica: u8,
    /// Whether it can be mounted.
    pub state: VolumeState,
    /// Replicas of its metadata group.
    pub replicas: Vec<ReplicaPlace>,
    /// Its bricks, in the order in which they were given, tombstones included.
    pub bricks: Vec<BrickId>,
    /// Settings that differ from the default.
    pub options: BTreeMap<String, String>,
    /// When it was created.
    pub created: Timestamp,
    /// Incremented by each request for a rebalance; `REBALANCE_STOPPED` is set while that is stopped.
    pub rebalance: u64,
}

/// The bit of [`Volume::rebalance`] that says that the last rebalance was stopped. A bit, so that the record
/// keeps its format.
const REBALANCE_STOPPED: u64 = 1 << 63;

impl Volume {
    /// Requests a rebalance.
    pub fn begin_rebalance(&mut self) {
        self.rebalance = (self.rebalance & !REBALANCE_STOPPED) + 1;
    }

    /// Aborts the rebalance.
    pub fn stop_rebalance(&mut self) {
        self.rebalance |= REBALANCE_STOPPED;
    }

    /// Whether the last rebalance was stopped.
    pub fn is_rebalance_stopped(&self) -> bool {
        self.rebalance & REBALANCE_STOPPED != 0
    }
}

/// The state of a [`Volume`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum VolumeState {
    /// Created, and not started yet.
    Created,
    /// Can be mounted.
    Started,
    /// Cannot be mounted.
    Stopped,
}

/// The place of a replica of a metadata group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaPlace {
    /// The replica.
    pub id: ReplicaId,
    /// Its node.
    pub node: NodeId,
    /// It is a founder: its node creates it with all founders as its members. Other replicas are created
    /// empty and are added by the group's leader.
    pub founder: bool,
}

impl ClusterMap {
    /// Encodes it for the log, the disk and other nodes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = encode(MAP_VERSION, self);
        // The last fields, from the end, and the version without each. An empty one is one byte.
        let last = [
            (self.copies.is_empty(), MAP_VERSION_DIRECTORIES),
            (self.directory_schemes.is_empty(), MAP_VERSION_PINS),
            (self.pins.is_empty(), MAP_VERSION_TIERS),
            (self.tiers.is_empty(), MAP_VERSION_SCHEMES),
            (self.schemes.is_empty(), MAP_VERSION_COPIES),
        ];
        for (_, version) in last.into_iter().take_while(|(is_empty, _)| *is_empty) {
            bytes.truncate(bytes.len() - 1);
            bytes[0] = version;
        }
        bytes
    }

    /// Decodes an [encoded](Self::encode) map.
    pub fn decode(bytes: &[u8]) -> Result<ClusterMap, CodecError> {
        let lacks = match bytes.first() {
            Some(&MAP_VERSION_OLDEST) => ADDED.len(),
            Some(&MAP_VERSION_COPIES) => 5,
            Some(&MAP_VERSION_SCHEMES) => 4,
            Some(&MAP_VERSION_TIERS) => 3,
            Some(&MAP_VERSION_PINS) => 2,
            Some(&MAP_VERSION_DIRECTORIES) => 1,
            _ => return decode(MAP_VERSION, bytes),
        };
        decode(MAP_VERSION, &[&[MAP_VERSION], &bytes[1..], &ADDED[..lacks]].concat())
    }

    /// The part that clients may see.
    pub fn view(&self) -> ClusterMap {
        ClusterMap { secrets: Secrets::default(), clients: BTreeMap::new(), ..self.clone() }
    }

    /// A volume by its name.
    pub fn volume(&self, name: &str) -> Option<(GroupId, &Volume)> {
        self.volumes.iter().find(|(_, volume)| volume.name == name).map(|(id, volume)| (*id, volume))
    }

    /// A node by its name, or by the host part of its address.
    pub fn node(&self, host: &str) -> Option<(NodeId, &Node)> {
        let named = self.nodes.iter().find(|(_, node)| node.name == host);
        let found =
            named.or_else(|| self.nodes.iter().find(|(_, node)| node.host() == host || node.address == host));
        found.map(|(id, node)| (*id, node))
    }

    /// The replicas of a group.
    pub fn replicas(&self, group: GroupId) -> &[ReplicaPlace] {
        match group {
            GroupId::CLUSTER => &self.replicas,
            volume => self.volumes.get(&volume).map_or(&[], |volume| &volume.replicas),
        }
    }

    /// The node of a replica.
    pub fn node_of(&self, group: GroupId, replica: ReplicaId) -> Option<NodeId> {
        self.replicas(group).iter().find(|place| place.id == replica).map(|place| place.node)
    }

    /// A brick of a volume by `HOST:/PATH`, unless it is gone.
    pub fn brick(&self, volume: GroupId, host: &str, path: &std::path::Path) -> Option<BrickId> {
        let (node, _) = self.node(host)?;
        let is_it = |brick: &Brick| {
            brick.volume == volume
                && brick.node == node
                && brick.path == path
                && brick.state != BrickState::Gone
        };
        self.bricks.iter().find(|(_, brick)| is_it(brick)).map(|(id, _)| *id)
    }

    /// Bricks of a volume with their numbers, in the order in which they were given, without those that are
    /// gone.
    pub fn bricks_of(&self, volume: GroupId) -> impl Iterator<Item = (BrickId, &Brick)> {
        let ids = self.volumes.get(&volume).map_or(&[][..], |volume| &volume.bricks);
        ids.iter()
            .filter_map(|id| Some((*id, self.bricks.get(id)?)))
            .filter(|(_, brick)| brick.state != BrickState::Gone)
    }

    /// The tier of a volume's brick.
    pub fn tier_of(&self, volume: GroupId, brick: BrickId) -> Tier {
        let is_hot = self.tiers.get(&volume).is_some_and(|tier| tier.bricks.contains(&brick));
        if is_hot { Tier::Hot } else { Tier::Cold }
    }

    /// [`bricks_of`](Self::bricks_of), those of one tier.
    pub fn bricks_in(&self, volume: GroupId, tier: Tier) -> impl Iterator<Item = (BrickId, &Brick)> {
        self.bricks_of(volume).filter(move |(id, _)| self.tier_of(volume, *id) == tier)
    }

    /// The scheme of a tier. On the cold one it is that of content whose directories have none of their own.
    pub fn scheme_in(&self, volume: GroupId, tier: Tier) -> Option<BlockScheme> {
        let it = self.volumes.get(&volume)?;
        Some(match tier {
            Tier::Cold => {
                let copies = self.copies.get(&volume).copied().unwrap_or(it.replica);
                BlockScheme::new(copies, self.schemes.get(&volume).copied())
            }
            Tier::Hot => self.tiers.get(&volume).map(|tier| BlockScheme::new(tier.replica, tier.shards))?,
        })
    }

    /// Copies of a block when the volume was created; 0: there is no such volume.
    pub fn original_copies(&self, volume: GroupId) -> u8 {
        self.volumes.get(&volume).map_or(0, |it| it.replica)
    }

    /// All schemes that new blocks on a tier may have.
    pub fn schemes_in(&self, volume: GroupId, tier: Tier) -> impl Iterator<Item = BlockScheme> {
        let of_directories = self.directory_schemes.get(&volume).filter(|_| tier == Tier::Cold);
        let of_directories = of_directories.into_iter().flat_map(|schemes| schemes.values().copied());
        self.scheme_in(volume, tier).into_iter().chain(of_directories)
    }

    /// The shards of blocks on a tier, if there may be any. A tier never has two schemes of shards.
    pub fn shards_in(&self, volume: GroupId, tier: Tier) -> Option<Shards> {
        self.schemes_in(volume, tier).find_map(BlockScheme::shards)
    }

    /// Whether any tier of a volume stores blocks as shards.
    pub fn has_shards(&self, volume: GroupId) -> bool {
        self.tiers_of(volume).any(|tier| self.shards_in(volume, tier).is_some())
    }

    /// The policies of directories and files of a volume.
    pub fn policies(&self, volume: GroupId) -> Policies {
        Policies {
            pins: self.pins.get(&volume).cloned().unwrap_or_default(),
            schemes: self.directory_schemes.get(&volume).cloned().unwrap_or_default(),
        }
    }

    /// The tiers that a volume has.
    pub fn tiers_of(&self, volume: GroupId) -> impl Iterator<Item = Tier> {
        let hot = self.tiers.contains_key(&volume).then_some(Tier::Hot);
        [Tier::Cold].into_iter().chain(hot)
    }

    /// `HOST:/PATH` of a brick.
    pub fn brick_name(&self, id: BrickId) -> String {
        match self.bricks.get(&id) {
            Some(brick) => {
                let node = self.nodes.get(&brick.node).map_or("(detached)", |node| node.name.as_str());
                format!("{node}:{}", brick.path.display())
            }
            None => id.to_string(),
        }
    }

    /// A setting of a volume: its value, or the default; `None` for an unknown key.
    pub fn option(&self, volume: GroupId, key: &str) -> Option<String> {
        let known = crate::options::find(key)?;
        let set = self.volumes.get(&volume).and_then(|volume| volume.options.get(key));
        Some(set.cloned().unwrap_or_else(|| known.default.to_owned()))
    }

    /// The version of operations that all servers and mounts of a volume know.
    pub fn ops_version(&self, volume: GroupId) -> u8 {
        self.option(volume, OP_VERSION).and_then(|version| version.parse().ok()).unwrap_or(1)
    }

    /// The mount options that follow from a volume's settings: see
    /// [`mount_options`](crate::options::mount_options).
    pub fn mount_options(&self, volume: GroupId) -> String {
        crate::options::mount_options(|key| self.option(volume, key))
    }
}
