//! What is asked and answered on the control socket. `shoal stats --json` shows these as they are.

use crate::admin::AdminRequest;
use crate::profile::OpReport;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Request {
    /// Who the node is and how it does: one [`Status`].
    Status,
    /// What it has counted: one [`Statistics`].
    Stats,
    /// Its state, for people: one [`Dumped`].
    Dump,
    /// Make everything done on its mount so far durable: one [`Synced`] when it is.
    Sync,
    /// Where the content of a file of the mount is, as far as it is committed: [`Pieces`] until all of them
    /// are told.
    Content {
        /// The file's number.
        inode: u64,
    },
    /// The mount is about to be taken away by force: end every wait, and try only for a moment to save what
    /// was not written back. One [`Synced`].
    Abandon,
    /// Verify all blocks: [`ScrubReport`]s until it is done. Ends early when the asker hangs up.
    Scrub {
        /// Read no faster than this.
        bytes_per_second: Option<u64>,
    },
    /// Administration of the cluster: [`AdminAnswer`](crate::admin::AdminAnswer)s.
    Admin {
        /// What is asked for.
        request: AdminRequest,
    },
}

/// What a process holds, caches and waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dumped {
    /// As text.
    pub text: String,
}

/// Everything is durable that can be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Synced {
    /// There is nothing to write back any more, because the servers do not serve this mount: why, and what
    /// was lost by it.
    #[serde(default)]
    pub refused: Option<String>,
}

/// Where consecutive parts of a file's content are. What none covers is a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// In the order of their offsets.
    pub pieces: Vec<Piece>,
}

/// A part of a file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
}

/// Where a part of a file's content is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "lowercase")]
pub enum Place {
    /// In the metadata, with every replica of them.
    Metadata,
    /// Nowhere: it was reserved by fallocate(2), and reads as zeros.
    Reserved,
    /// In a block.
    Block {
        /// The session that wrote the block.
        session: u64,
        /// The block's number in that session.
        sequence: u64,
        /// Offset in the block, in bytes.
        within: u32,
        /// Shards that give the block back; 0 if each brick has a whole copy.
        data_shards: usize,
        /// The bricks that have it, `HOST:/PATH`.
        bricks: Vec<String>,
    },
}

/// A running node, in a few words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// For how long it has been running, in seconds.
    pub uptime_s: u64,
    /// Name of the volume.
    pub volume: String,
    /// Identity of the volume.
    pub id: String,
    /// The data directory; of a cluster's mount, where its log is.
    pub data: PathBuf,
    /// `HOST:/VOLUME`, if it is a cluster's mount.
    #[serde(default)]
    pub source: Option<String>,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// The options with which it was mounted, separated by commas.
    #[serde(default)]
    pub options: String,
    /// The volume itself is read-only (`volume set NAME read-only on`): no mount of it may be written to.
    #[serde(default)]
    pub read_only_volume: bool,
    /// The mounted client's session.
    pub session: u64,
    /// Size of the volume in bytes.
    pub total_bytes: u64,
    /// Room left in it.
    pub free_bytes: u64,
    /// Files of any kind in it.
    pub inodes: u64,
    /// Why the servers do not serve this mount at present.
    #[serde(default)]
    pub refused: Option<String>,
    /// The servers do not answer at present: calls wait for them, and the room is not known.
    #[serde(default)]
    pub is_waiting: bool,
}

/// A named number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Number {
    /// What is counted.
    pub name: String,
    /// How much.
    pub value: u64,
}

/// What a process has counted since it started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// Name of the mounted volume.
    #[serde(default)]
    pub volume: String,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Whether the servers do not serve the mount at present.
    #[serde(default)]
    pub refused: bool,
    /// For how long it has been running, in seconds.
    pub uptime_s: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Requests of the kernel, all together.
    pub kernel_requests: u64,
    /// Requests of the kernel that wait for a disk at this moment.
    pub kernel_waiting: u64,
    /// Bytes that READ requests returned.
    #[serde(default)]
    pub kernel_read_bytes: u64,
    /// Bytes that WRITE requests carried.
    #[serde(default)]
    pub kernel_written_bytes: u64,
    /// Requests of the kernel by kind.
    pub kernel: Vec<OpReport>,
    /// The client's counters: cache hits, journal depth, ...
    pub client: Vec<Number>,
    /// Calls of the metadata service by kind.
    pub meta: Vec<OpReport>,
    /// The metadata server's counters.
    pub server: Vec<Number>,
    /// Calls of the brick by kind.
    pub brick: Vec<OpReport>,
    /// What runs on a node of a cluster.
    #[serde(default)]
    pub node: Option<NodeStatistics>,
}

/// What a node of a cluster has counted since its server started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatistics {
    /// Its name.
    pub name: String,
    /// The cluster's identity.
    pub cluster: String,
    /// Epoch of the cluster map that it knows.
    pub epoch: u64,
    /// Whether it has stopped serving, because it was detached or another process has its identity.
    #[serde(default)]
    pub fenced: bool,
    /// What it sent to other nodes.
    #[serde(default)]
    pub figures: Vec<Number>,
    /// Its replicas of metadata.
    pub replicas: Vec<ReplicaStatistics>,
    /// Its bricks.
    pub bricks: Vec<BrickStatistics>,
}

/// A replica of a volume's metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaStatistics {
    /// Its volume; empty for the group of the cluster map.
    pub volume: String,
    /// Its number in its group.
    pub id: u64,
    /// Whether it runs.
    pub runs: bool,
    /// Whether it leads, and so serves.
    pub leads: bool,
    /// Its counters, and those of the metadata server around it.
    pub figures: Vec<Number>,
    /// The steps of its proposals.
    #[serde(default)]
    pub steps: Vec<OpReport>,
    /// Requests that clients made of it.
    #[serde(default)]
    pub requests: Vec<OpReport>,
    /// What the volume lacks, if it leads.
    pub heal: Option<HealStatistics>,
}

/// What a volume lacks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HealStatistics {
    /// Blocks that lack copies or shards, as far as known.
    pub degraded_blocks: u64,
    /// Blocks of which no good copy could be read.
    pub failed_blocks: u64,
    /// Blocks copied since the server began.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
}

/// A brick of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BrickStatistics {
    /// Its volume.
    pub volume: String,
    /// Its directory.
    pub path: PathBuf,
    /// Whether it is served.
    pub serves: bool,
    /// Size of its disk in bytes.
    pub total_bytes: u64,
    /// Free bytes on its disk.
    pub free_bytes: u64,
    /// Calls by kind.
    pub calls: Vec<OpReport>,
    /// Bytes of blocks written.
    #[serde(default)]
    pub written_bytes: u64,
    /// Bytes of blocks read.
    #[serde(default)]
    pub read_bytes: u64,
    /// Blocks that were read to check them.
    pub scrubbed_blocks: u64,
    /// Blocks that were damaged or could not be read.
    pub damaged_blocks: u64,
    /// Damaged blocks that were replaced.
    pub repaired_blocks: u64,
}

/// How a scrub proceeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scrub", rename_all = "lowercase")]
pub enum ScrubReport {
    /// So far.
    Progress {
        /// Blocks read.
        blocks: u64,
        /// Bytes read.
        bytes: u64,
    },
    /// A block that cannot be read as it was put.
    Damaged {
        /// Which one, and what is wrong with it.
        what: String,
    },
    /// All blocks were read.
    Done {
        /// Blocks read.
        blocks: u64,
        /// Bytes read.
        bytes: u64,
        /// Blocks that are damaged.
        damaged: u64,
    },
}
