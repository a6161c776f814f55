//! Commands: changes of the cluster map.
//!
//! **Promises.** [`apply`] is a pure function of the map and the command, so all replicas of the map's group
//! compute the same map. A refused command changes nothing, and its error is written for the administrator.

mod bricks;
mod nodes;
mod replicas;
mod tiers;
mod volumes;

pub use replicas::FOUNDERS_MAX;
pub use volumes::ARBITRATED_COPIES;

use crate::map::{ClusterMap, Shards, VolumeState};
use serde::{Deserialize, Serialize};
use shoal_types::limits::POLICIES_MAX;
use shoal_types::{
    BlockScheme, BrickId, GroupId, Incarnation, InodeId, InodePolicies, NodeId, Tier, Timestamp,
};
use shoal_wire::{CodecError, decode, encode};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of an encoded command.
pub const COMMAND_VERSION: u8 = 1;

/// A change of the cluster map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Founds a cluster with its first node.
    Init {
        /// The cluster's identity.
        cluster: u128,
        /// The first node's name.
        name: String,
        /// Its address.
        address: String,
        /// The certificate authority, in PEM.
        authority: String,
        /// When it was founded.
        time: Timestamp,
    },
    /// Issues a token that lets nodes join until it expires.
    IssueToken {
        /// The token's secret.
        secret: u128,
        /// The token expires then.
        expires: Timestamp,
        /// When it was issued.
        time: Timestamp,
    },
    /// A node joins: [`Outcome::Joined`]. An existing node of the same address has lost its disk: the new one
    /// replaces it under a new number.
    Join {
        /// The secret of its token.
        secret: u128,
        /// Its name.
        name: String,
        /// Its address.
        address: String,
        /// When it joined.
        time: Timestamp,
    },
    /// A node's address has changed.
    Move {
        /// The node.
        node: NodeId,
        /// Its new address.
        address: String,
    },
    /// Detaches a node. Refused while it has bricks, unless `force` is set; then what it stored is lost to
    /// the cluster.
    Detach {
        /// The node.
        node: NodeId,
        /// Even if it has bricks.
        force: bool,
    },
    /// Creates a volume: [`Outcome::Volume`].
    CreateVolume {
        /// Its name.
        name: String,
        /// Its identity.
        id: GroupId,
        /// Copies of every block.
        replica: u8,
        /// Nodes and paths of its bricks.
        bricks: Vec<(NodeId, PathBuf)>,
        /// Even if two copies may be placed on one node, or the loss of a node would stop the volume.
        force: bool,
        /// When it was created.
        time: Timestamp,
    },
    /// Starts or stops a volume: only a started one can be mounted.
    SetState {
        /// The volume.
        volume: GroupId,
        /// Started or stopped.
        started: bool,
    },
    /// Deletes a stopped volume, and all its content.
    DeleteVolume {
        /// The volume.
        volume: GroupId,
    },
    /// Changes a setting; `None`: back to the default.
    SetOption {
        /// The volume.
        volume: GroupId,
        /// The name of the setting.
        key: String,
        /// Its new value.
        value: Option<String>,
    },
    /// Adds bricks: [`Outcome::Bricks`].
    AddBricks {
        /// The volume.
        volume: GroupId,
        /// Nodes and paths of the bricks.
        bricks: Vec<(NodeId, PathBuf)>,
    },
    /// Starts to drain bricks.
    Drain {
        /// The volume.
        volume: GroupId,
        /// The bricks.
        bricks: Vec<BrickId>,
    },
    /// Stops draining bricks, and uses them again.
    Undrain {
        /// The volume.
        volume: GroupId,
        /// The bricks.
        bricks: Vec<BrickId>,
    },
    /// Bricks are lost. Their blocks are restored from other copies.
    Lose {
        /// The volume.
        volume: GroupId,
        /// The bricks.
        bricks: Vec<BrickId>,
    },
    /// Replaces a brick by a new one: [`Outcome::Bricks`]. The old one is drained, unless it is lost.
    ReplaceBrick {
        /// The volume.
        volume: GroupId,
        /// The old brick.
        old: BrickId,
        /// The new one's node and path.
        new: (NodeId, PathBuf),
        /// The old one is lost.
        gone: bool,
    },
    /// No block is on these bricks any more: removes them from the map.
    Forget {
        /// The volume.
        volume: GroupId,
        /// The bricks.
        bricks: Vec<BrickId>,
    },
    /// Requests a rebalance of a volume over all its bricks.
    Rebalance {
        /// The volume.
        volume: GroupId,
    },
    /// Records that a client was issued credentials.
    IssueClient {
        /// The client's name.
        name: String,
        /// When they were issued.
        time: Timestamp,
    },
    /// Revokes a client's credentials.
    RevokeClient {
        /// The client's name.
        name: String,
    },
    /// Renames a volume. Mounts identify it by its number and are not affected.
    RenameVolume {
        /// The volume.
        volume: GroupId,
        /// The new name.
        name: String,
    },
    /// Aborts the rebalance in progress: blocks stay where they are.
    StopRebalance {
        /// The volume.
        volume: GroupId,
    },
    /// A node's server has started. Refused if a later run of it is known.
    NodeStarted {
        /// The node.
        node: NodeId,
        /// The run of its server.
        run: Incarnation,
    },
    /// Creates a volume of two copies with arbiters: [`Outcome::Volume`].
    CreateArbitrated {
        /// Its name.
        name: String,
        /// Its identity.
        id: GroupId,
        /// Nodes and paths of its bricks.
        bricks: Vec<(NodeId, PathBuf)>,
        /// Nodes that store its metadata and no blocks.
        arbiters: Vec<NodeId>,
        /// Even if the loss of a node would stop the volume.
        force: bool,
        /// When it was created.
        time: Timestamp,
    },
    /// Creates a volume whose blocks are stored as shards: [`Outcome::Volume`].
    CreateDispersed {
        /// Its name.
        name: String,
        /// Its identity.
        id: GroupId,
        /// The scheme.
        shards: Shards,
        /// Nodes and paths of its bricks.
        bricks: Vec<(NodeId, PathBuf)>,
        /// Even if two shards of a block may be placed on one node, or the loss of a node would stop the
        /// volume.
        force: bool,
        /// When it was created.
        time: Timestamp,
    },
    /// Attaches a hot tier to a volume: [`Outcome::Bricks`].
    AttachTier {
        /// The volume.
        volume: GroupId,
        /// Copies of a block, unless it is in shards.
        replica: u8,
        /// The scheme, if blocks are stored as shards.
        shards: Option<Shards>,
        /// Nodes and paths of its bricks.
        bricks: Vec<(NodeId, PathBuf)>,
        /// Even if two copies may be placed on one node.
        force: bool,
    },
    /// Starts to empty the hot tier, or stops that: new blocks are stored there again.
    DetachTier {
        /// The volume.
        volume: GroupId,
        /// Starts.
        start: bool,
    },
    /// No block is on the hot tier any more: removes it and its bricks.
    RemoveTier {
        /// The volume.
        volume: GroupId,
    },
    /// Changes how a volume stores its blocks; the healer stores those anew that it has. Only after
    /// [`AllowCopies`](Self::AllowCopies) may the number of losses change that a block survives.
    Convert {
        /// The volume.
        volume: GroupId,
        /// Copies of a block, unless it is in shards.
        replica: u8,
        /// The scheme, if blocks are to be stored as shards.
        shards: Option<Shards>,
        /// Even if two shards of a block may be placed on one node, or blocks survive fewer losses than now.
        force: bool,
    },
    /// Pins a directory or a file, and what is below it, to a tier, or removes its pin.
    Pin {
        /// The volume.
        volume: GroupId,
        /// The directory or file.
        ino: InodeId,
        /// The tier; `None`: it has no pin of its own any more.
        tier: Option<Tier>,
        /// Pinned inodes that no longer exist: their pins are removed.
        removed: Vec<InodeId>,
    },
    /// Gives a directory or a file, and what is below it, a scheme of its own, or takes it away.
    SetDirectoryScheme {
        /// The volume.
        volume: GroupId,
        /// The directory or file.
        ino: InodeId,
        /// The scheme; `None`: it has none of its own any more.
        scheme: Option<BlockScheme>,
        /// Inodes that had a scheme and no longer exist: their schemes are removed.
        removed: Vec<InodeId>,
        /// Even if two shards of a block may be placed on one node, or blocks survive fewer losses than now.
        force: bool,
    },
    /// Lets blocks of a volume survive another number of losses than at its creation. From then on their
    /// groups may have numbers of copies of their own. A command of its own, since older nodes would refuse
    /// the conversion that follows and keep another map: they stop here instead.
    AllowCopies {
        /// The volume.
        volume: GroupId,
    },
}

