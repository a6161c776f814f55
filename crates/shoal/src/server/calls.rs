//! What nodes and clients ask each other about the cluster, besides metadata and blocks.

use serde::{Deserialize, Serialize};
use shoal_cluster::scrub::ScrubReport;
use shoal_cluster::{Command, Outcome};
use shoal_meta::{BrickUse, ClearLocks, Cleared, HealStatus, SessionInfo};
use shoal_types::{BrickId, GroupId, NodeId, ReplicaId};
use shoal_wire::{CodecError, decode, encode};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Version of these messages.
const CALLS_VERSION: u8 = 1;

/// A question to a node of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The cluster map, if the node has a newer one than this epoch: [`Answer::Map`].
    Map { epoch: u64 },
    /// Carry a change of the map out; only the leader of the map's group does: [`Answer::Done`].
    Execute(Command),
    /// What runs on the node: [`Answer::Report`].
    Report { digest: bool },
    /// What the leader of a volume's metadata group is doing about its blocks: [`Answer::Heal`].
    Heal { volume: GroupId },
    /// Look again at what needs healing, all of it: [`Answer::Heal`]. For the leader.
    HealFull { volume: GroupId },
    /// Whether a brick can be made at a path: [`Answer::Done`], or [`Answer::Failed`] with the reason. With
    /// `force` also in the place of a retired brick of this cluster, which is then deleted:
    /// [`Answer::Noted`].
    CheckBrick { path: std::path::PathBuf, force: bool },
    /// Blocks of the volume that name a brick: [`Answer::Blocks`]. For the leader.
    BlocksOn { volume: GroupId, brick: BrickId },
    /// Who is in a metadata group, with a vote and without: [`Answer::Members`]. For its leader.
    Members { group: GroupId },
    /// The sessions of a volume: [`Answer::Sessions`]. For its leader.
    Sessions { volume: GroupId },
    /// Take locks of programs away: [`Answer::Cleared`]. For the volume's leader.
    ClearLocks { volume: GroupId, path: String, what: ClearLocks },
    /// What is said to be on each brick of a volume: [`Answer::Used`]. For its leader.
    Used { volume: GroupId },
    /// The disks under the bricks that a volume has on this node, and what scrubbing them found: [`Answer::Disks`].
    Disks { volume: GroupId },
    /// Read those bricks through now: [`Answer::Disks`].
    ScrubNow { volume: GroupId },
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// An encoded map; `None`: there is no newer one.
    Map(Option<Vec<u8>>),
    /// What became of a command.
    Done(Outcome),
    /// What runs on a node.
    Report(Report),
    /// How healing stands.
    Heal(Heal),
    /// How many blocks are on a brick, as far as the volume knows.
    Blocks(u64),
    /// Ask this node instead, if any is known.
    NotLeader(Option<NodeId>),
    /// It cannot be answered, and why.
    Failed(String),
    /// Replicas.
    Members(Vec<ReplicaId>),
    /// It was done, and the administrator should know this.
    Noted(String),
    /// Sessions.
    Sessions(Vec<Session>),
    /// Locks that were taken away.
    Cleared(Cleared),
    /// What is on bricks.
    Used(BTreeMap<BrickId, BrickUse>),
    /// Bricks of the node that answers.
    Disks(Vec<Disk>),
}

/// A session, as the volume's leader knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// What it is and holds.
    pub info: SessionInfo,
    /// Where it was last heard of, and by whose credentials, if it has spoken to this leader.
    pub from: Option<(IpAddr, String)>,
}

/// The disk under a brick, and what scrubbing the brick found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disk {
    /// The brick.
    pub id: BrickId,
    /// The file system it is on, if the mount table says: type and device.
    pub mount: Option<(String, String)>,
    /// Inodes of that file system, and those that are free.
    pub inodes: Option<(u64, u64)>,
    /// What was found; `None`: the brick is not scrubbed, because it is not served.
    pub scrub: Option<ScrubReport>,
}

/// What runs on a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Version of its program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// For how long it has been running, in seconds.
    pub uptime_s: u64,
    /// Epoch of the map that it knows.
    pub epoch: u64,
    /// Its replicas of metadata groups.
    pub replicas: Vec<ReplicaReport>,
    /// Its bricks.
    pub bricks: Vec<BrickReport>,
    /// Bricks whose files are being deleted.
    pub retired: Vec<RetiredReport>,
}

/// A brick that is being deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetiredReport {
    /// Where it is.
    pub path: std::path::PathBuf,
    /// Blocks deleted so far, by this process.
    pub deleted_blocks: u64,
    /// Why it does not go on.
    pub trouble: Option<String>,
}

/// A replica of a metadata group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Of which group.
    pub group: GroupId,
    /// Which.
    pub id: ReplicaId,
    /// Whether it runs.
    pub runs: bool,
    /// `leader`, `follower`, `candidate`, `learner`, or why it does not run.
    pub role: String,
    /// Whether it leads and may serve.
    pub leads: bool,
    /// Raft's term.
    pub term: u64,
    /// Up to where it has applied the log.
    pub applied: u64,
    /// Who takes part in decisions, as this replica knows.
    pub members: Vec<ReplicaId>,
    /// Digest of its whole state and the index that it belongs to, if asked for.
    pub digest: Option<(u64, u128)>,
}

/// A brick on its node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BrickReport {
    /// Which.
    pub id: BrickId,
    /// Why it is not served; `None`: it is.
    pub offline: Option<String>,
    /// Size of its disk in bytes.
    pub total_bytes: u64,
    /// Room left on it.
    pub free_bytes: u64,
}

/// How the healing of a volume stands, as its leader knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heal {
    /// Blocks of which copies are missing, or that are not where they should be, as far as known.
    pub degraded: u64,
    /// Whether there is something to do, or to look at, that can be done now.
    pub busy: bool,
    /// Whether blocks are being spread anew, or are about to be.
    pub rebalancing: bool,
    /// What the healer does, or did last.
    pub status: HealStatus,
}

/// A request to join.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinAsk {
    /// What the token says.
    pub secret: u128,
    /// The node's name.
    pub name: String,
    /// Where it will be reached.
    pub address: String,
}

/// What a node that joins is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// Its number.
    pub node: NodeId,
    /// The cluster.
    pub cluster: u128,
    /// Its credentials, as PEM: authority, certificate, key.
    pub credentials: [String; 3],
    /// The map, encoded.
    pub map: Vec<u8>,
}

/// Encodes any of these messages.
pub fn pack<T: Serialize>(message: &T) -> bytes::Bytes {
    encode(CALLS_VERSION, message).into()
}

/// Decodes one.
pub fn unpack<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    decode(CALLS_VERSION, bytes)
}
