//! Requests between nodes, and from clients to nodes, about the cluster. Metadata and blocks have protocols
//! of their own.

use crate::admin::{Event, SeenEvent};
use crate::profile::{Profiled, Round, RoundReply};
use serde::{Deserialize, Serialize};
use shoal_cluster::scrub::ScrubReport;
use shoal_cluster::{Command, CopyRequest, Outcome};
use shoal_meta::{
    BrickUse, ClearLocks, Cleared, HealStatus, Losses, Move, PolicyState, RebalanceStatus, SchemeUse,
    SessionInfo, TierState,
};
use shoal_net::{Link, NetError, Service};
use shoal_types::{BlockGroup, BlockScheme, BrickId, GroupId, InodeId, NodeId, ReplicaId, SessionId, Tier};
use shoal_wire::{BlockError, CodecError, decode, encode};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Version of these messages.
const CALLS_VERSION: u8 = 1;

/// A request to a node of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeRequest {
    /// The cluster map, if the node has a newer one than this epoch: [`NodeReply::Map`].
    Map { epoch: u64 },
    /// Carry out a change of the map, as the leader of the map's group: [`NodeReply::Done`].
    Execute(Command),
    /// The state of everything that runs on the node: [`NodeReply::Report`].
    Report { digest: bool },
    /// The progress of healing, from the leader of the volume's metadata group: [`NodeReply::Heal`].
    Heal { volume: GroupId },
    /// Examine all blocks for healing, as the leader: [`NodeReply::Heal`].
    HealFull { volume: GroupId },
    /// Whether a brick can be created at a path: [`NodeReply::Done`], or [`NodeReply::Failed`] with the
    /// reason. With `force`, a retired brick of this cluster may be there, which is then deleted:
    /// [`NodeReply::Noted`].
    CheckBrick { path: std::path::PathBuf, force: bool },
    /// Blocks of the volume that name a brick: [`NodeReply::Blocks`]. For the leader.
    BlocksOn { volume: GroupId, brick: BrickId },
    /// The voters and learners of a metadata group: [`NodeReply::Members`]. For its leader.
    Members { group: GroupId },
    /// The sessions of a volume: [`NodeReply::Sessions`]. For its leader.
    Sessions { volume: GroupId },
    /// Remove flock and POSIX locks: [`NodeReply::Cleared`]. For the volume's leader.
    ClearLocks { volume: GroupId, path: String, what: ClearLocks },
    /// Use of each brick of a volume, by the records of its blocks: [`NodeReply::Used`]. For its leader.
    Used { volume: GroupId },
    /// The disks under the bricks that a volume has on this node, and the findings of their scrubs:
    /// [`NodeReply::Disks`].
    Disks { volume: GroupId },
    /// Scrub those bricks now: [`NodeReply::Disks`].
    ScrubNow { volume: GroupId },
    /// Begins a round, and asks the volume's bricks on this node: [`NodeReply::Profiles`].
    BeginRound { volume: GroupId, round: Round },
    /// The replies of mounts in a round, for sessions with numbers above `after`:
    /// [`NodeReply::RoundReplies`].
    RoundReplies { volume: GroupId, round: u64, after: Option<SessionId> },
    /// From a mount: requests the current round, unless it is `answered`: [`NodeReply::Round`].
    Round { volume: GroupId, answered: u64 },
    /// From a mount: its answer to a round: [`NodeReply::Done`].
    SubmitRoundReply { volume: GroupId, session: SessionId, round: u64, reply: RoundReply },
    /// The paths of inodes, as far as they are found: [`NodeReply::Paths`]. For the volume's leader.
    Paths { volume: GroupId, inodes: Vec<InodeId> },
    /// Events of the node after these: [`NodeReply::Events`].
    Events { seen: Vec<SeenEvent> },
    /// The time of the node: [`NodeReply::Clock`].
    Clock,
    /// From a mount: a session was ended, and what was lost with it: [`NodeReply::Done`].
    Lost { volume: GroupId, text: String },
    /// From a mount: the identity that a brick of this node has in its directory:
    /// [`NodeReply::BrickIdentity`].
    BrickIdentity { brick: BrickId },
    /// The state of a volume's tiers: [`NodeReply::Tiers`]. For its leader.
    Tiers { volume: GroupId },
    /// Blocks that would be moved between the tiers of a volume now: [`NodeReply::TierPlan`]. For its leader.
    TierPlan { volume: GroupId },
    /// How the blocks of a volume are stored: [`NodeReply::Schemes`]. For its leader.
    Schemes { volume: GroupId },
    /// How many further losses the blocks of a volume survive: [`NodeReply::Losses`]. For its leader.
    Losses { volume: GroupId },
    /// The pin that decides for a file or directory: [`NodeReply::Pin`]. For the volume's leader.
    Pin { volume: GroupId, ino: InodeId },
    /// The newest version of operations that the node's program knows: [`NodeReply::OpVersion`]. One that
    /// knows version 1 alone does not know this request either.
    OpVersion,
    /// The scheme of a file or directory: [`NodeReply::SchemeOf`]. For the volume's leader.
    SchemeOf { volume: GroupId, ino: InodeId },
    /// Whether a drained brick of the node has no block, and can get none any more: [`NodeReply::IsCleared`].
    IsCleared { brick: BrickId },
    /// Delete soon what bricks have and the namespace does not know: [`NodeReply::Done`]. For the volume's
    /// leader.
    Sweep { volume: GroupId },
    /// Copy a block, for the volume's leader: [`NodeReply::Copied`].
    Copy { volume: GroupId, request: CopyRequest },
    /// The progress of the last rebalance: [`NodeReply::Rebalance`]. For the volume's leader.
    Rebalance { volume: GroupId },
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// An encoded map; `None`: there is no newer one.
    Map(Option<Vec<u8>>),
    /// The outcome of a command.
    Done(Outcome),
    /// The state of everything that runs on a node.
    Report(Report),
    /// The progress of healing.
    Heal(Heal),
    /// Number of blocks on a brick, by the volume's records.
    Blocks(u64),
    /// NodeRequest this node instead, if the leader is known.
    NotLeader(Option<NodeId>),
    /// The request cannot be answered, and why.
    Failed(String),
    /// Replicas.
    Members(Vec<ReplicaId>),
    /// It was done, with a note for the administrator.
    Noted(String),
    /// Sessions.
    Sessions(Vec<Session>),
    /// Locks that were cleared.
    Cleared(Cleared),
    /// The use of bricks.
    Used(BTreeMap<BrickId, BrickUse>),
    /// Bricks of the answering node.
    Disks(Vec<Disk>),
    /// Counters of bricks, if the round asks for them.
    Profiles(BTreeMap<BrickId, Profiled>),
    /// Answers of mounts, in the order of their sessions, and whether that is all.
    RoundReplies { mounts: Vec<(SessionId, RoundReply)>, complete: bool },
    /// A round of questions.
    Round(Option<Round>),
    /// Paths from the root of the volume, in the order of the request.
    Paths(Vec<Option<String>>),
    /// Events, in their order.
    Events(Vec<Event>),
    /// Milliseconds since 1970.
    Clock { now_ms: u64 },
    /// The identity of a brick.
    BrickIdentity(u128),
    /// The tiers of a volume.
    Tiers(TierState),
    /// Blocks that would be moved.
    TierPlan(Vec<Move>),
    /// How blocks are stored.
    Schemes(Vec<SchemeUse>),
    /// How many further losses blocks survive.
    Losses(Losses),
    /// The pin of an inode.
    Pin(PolicyState<Tier>),
    /// A version of operations.
    OpVersion(u8),
    /// The scheme of an inode.
    SchemeOf(PolicyState<BlockScheme>),
    /// Whether a brick is empty for good.
    IsCleared(bool),
    /// The group of a block that was copied.
    Copied(Result<BlockGroup, BlockError>),
    /// The progress of a rebalance.
    Rebalance(RebalanceStatus),
}

