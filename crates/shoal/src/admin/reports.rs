//! Answers to administrators, as values. `--json` prints them as they are; `render` turns them into tables.
//!
//! Identities are 32 hexadecimal digits, times are seconds since 1970, sizes are bytes.

use super::BrickName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The health of the cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Its identity.
    pub cluster: String,
    /// Epoch of the cluster map that the answering node has.
    pub epoch: u64,
    /// The answering node.
    pub node: String,
    /// All nodes.
    pub nodes: Vec<PeerReport>,
    /// The replicas of the cluster map.
    pub map: Vec<ReplicaStatus>,
    /// The health of each volume.
    pub volumes: Vec<VolumeHealth>,
    /// Sentences for the administrator: problems and what to do. Empty if all is well.
    #[serde(default)]
    pub attention: Vec<String>,
    /// Retired bricks whose files are being deleted.
    pub deleting: Vec<DeletingReport>,
}

/// A brick that is being deleted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeletingReport {
    /// Where it is.
    pub brick: BrickName,
    /// Blocks deleted so far, since the start of its server.
    pub deleted_blocks: u64,
    /// Why deletion does not proceed.
    pub trouble: Option<String>,
}

/// The health of a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeHealth {
    /// Its name.
    pub name: String,
    /// Created, started or stopped.
    pub state: VolumeState,
    /// Bricks that are served.
    pub bricks_online: u32,
    /// All its bricks.
    pub bricks: u32,
    /// Metadata replicas that run.
    pub replicas_online: u32,
    /// All its metadata replicas.
    pub replicas: u32,
    /// Whether a leader serves metadata.
    pub has_leader: bool,
    /// Degraded blocks; `None` if the leader was not reached, or has not examined all blocks yet.
    pub degraded: Option<u64>,
    /// Bricks that take no more blocks because their disks are full, those of the hot tier left out: what it
    /// cannot take is stored on the cold one.
    #[serde(default)]
    pub full_bricks: Vec<BrickName>,
}

/// A join token.
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
    /// Its uptime in seconds.
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
    /// It can be mounted.
    Started,
    /// It cannot be mounted.
    Stopped,
}

/// The configuration of a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Whether it can be mounted.
    pub state: VolumeState,
    /// Copies of every block; of a block that is too short for shards, if there are shards.
    pub replica: u8,
    /// Data shards and parity shards of a block, if the volume is dispersed.
    #[serde(default)]
    pub shards: Option<(u8, u8)>,
    /// When it was made.
    pub created: u64,
    /// Its bricks, in the order in which they were added.
    pub bricks: Vec<BrickPlace>,
    /// Nodes that keep its metadata.
    pub metadata: Vec<String>,
    /// Those of them that were named as arbiters: they keep metadata and no blocks.
    pub arbiters: Vec<String>,
    /// Nodes with bricks that may be down at a time while the volume goes on.
    pub data_nodes_may_be_down: u32,
    /// Nodes with metadata that may be down at a time while the volume goes on.
    pub metadata_nodes_may_be_down: u32,
    /// Settings that differ from the default.
    pub options: BTreeMap<String, String>,
}

/// The configuration of a brick.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickPlace {
    /// Its number.
    pub id: u16,
    /// Where it is.
    pub brick: BrickName,
    /// Whether it is being drained.
    pub draining: bool,
    /// Whether it is of the hot tier.
    #[serde(default)]
    pub hot: bool,
}

/// The running parts of a volume.
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

/// The state of a brick.
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
    /// Free bytes on its disk, if it is reached.
    pub free_bytes: Option<u64>,
}

/// The state of a metadata group's replica.
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
    /// Index of the last log entry that it has applied, if it runs.
    pub applied: Option<u64>,
    /// Log entries that the most advanced replica has applied and this one has not.
    pub lag: Option<u64>,
    /// Digest of its whole state, if it was asked for.
    pub digest: Option<DigestReport>,
}

/// A digest of a replica's whole state. Two with the same index must be equal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DigestReport {
    /// Index of the last log entry in that state.
    pub index: u64,
    /// 32 hexadecimal digits.
    pub digest: String,
}

/// The progress of removing a brick.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RemovalReport {
    /// The brick.
    pub brick: BrickName,
    /// The step it has reached.
    pub state: RemovalState,
    /// Blocks that still have a copy on it, if that is known.
    pub blocks_left: Option<u64>,
}

/// The steps of removing a brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalState {
    /// It is in use; nothing was started.
    NotStarted,
    /// It is being drained.
    InProgress,
    /// It is empty and can be removed with `commit`.
    Completed,
}

