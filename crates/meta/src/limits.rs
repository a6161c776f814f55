//! Limits of a metadata server, each with its reason.

use std::time::Duration;

/// Bytes of proposals that wait for the log; beyond it, whoever submits waits. A few disk flushes' worth.
pub const PROPOSED_BYTES_MAX: usize = 32 << 20;
/// Bytes of proposals that share one flush of the log: enough to keep a disk busy, little enough that the first of them does
/// not wait for long.
pub const GROUP_BYTES_MAX: usize = 8 << 20;
/// Committed entries that wait to be applied, in groups; beyond it the log waits for the store.
pub const APPLY_GROUPS_MAX: usize = 16;
/// Log entries kept in memory for the moment between being written and being applied, in bytes.
pub const LOG_CACHE_BYTES: usize = 32 << 20;
/// The log is shortened when it has grown by this much since the store was last flushed, in bytes. Bounds what a restart has to
/// replay. On a small disk it is a part of that instead, see [`LOG_DISK_PART`].
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// The log takes at most one part in this many of its disk.
pub const LOG_DISK_PART: u64 = 16;
/// A segment of the log is one part in this many of the log.
pub const LOG_SEGMENTS: u64 = 4;
/// The pace of Raft's clock. A single replica needs it for nothing but its first election.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks without a leader after which a replica asks for votes.
pub const ELECTION_TICKS: usize = 10;
/// Ticks between heartbeats of a leader.
pub const HEARTBEAT_TICKS: usize = 2;
/// Bytes of entries in one message to another replica.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Messages under way to one replica.
pub const MESSAGES_IN_FLIGHT_MAX: usize = 64;
/// Longest time that an opening server takes to replay its log before it reports that something is wrong.
pub const REPLAY_MAX: Duration = Duration::from_secs(600);

/// A session renews at least this often; one that does not may be ended when another wants to mount.
pub const RENEW: Duration = Duration::from_secs(15);
/// Inode numbers that a session begins with.
pub const INODES_AT_START: u64 = 1 << 16;

/// Room that is kept free on a disk, one part in this many: the log, the store's compactions and removals need it
/// when everything else is full.
pub const RESERVE_PART: u64 = 20;
/// The least room kept free, in bytes.
pub const RESERVE_BYTES_MIN: u64 = 48 << 20;
/// The most room kept free, in bytes.
pub const RESERVE_BYTES_MAX: u64 = 2 << 30;
/// Granted bytes may take this many times their number for a while: in the log, in the store, in a compaction.
pub const ROOM_AMPLIFICATION: u64 = 3;
/// Bytes of room that a created inode is assumed to take, for statfs(2).
pub const INODE_ROOM_BYTES: u64 = 1024;

/// Pause between rounds of background work, so that it comes in batches and leaves room for others.
pub const BACKGROUND_PAUSE: Duration = Duration::from_millis(200);
/// Things that one round of background work takes from a list.
pub const BACKGROUND_PAGE: usize = 256;
/// Extents that one command takes off a dead inode.
pub const REAP_EXTENTS: u32 = 1024;
/// Extents looked at at once in a file that is compacted.
pub const COMPACT_EXTENTS_PAGE: usize = 4096;
/// Block numbers that the server reserves for compaction at once.
pub const COMPACT_BLOCKS_GRANT: u64 = 64;