/// A session, as the volume's leader knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The session and what it holds.
    pub info: SessionInfo,
    /// Its last address, and the name on its credentials, if it has spoken to this leader.
    pub from: Option<(IpAddr, String)>,
}

/// The disk under a brick, and the findings of the brick's scrub.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disk {
    /// The brick.
    pub id: BrickId,
    /// The file system it is on, if the mount table says: type and device.
    pub mount: Option<(String, String)>,
    /// Inodes of that file system, and those that are free.
    pub inodes: Option<(u64, u64)>,
    /// The findings; `None`: the brick is not scrubbed, because it is not served.
    pub scrub: Option<ScrubReport>,
}

/// The state of everything that runs on a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Version of its program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Its uptime in seconds.
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
    /// Why deletion does not proceed.
    pub trouble: Option<String>,
}

/// A replica of a metadata group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Its group.
    pub group: GroupId,
    /// Its id.
    pub id: ReplicaId,
    /// Whether it runs.
    pub runs: bool,
    /// `leader`, `follower`, `candidate`, `learner`, or why it does not run.
    pub role: String,
    /// Whether it leads with a valid leader lease, and so may serve.
    pub leads: bool,
    /// Raft's term.
    pub term: u64,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// The members of its group, as this replica knows.
    pub members: Vec<ReplicaId>,
    /// Digest of its whole state with the index of its last log entry, if asked for.
    pub digest: Option<(u64, u128)>,
}

/// A brick on its node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BrickReport {
    /// Its id.
    pub id: BrickId,
    /// Why it is not served; `None`: it is.
    pub offline: Option<String>,
    /// Size of its disk in bytes.
    pub total_bytes: u64,
    /// Free bytes on its disk.
    pub free_bytes: u64,
}

/// The progress of healing a volume, as its leader knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heal {
    /// Blocks that lack copies or shards, as far as known.
    pub degraded: u64,
    /// Whether a block can be healed or examined now.
    pub busy: bool,
    /// Whether a rebalance runs, or is about to.
    pub rebalancing: bool,
    /// Current, or last, activity of the healer.
    pub status: HealStatus,
}

/// A request to join.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The secret of the token.
    pub secret: u128,
    /// The node's name.
    pub name: String,
    /// The address at which it will be reached.
    pub address: String,
}

/// The answer to a node that joins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinReply {
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

/// Sends a request over a connection.
pub fn request_over(link: &Link, ask: &NodeRequest, patience: Duration) -> Result<NodeReply, NetError> {
    let body = link.call(Service::Cluster, false, vec![pack(ask)], patience)?;
    let refused = |why: String| NetError::Refused { address: link.address().to_owned(), why };
    unpack(&body).map_err(|error| refused(format!("its answer could not be decoded: {error}")))
}
