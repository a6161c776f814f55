//! What administrators are told, as values. `--json` prints them as they are; `render` turns them into tables.
//!
//! Identities are 32 hexadecimal digits, times are seconds since 1970, sizes are bytes.

use super::BrickName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cluster in a few words.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Its identity.
    pub cluster: String,
    /// Changes of the cluster map so far, as the answering node knows.
    pub epoch: u64,
    /// The node that answers.
    pub node: String,
    /// All nodes.
    pub nodes: Vec<PeerReport>,
    /// The replicas of the cluster map.
    pub map: Vec<ReplicaStatus>,
    /// Volumes and how they do.
    pub volumes: Vec<VolumeHealth>,
    /// What needs attention, or some seconds, for people. Nothing: all is well.
    #[serde(default)]
    pub attention: Vec<String>,
    /// Bricks that nothing refers to any more and whose files are being deleted.
    pub deleting: Vec<DeletingReport>,
}

/// A brick that is being deleted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeletingReport {
    /// Where it is.
    pub brick: BrickName,
    /// Blocks deleted so far, since the start of its server.
    pub deleted_blocks: u64,
    /// Why it does not go on.
    pub trouble: Option<String>,
}

/// How a volume does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeHealth {
    /// Its name.
    pub name: String,
    /// Created, started or stopped.
    pub state: VolumeState,
    /// Bricks that are served.
    pub bricks_online: u32,
    /// Bricks that there are.
    pub bricks: u32,
    /// Metadata replicas that run.
    pub replicas_online: u32,
    /// Metadata replicas that there are.
    pub replicas: u32,
    /// Whether a leader serves metadata.
    pub has_leader: bool,
    /// Blocks that lack copies; `None`: the leader was not reached, or has not looked at all of them yet.
    pub degraded: Option<u64>,
}

/// A right to join.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TokenReport {
    /// The word to give to `shoal peer join`.
    pub token: String,
    /// Until when it is valid.
    pub expires: u64,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerReport {
    /// Its number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Where it is reached, `HOST:PORT`.
    pub address: String,
    /// Whether it answers.
    pub connected: bool,
    /// Whether it is the node that was asked.
    pub local: bool,
    /// Version of its program, if it answers.
    pub version: Option<String>,
    /// Its process, if it answers.
    pub pid: Option<u32>,
    /// For how long that has been running, in seconds.
    pub uptime_s: Option<u64>,
    /// The epoch of the cluster map that it knows.
    pub epoch: Option<u64>,
}

/// Whether a volume can be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Made, and not started yet.
    Created,
    /// It can.
    Started,
    /// It cannot.
    Stopped,
}

/// A volume as it was configured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Whether it can be mounted.
    pub state: VolumeState,
    /// Copies of every block.
    pub replica: u8,
    /// When it was made.
    pub created: u64,
    /// Its bricks, in the order in which they were added.
    pub bricks: Vec<BrickPlace>,
    /// Nodes that keep its metadata.
    pub metadata: Vec<String>,
    /// Those of them that were named as arbiters: they keep metadata and no blocks.
    pub arbiters: Vec<String>,
    /// Nodes with bricks that may be down at a time without a standstill.
    pub data_nodes_may_be_down: u32,
    /// The same of nodes that keep metadata.
    pub metadata_nodes_may_be_down: u32,
    /// Settings that were made.
    pub options: BTreeMap<String, String>,
}

/// A brick as it was configured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickPlace {
    /// Its number.
    pub id: u16,
    /// Where it is.
    pub brick: BrickName,
    /// Whether it is being drained.
    pub draining: bool,
}

/// What runs for a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Whether it can be mounted.
    pub state: VolumeState,
    /// Its bricks.
    pub bricks: Vec<BrickStatus>,
    /// Its metadata replicas.
    pub replicas: Vec<ReplicaStatus>,
}

/// A brick as it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickStatus {
    /// Its number.
    pub id: u16,
    /// Where it is.
    pub brick: BrickName,
    /// Whether it is served.
    pub online: bool,
    /// Why it is not.
    pub trouble: Option<String>,
    /// Whether it is being drained.
    pub draining: bool,
    /// The node's port.
    pub port: u16,
    /// The process that serves it, if it is reached.
    pub pid: Option<u32>,
    /// Size of its disk, if it is reached.
    pub total_bytes: Option<u64>,
    /// Room left on it, if it is reached.
    pub free_bytes: Option<u64>,
}

/// A replica of a metadata group as it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its number.
    pub replica: u64,
    /// The node that keeps it.
    pub node: String,
    /// Whether it runs.
    pub online: bool,
    /// `leader`, `follower`, `candidate`, `learner`, or why it does not run.
    pub role: String,
    /// Raft's term, if it runs.
    pub term: Option<u64>,
    /// Changes that it has applied, if it runs.
    pub applied: Option<u64>,
    /// Changes that the foremost replica has applied and this one has not yet.
    pub lag: Option<u64>,
    /// Digest of its whole state, if that was asked for.
    pub digest: Option<DigestReport>,
}

/// A digest of a replica's whole state. Two with the same index must be equal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DigestReport {
    /// Changes that are in it.
    pub index: u64,
    /// 32 hexadecimal digits.
    pub digest: String,
}

/// How the removal of a brick goes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RemovalReport {
    /// Which.
    pub brick: BrickName,
    /// How far.
    pub state: RemovalState,
    /// Blocks that are still said to be on it, if that is known.
    pub blocks_left: Option<u64>,
}

/// See [`RemovalReport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalState {
    /// It is in use.
    NotStarted,
    /// What is on it is being moved.
    InProgress,
    /// Nothing is on it any more: commit.
    Completed,
}

/// How healing stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HealReport {
    /// Of which volume.
    pub name: String,
    /// The node that leads it, and heals.
    pub leader: String,
    /// Blocks that lack copies or lie where they should not.
    pub degraded: u64,
    /// Whether blocks are being looked at or copied just now: `degraded` may grow.
    pub scanning: bool,
    /// Blocks looked at in this pass.
    pub examined: u64,
    /// Blocks copied by the leader's server since it began: healing, moving and spreading.
    pub mended: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Blocks that wait because the bricks they need do not answer or have no room.
    pub waiting: u64,
    /// Blocks of which no good copy could be read; that is tried again.
    pub failures: u64,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
    /// Bricks and whether they are served.
    pub bricks: Vec<BrickStatus>,
}

/// How spreading blocks stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RebalanceReport {
    /// Of which volume.
    pub name: String,
    /// How far.
    pub state: RebalanceState,
    /// Blocks looked at.
    pub examined: u64,
    /// Blocks moved.
    pub moved: u64,
    /// Bytes copied for that.
    pub copied_bytes: u64,
    /// Attempts that failed; they are repeated.
    pub failures: u64,
}

/// See [`RebalanceReport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceState {
    /// It was never asked for.
    NotStarted,
    /// Blocks are being moved.
    InProgress,
    /// All blocks are where they should be.
    Completed,
    /// It was stopped.
    Stopped,
}

/// Credentials of a client, in PEM.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CredentialsReport {
    /// Whose.
    pub name: String,
    /// The cluster's authority.
    pub authority: String,
    /// The client's certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for CredentialsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "credentials of {}", self.name)
    }
}

/// A client that was issued credentials.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    /// Its name.
    pub name: String,
    /// When; `None` if they are revoked.
    pub issued: Option<u64>,
    /// Whether they are refused.
    pub revoked: bool,
}