/// The result of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It was applied.
    Done,
    /// A node has joined.
    Joined(NodeId),
    /// The new volume.
    Volume(GroupId),
    /// Bricks were added.
    Bricks(Vec<BrickId>),
    /// It was refused, with the reason for the administrator; nothing was changed.
    Refused(String),
}

impl Command {
    /// Encodes it for the log and for other nodes.
    pub fn encode(&self) -> Vec<u8> {
        encode(COMMAND_VERSION, self)
    }

    /// Decodes an [encoded](Self::encode) command.
    pub fn decode(bytes: &[u8]) -> Result<Command, CodecError> {
        decode(COMMAND_VERSION, bytes)
    }
}

type Applied = Result<Outcome, String>;

/// The map after a command, or the same map and the reason of the refusal.
pub fn apply(map: &ClusterMap, command: &Command) -> (ClusterMap, Outcome) {
    let mut next = map.clone();
    if map.cluster == 0 && !matches!(command, Command::Init { .. }) {
        return (next, Outcome::Refused("the cluster has not begun".into()));
    }
    match change(&mut next, command) {
        Ok(outcome) => {
            replicas::arrange(&mut next);
            next.epoch += 1;
            (next, outcome)
        }
        Err(why) => (map.clone(), Outcome::Refused(why)),
    }
}