/// The progress of healing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HealReport {
    /// The volume.
    pub name: String,
    /// The node that leads the volume's metadata group, and heals.
    pub leader: String,
    /// Blocks that lack copies or shards.
    pub degraded: u64,
    /// Whether blocks are being examined or copied now: `degraded` may grow.
    pub scanning: bool,
    /// Blocks examined in this pass.
    pub examined: u64,
    /// Blocks that were found in this pass and are not examined yet: to be healed, moved, or checked.
    #[serde(default)]
    pub left: u64,
    /// Blocks copied by the leader's server since it started: healed, drained or rebalanced.
    #[serde(alias = "mended")]
    pub copied_blocks: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Blocks that cannot be copied now, because the bricks needed do not answer or are full.
    pub waiting: u64,
    /// Blocks of which no good copy could be read; they are retried.
    pub failures: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// Bricks and whether they are served.
    pub bricks: Vec<BrickStatus>,
    /// How many further losses the blocks survive, if that was asked for and is known.
    #[serde(default)]
    pub losses: Option<LossesReport>,
}

/// How many further losses of bricks the blocks of a volume survive. A brick that does not answer counts as
/// lost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossesReport {
    /// The classes of blocks, those that survive the least first within each scheme.
    pub classes: Vec<LossClassReport>,
    /// Some of the blocks that cannot be read now.
    pub unreadable: Vec<String>,
}

/// Blocks that are stored in one way and survive the same number of further losses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossClassReport {
    /// Whether they are on the hot tier.
    pub hot: bool,
    /// Data shards and parity shards of each block; none if they are in copies.
    pub shards: Option<(u8, u8)>,
    /// Copies of each block; 0 if they are in shards.
    #[serde(default)]
    pub copies: u8,
    /// How many further losses they survive; none: they cannot be read now.
    pub survives: Option<u8>,
    /// Whether they lack nothing.
    pub whole: bool,
    /// Their number.
    pub blocks: u64,
    /// Their length, each byte counted once.
    pub bytes: u64,
}

/// The progress of rebalancing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RebalanceReport {
    /// The volume.
    pub name: String,
    /// The state it has reached.
    pub state: RebalanceState,
    /// Blocks examined.
    pub examined: u64,
    /// Blocks moved.
    pub moved: u64,
    /// Bytes copied by that.
    pub copied_bytes: u64,
    /// Failed attempts; they are retried.
    pub failures: u64,
}

/// The states of a rebalance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceState {
    /// None was ever started.
    NotStarted,
    /// Blocks are being moved.
    InProgress,
    /// All blocks are where they should be.
    Completed,
    /// It was stopped.
    Stopped,
}

/// How the blocks of a volume are stored, those on its hot tier left out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConversionReport {
    /// The volume.
    pub name: String,
    /// One for each number of copies or shards that there are blocks in.
    pub schemes: Vec<SchemeReport>,
    /// Directories and files with a scheme of their own.
    #[serde(default)]
    pub directories: Vec<DirectoryScheme>,
}

/// A directory or file with a scheme of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectoryScheme {
    /// Its path from the root of the volume; none if it was not found, or no longer exists.
    pub path: Option<String>,
    /// Its inode number.
    pub inode: u64,
    /// `replica N`, or `disperse N redundancy M`.
    pub scheme: String,
}

/// What to do with the scheme of a directory or file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeStep {
    /// Report it.
    Show,
    /// It has this one.
    Set {
        /// Copies of every block.
        replica: u8,
        /// Data shards and parity shards. `replica` counts for nothing then.
        shards: Option<(u8, u8)>,
        /// Even if two shards of a block may lie on one node.
        force: bool,
    },
    /// It has none of its own.
    Auto,
}

/// The scheme of a directory or file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SchemeOfReport {
    /// The volume.
    pub volume: String,
    /// The scheme; none: it is the volume's.
    pub scheme: Option<String>,
    /// The directory whose scheme it is, if it is not its own.
    pub inherited_from: Option<String>,
    /// The volume's scheme.
    pub of_volume: String,
}

/// Blocks that are stored in one way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SchemeReport {
    /// Data shards and parity shards of each block; none if they are in copies.
    pub shards: Option<(u8, u8)>,
    /// Copies of each block; 0 if they are in shards.
    #[serde(default)]
    pub copies: u8,
    /// Their number.
    pub blocks: u64,
    /// Their length, each byte counted once.
    pub bytes: u64,
    /// How many of them have to be converted.
    pub left: u64,
}

/// Credentials of a client, in PEM.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CredentialsReport {
    /// The client.
    pub name: String,
    /// The certificate of the cluster's authority.
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
    /// When they were issued; `None` if they are revoked.
    pub issued: Option<u64>,
    /// Whether they are refused.
    pub revoked: bool,
}
