//! Changes of the cluster map.
//!
//! **Promises.** [`apply`] is a pure function of the map and the command, so all replicas of the map's group
//! come to the same one. A command that is refused changes nothing, and its error is written for the
//! administrator.

mod bricks;
mod nodes;
mod replicas;
mod volumes;

pub use replicas::FOUNDERS_MAX;
pub use volumes::ARBITRATED_COPIES;

use crate::map::{ClusterMap, VolumeState};
use serde::{Deserialize, Serialize};
use shoal_types::{BrickId, GroupId, Incarnation, NodeId, Timestamp};
use shoal_wire::{CodecError, decode, encode};
use std::path::PathBuf;

/// Version of an encoded command.
pub const COMMAND_VERSION: u8 = 1;

/// A change of the cluster map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Begins a cluster with its first node.
    Init {
        /// The cluster's identity.
        cluster: u128,
        /// The first node's name.
        name: String,
        /// Where it is reached.
        address: String,
        /// The authority, in PEM.
        authority: String,
        /// When.
        time: Timestamp,
    },
    /// Issues a token that lets nodes join until it expires.
    IssueToken {
        /// What they must know.
        secret: u128,
        /// Valid until then.
        expires: Timestamp,
        /// When.
        time: Timestamp,
    },
    /// A node joins: [`Outcome::Joined`]. A node of the same address that is there already has lost its disk:
    /// this one takes its place under a new number.
    Join {
        /// What it knows.
        secret: u128,
        /// Its name.
        name: String,
        /// Where it is reached.
        address: String,
        /// When.
        time: Timestamp,
    },
    /// A node is reached somewhere else from now on.
    Move {
        /// Which.
        node: NodeId,
        /// Where.
        address: String,
    },
    /// A node leaves. Without `force` refused while it has bricks; with it, what it had is lost to the
    /// cluster.
    Detach {
        /// Which.
        node: NodeId,
        /// Even if it has bricks.
        force: bool,
    },
    /// Makes a volume: [`Outcome::Volume`].
    CreateVolume {
        /// Its name.
        name: String,
        /// Its identity.
        id: GroupId,
        /// Copies of every block.
        replica: u8,
        /// Where.
        bricks: Vec<(NodeId, PathBuf)>,
        /// Even if two copies may come to lie on one node, or no node may die without a standstill.
        force: bool,
        /// When.
        time: Timestamp,
    },
    /// Lets a volume be mounted, or not any more.
    SetState {
        /// Which.
        volume: GroupId,
        /// Started or stopped.
        started: bool,
    },
    /// Forgets a volume that is stopped, and all that is in it.
    DeleteVolume {
        /// Which.
        volume: GroupId,
    },
    /// Changes a setting; `None`: back to the default.
    SetOption {
        /// Of which volume.
        volume: GroupId,
        /// Which one.
        key: String,
        /// To what.
        value: Option<String>,
    },
    /// Adds bricks: [`Outcome::Bricks`].
    AddBricks {
        /// To which volume.
        volume: GroupId,
        /// Where.
        bricks: Vec<(NodeId, PathBuf)>,
    },
    /// Begins to move what is on some bricks elsewhere.
    Drain {
        /// Of which volume.
        volume: GroupId,
        /// Which.
        bricks: Vec<BrickId>,
    },
    /// Uses bricks again that were being drained.
    Undrain {
        /// Of which volume.
        volume: GroupId,
        /// Which.
        bricks: Vec<BrickId>,
    },
    /// Bricks are gone. What they held is copied from elsewhere.
    Lose {
        /// Of which volume.
        volume: GroupId,
        /// Which.
        bricks: Vec<BrickId>,
    },
    /// A new brick takes the place of another, which is drained if it is there, or gone: [`Outcome::Bricks`].
    ReplaceBrick {
        /// Of which volume.
        volume: GroupId,
        /// Which.
        old: BrickId,
        /// The new one's node and path.
        new: (NodeId, PathBuf),
        /// The old one is gone.
        gone: bool,
    },
    /// No block names these bricks any more: they are forgotten.
    Forget {
        /// Of which volume.
        volume: GroupId,
        /// Which.
        bricks: Vec<BrickId>,
    },
    /// Blocks should be spread anew over all bricks.
    Rebalance {
        /// Of which volume.
        volume: GroupId,
    },
    /// Notes that a client was issued credentials.
    IssueClient {
        /// Its name.
        name: String,
        /// When.
        time: Timestamp,
    },
    /// Refuses a client's credentials from now on.
    RevokeClient {
        /// Its name.
        name: String,
    },
    /// Gives a volume another name. Mounts know it by its identity and go on.
    RenameVolume {
        /// Which.
        volume: GroupId,
        /// The new name.
        name: String,
    },
    /// Blocks stay where they are: the rebalance under way is given up.
    StopRebalance {
        /// Of which volume.
        volume: GroupId,
    },
    /// A node's server has started. Refused if a later run of it is known.
    NodeStarted {
        /// Which.
        node: NodeId,
        /// Which run.
        run: Incarnation,
    },
    /// Makes a volume of two copies with arbiters: [`Outcome::Volume`].
    CreateArbitrated {
        /// Its name.
        name: String,
        /// Its identity.
        id: GroupId,
        /// Where blocks go.
        bricks: Vec<(NodeId, PathBuf)>,
        /// Nodes that keep metadata and no blocks.
        arbiters: Vec<NodeId>,
        /// Even if no node may die without a standstill.
        force: bool,
        /// When.
        time: Timestamp,
    },
}

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// A node has joined.
    Joined(NodeId),
    /// A volume was made.
    Volume(GroupId),
    /// Bricks were added.
    Bricks(Vec<BrickId>),
    /// It was refused, for a reason that an administrator understands; nothing was changed.
    Refused(String),
}

impl Command {
    /// For the log and for other nodes.
    pub fn encode(&self) -> Vec<u8> {
        encode(COMMAND_VERSION, self)
    }

    /// The other way round.
    pub fn decode(bytes: &[u8]) -> Result<Command, CodecError> {
        decode(COMMAND_VERSION, bytes)
    }
}

type Applied = Result<Outcome, String>;

/// The map after a command, or the same map and why not.
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
            volumes::create(map, (name, *id), *replica, (bricks, &[]), *force, *time)
        }
        Command::CreateArbitrated { name, id, bricks, arbiters, force, time } => {
            volumes::create(map, (name, *id), ARBITRATED_COPIES, (bricks, arbiters), *force, *time)
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

/// What can be a name everywhere: in paths, host names and certificates.
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

/// The state as commands call it.
fn state_of(started: bool) -> VolumeState {
    if started { VolumeState::Started } else { VolumeState::Stopped }
}
