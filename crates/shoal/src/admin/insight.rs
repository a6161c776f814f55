//! What administrators are told of what goes on in volumes: mounts, work on blocks, scrubbing, locks. As in
//! [`reports`](super::reports), `--json` prints them as they are.

use super::{BrickName, BrickStatus, VolumeState};
use serde::{Deserialize, Serialize};

/// `volume status NAME detail`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeDetail {
    /// The volume's name.
    pub name: String,
    /// Whether it can be mounted.
    pub state: VolumeState,
    /// Its bricks.
    pub bricks: Vec<BrickDetail>,
}

/// A brick, its disk, and what is on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickDetail {
    /// How it runs.
    #[serde(flatten)]
    pub status: BrickStatus,
    /// Type of the file system it is on.
    pub file_system: Option<String>,
    /// The device of that.
    pub device: Option<String>,
    /// Inodes of that.
    pub inodes: Option<u64>,
    /// Inodes that are free.
    pub free_inodes: Option<u64>,
    /// Blocks of the volume that are said to be on it, if a leader was reached.
    pub blocks: Option<u64>,
    /// Their bytes.
    pub block_bytes: Option<u64>,
}

/// `volume status NAME clients`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionsReport {
    /// The volume's name.
    pub name: String,
    /// Its mounts, in the order in which they began.
    pub sessions: Vec<SessionReport>,
    /// Why they are not known.
    pub trouble: Option<String>,
}

/// A mount, as the volume's servers know it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionReport {
    /// Number of its session.
    pub session: String,
    /// The machine, as it calls itself.
    pub host: String,
    /// Where it is mounted there, if it says so.
    pub mountpoint: Option<String>,
    /// Its process there, if it says so.
    pub pid: Option<u32>,
    /// The address that it was last heard of from; `None`: not by the present leader yet.
    pub address: Option<String>,
    /// Whose credentials it shows: `node N` or `client NAME`.
    pub credentials: Option<String>,
    /// When it began.
    pub since: u64,
    /// For how long it has not been heard of, in seconds.
    pub silent_s: u64,
    /// Directories, and files with several links, that it may cache.
    pub watched: u64,
    /// Directories and files that it alone may change.
    pub exclusive: u64,
    /// Locks that its programs hold.
    pub locks: u64,
    /// Requests for locks that wait.
    pub locks_waiting: u64,
    /// Bytes that it was granted room for and has not committed.
    pub granted_bytes: u64,
}

/// `volume status NAME tasks`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TasksReport {
    /// The volume's name.
    pub name: String,
    /// What is under way, or was asked for last.
    pub tasks: Vec<TaskReport>,
    /// Why that is not known.
    pub trouble: Option<String>,
}

/// Work on a volume's blocks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskReport {
    /// What is done.
    pub task: TaskKind,
    /// Of which brick.
    pub brick: Option<BrickName>,
    /// How far.
    pub state: TaskState,
    /// Blocks that were seen to.
    pub done: Option<u64>,
    /// Blocks that are left, as far as known.
    pub left: Option<u64>,
    /// Bytes that were copied.
    pub copied_bytes: Option<u64>,
}

/// See [`TaskReport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Copies that are missing are made.
    Heal,
    /// Blocks are spread over all bricks.
    Rebalance,
    /// A brick is emptied, to be removed.
    RemoveBrick,
    /// A brick is emptied, because another has taken its place.
    ReplaceBrick,
}

/// See [`TaskReport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// It is under way.
    InProgress,
    /// Nothing is left to do.
    Completed,
    /// An administrator has stopped it.
    Stopped,
}

/// `volume scrub NAME status`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScrubbingReport {
    /// The volume's name.
    pub name: String,
    /// Whether an administrator has paused it.
    pub paused: bool,
    /// Its bricks.
    pub bricks: Vec<BrickScrub>,
}

/// What scrubbing a brick has found since its server began.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickScrub {
    /// The brick.
    pub brick: BrickName,
    /// Why nothing is known of it.
    pub trouble: Option<String>,
    /// Whether it is being read just now.
    pub reading: bool,
    /// How often it was read through.
    pub rounds: u64,
    /// When that last came to its end.
    pub finished: Option<u64>,
    /// Blocks that were read.
    pub blocks: u64,
    /// Those that were damaged.
    pub damaged: u64,
    /// Those that were replaced by a good copy.
    pub repaired: u64,
    /// What was wrong last.
    pub last_error: Option<String>,
}

/// `volume clear-locks`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClearedReport {
    /// The volume's name.
    pub name: String,
    /// The file.
    pub path: String,
    /// How many locks were taken away that were held.
    pub granted_count: u64,
    /// How many requests were refused that waited.
    pub blocked_count: u64,
    /// The first of them.
    pub locks: Vec<ClearedLock>,
}

/// A lock that was taken away.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClearedLock {
    /// Whether it was held; otherwise it was waited for.
    pub granted: bool,
    /// `fcntl` or `flock`.
    pub family: String,
    /// Whether it excluded readers, too.
    pub exclusive: bool,
    /// The first byte.
    pub start: u64,
    /// The last byte; `None`: to the end of the file.
    pub end: Option<u64>,
    /// The process, on its machine.
    pub pid: u32,
    /// The mount.
    pub client: String,
}