/// Sets or removes an inode's policy of one kind, and removes those of other inodes. Returns whether the
/// volume has no more than it may.
fn set_policy<T>(
    all: &mut BTreeMap<GroupId, InodePolicies<T>>,
    volume: GroupId,
    (ino, policy): (InodeId, Option<T>),
    removed: &[InodeId],
) -> bool {
    let policies = all.entry(volume).or_default();
    policies.retain(|it, _| !removed.contains(it) && *it != ino);
    policies.extend(policy.map(|policy| (ino, policy)));
    let fits = policies.len() <= POLICIES_MAX;
    if policies.is_empty() {
        all.remove(&volume);
    }
    fits
}

fn change(map: &mut ClusterMap, command: &Command) -> Applied {
    match command {
        Command::Init { cluster, name, address, authority, time } => {
            nodes::init(map, *cluster, (name, address), authority, *time)
        }
        Command::IssueToken { secret, expires, time } => nodes::issue_token(map, *secret, *expires, *time),
        Command::Join { secret, name, address, time } => nodes::join(map, *secret, (name, address), *time),
        Command::Move { node, address } => nodes::relocate(map, *node, address),
        Command::Detach { node, force } => nodes::detach(map, *node, *force),
        Command::CreateVolume { name, id, replica, bricks, force, time } => {
            volumes::create(map, (name, *id), (BlockScheme::Copies(*replica), None), bricks, *force, *time)
        }
        Command::CreateArbitrated { name, id, bricks, arbiters, force, time } => volumes::create(
            map,
            (name, *id),
            (BlockScheme::Copies(ARBITRATED_COPIES), Some(arbiters)),
            bricks,
            *force,
            *time,
        ),
        Command::CreateDispersed { name, id, shards, bricks, force, time } => {
            volumes::create(map, (name, *id), (BlockScheme::Shards(*shards), None), bricks, *force, *time)
        }
        Command::AttachTier { volume, replica, shards, bricks, force } => {
            tiers::attach(map, *volume, BlockScheme::new(*replica, *shards), bricks, *force)
        }
        Command::DetachTier { volume, start } => tiers::detach(map, *volume, *start),
        Command::RemoveTier { volume } => tiers::remove(map, *volume),
        Command::Convert { volume, replica, shards, force } => {
            volumes::convert(map, *volume, BlockScheme::new(*replica, *shards), *force)
        }
        Command::AllowCopies { volume } => volumes::allow_copies(map, *volume),
        Command::Pin { volume, ino, tier, removed } => tiers::pin(map, *volume, *ino, *tier, removed),
        Command::SetDirectoryScheme { volume, ino, scheme, removed, force } => {
            volumes::set_directory_scheme(map, *volume, (*ino, *scheme), removed, *force)
        }
        Command::SetState { volume, started } => volumes::set_state(map, *volume, *started),
        Command::DeleteVolume { volume } => volumes::delete(map, *volume),
        Command::SetOption { volume, key, value } => volumes::set_option(map, *volume, key, value.as_deref()),
        Command::AddBricks { volume, bricks } => bricks::add(map, *volume, bricks),
        Command::Drain { volume, bricks } => bricks::drain(map, *volume, bricks),
        Command::Undrain { volume, bricks } => bricks::undrain(map, *volume, bricks),
        Command::Lose { volume, bricks } => bricks::lose(map, *volume, bricks),
        Command::ReplaceBrick { volume, old, new, gone } => bricks::replace(map, *volume, *old, new, *gone),
        Command::Forget { volume, bricks } => bricks::forget(map, *volume, bricks),
        Command::Rebalance { volume } => {
            volume_mut(map, *volume)?.begin_rebalance();
            Ok(Outcome::Done)
        }
        Command::StopRebalance { volume } => {
            volume_mut(map, *volume)?.stop_rebalance();
            Ok(Outcome::Done)
        }
        Command::RenameVolume { volume, name } => volumes::rename(map, *volume, name),
        Command::IssueClient { name, time } => {
            if map.revoked.contains(name) {
                return Err(format!("the credentials of '{name}' were revoked; choose another name"));
            }
            check_name(name, "a client")?;
            map.clients.insert(name.clone(), *time);
            Ok(Outcome::Done)
        }
        Command::NodeStarted { node, run } => nodes::started(map, *node, *run),
        Command::RevokeClient { name } => {
            if map.clients.remove(name).is_none() && !map.revoked.contains(name) {
                return Err(format!(
                    "no credentials were issued to '{name}'; `shoal client list` shows who has some"
                ));
            }
            if !map.revoked.contains(name) {
                map.revoked.push(name.clone());
            }
            Ok(Outcome::Done)
        }
    }
}

fn volume_mut(map: &mut ClusterMap, id: GroupId) -> Result<&mut crate::map::Volume, String> {
    map.volumes.get_mut(&id).ok_or_else(|| "there is no such volume (any more)".into())
}

/// Longest name of a node, volume or client, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Checks that a name is valid in paths, host names and certificates.
pub(crate) fn check_name(name: &str, whose: &str) -> Result<(), String> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if fits && starts && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Ok(());
    }
    Err(format!(
        "'{name}' cannot name {whose}: use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    ))
}

/// The state that a command names.
fn state_of(started: bool) -> VolumeState {
    if started { VolumeState::Started } else { VolumeState::Stopped }
}
