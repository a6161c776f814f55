//! Sizes of the workloads, as in the published reports, and the goals.

use crate::throttle::Speed;
use std::time::Duration;

/// Runs of each measurement on each side: a median needs three.
pub const RUNS_DEFAULT: usize = 3;
/// Runs of the benchmark `several` by default: one run unpacks 14 trees.
pub const RUNS_SEVERAL_DEFAULT: usize = 1;

/// Files in the kernel tree of the GlusterFS, MooseFS and CephFS reports.
pub const KERNEL_FILES: usize = shoal_suites::limits::UNTAR_FILES;

/// Length of the large file, in bytes.
pub const STREAM_BYTES: u64 = 1 << 30;
/// Record sizes for writing and reading it, in bytes.
pub const STREAM_RECORD_BYTES: &[u64] = &[4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Random reads of one record size, at most.
pub const STREAM_RANDOM_READS_MAX: u64 = 1024;
/// Bytes read at random in records of one size, at most.
pub const STREAM_RANDOM_BYTES_MAX: u64 = 256 << 20;
/// Record and distance of the strides, in bytes.
pub const STREAM_STRIDES: &[(u64, u64)] = &[(64 << 10, 1 << 20), (256 << 10, 1 << 20), (1 << 20, 4 << 20)];
/// Mounts that write and read at once, each a file of its own.
pub const STREAM_CLIENTS: &[usize] = &[1, 2, 4];
/// Length of their records, in bytes.
pub const STREAM_CLIENT_RECORD_BYTES: u64 = 1 << 20;
/// Length of each such file, in bytes.
pub const STREAM_CLIENT_BYTES: u64 = 512 << 20;

/// Length of the file for random writes, in bytes.
pub const RANDOM_FILE_BYTES: u64 = 256 << 20;
/// Length of each such write, in bytes.
pub const RANDOM_RECORD_BYTES: usize = 4 << 10;
/// Writes per measurement, each with its own fsync.
pub const RANDOM_WRITES: usize = 300;

/// Scale of pgbench's tables: 100,000 accounts each.
pub const DATABASE_SCALE: &str = "10";
/// Clients of the database.
pub const DATABASE_CLIENTS: &str = "4";
/// Seconds that pgbench runs.
pub const DATABASE_SECONDS: &str = "30";

/// Files of the benchmark `memory`.
pub const MEMORY_FILES: usize = 1_000_000;
/// Length of each, in bytes: a line of text.
pub const MEMORY_FILE_BYTES: usize = 80;

/// Files of the benchmark `million` by default.
pub const MILLION_FILES: usize = 5_000_000;
/// A rate is measured over this many files; over a quarter of all, if that is fewer.
pub const MILLION_STEP_FILES: usize = 1_000_000;
/// Files per directory.
pub const MILLION_FILES_PER_DIR: usize = 1_000;
/// Length of each, in bytes.
pub const MILLION_FILE_BYTES: usize = 200;
/// Programs that create and remove in parallel.
pub const MILLION_PROGRAMS: usize = 4;
/// Servers by default.
pub const MILLION_NODES: usize = 3;
/// The least rate of the last step, as a part of the first step's.
pub const MILLION_LAST_OF_FIRST_MIN: f64 = 0.8;

/// Files of the benchmark `store` by default: three keys each, so 10 million keys.
pub const STORE_FILES: usize = 3_333_334;
/// Length of each, in bytes.
pub const STORE_FILE_BYTES: usize = 200;
/// Programs that create them in turn, each in a directory of its own.
pub const STORE_PROGRAMS: usize = 4;
/// Files in one batch of a journal.
pub const STORE_BATCH_FILES: usize = 500;
/// Names looked up at random.
pub const STORE_LOOKUPS: usize = 200_000;
/// Directories listed at random.
pub const STORE_LISTS: usize = 300;
/// Bytes of one such listing: more than a directory has.
pub const STORE_LIST_BYTES: usize = 4 << 20;

/// Mounts of one volume in parallel.
pub const MOUNTS_MAX: usize = 3;
/// Files created in one directory by two mounts in turn.
pub const TURNS: usize = 1_000;
/// One-byte changes made on one mount and read on another.
pub const VISIBLE_CHANGES: usize = 2_000;
/// Time after dropping the kernel's caches before a measurement: the mounts handle the FORGET requests for
/// everything that was dropped.
pub const FORGOTTEN_WITHIN: Duration = Duration::from_secs(2);
/// Goal for a second mount with cold caches that reads a tree, in files per second.
pub const SECOND_MOUNT_FILES_PER_SECOND_GOAL: f64 = 10_000.0;

/// Goal for the longest call while several mounts work, in seconds: a power of two of nanoseconds.
pub const LONGEST_CALL_SECONDS_GOAL: f64 = 1.08;

/// Goals: how many times as long as the local directory Shoal may take.
pub mod goals {
    /// Several mounts in parallel, each compared with one alone: the slowdown, divided by that of the local
    /// directory.
    pub const SEVERAL: f64 = 1.5;
    /// Unpacking many small files.
    pub const UNPACK: f64 = 1.5;
    /// Reading them with cold caches.
    pub const TAR_COLD: f64 = 2.0;
    /// Reading them again.
    pub const TAR_WARM: f64 = 1.1;
    /// Removing them.
    pub const REMOVE: f64 = 1.5;
    /// Unpacking them on a cluster, three copies of each.
    pub const UNPACK_CLUSTER: f64 = 3.0;
    /// Reading them from a cluster with cold caches.
    pub const TAR_COLD_CLUSTER: f64 = 3.0;
    /// Many concurrent readers.
    pub const CONCURRENT: f64 = 1.1;
    /// Writing a large file, one copy: 0.8 of the local rate.
    pub const STREAM_WRITE: f64 = 1.25;
    /// Writing a large file, three copies on the same disk: 0.8 of a third of the local rate.
    pub const STREAM_WRITE_COPIES: f64 = 3.75;
    /// Reading a large file in sequence: 0.6 of the local rate.
    pub const STREAM_READ: f64 = 1.67;
    /// Cold reads at random and in strides: half of the local rate.
    pub const STREAM_RANDOM: f64 = 2.0;
}

/// Schemes of the benchmark `coding`, data and parity shards.
pub const CODING_SCHEMES: &[(usize, usize)] = &[(2, 1), (4, 2), (6, 3), (8, 2), (8, 4), (10, 4)];
/// Length of the blocks that it encodes, in bytes: the largest blocks, of which long files consist.
pub const CODING_BLOCK_BYTES: usize = 4 << 20;
/// Length of the part of a lost shard that it restores, in bytes: a small read.
pub const CODING_PART_BYTES: u32 = 16 << 10;
/// Rounds per figure, of which the median counts.
pub const CODING_ROUNDS: usize = 51;

/// Record sizes of the benchmark `path`, in bytes, ascending.
pub const PATH_RECORD_BYTES: &[usize] = &[4 << 10, 64 << 10, 1 << 20];
/// Reads of each size on each hop.
pub const PATH_READS: u64 = 500;
/// Blocks of 4 MiB that they are spread over.
pub const PATH_BLOCKS: u64 = 64;

/// Size of a small file that is a block of its own, in the benchmarks `tier` and `schemes`, in bytes.
pub const SMALL_BLOCK_BYTES: usize = 64 << 10;
/// Threads that write and read such files.
pub const SMALL_THREADS: usize = 8;

/// Blocks of the benchmark `healing`, by default: 20 TB in blocks of 4 MiB.
pub const HEALING_BLOCKS: usize = 5_000_000;
/// Data and parity shards of each.
pub const HEALING_SCHEME: (u8, u8) = (8, 4);
/// Nodes there: each has a shard of every block ...
pub const HEALING_NODES: u16 = 12;
/// ... on one of its bricks.
pub const HEALING_BRICKS_PER_NODE: u16 = 2;
/// Records that are written to the store at a time.
pub const HEALING_BATCH_BLOCKS: usize = 10_000;

/// Servers of the benchmark `schemes`.
pub const SCHEMES_NODES: usize = 4;
/// Bricks of each volume there: as many as a block of 8 + 4 has shards.
pub const SCHEMES_BRICKS: usize = 12;
/// Length of the large file there, in bytes.
pub const SCHEMES_BYTES: u64 = 1 << 30;
/// Length of the records in which it is written and read, in bytes.
pub const SCHEMES_RECORD_BYTES: u64 = 1 << 20;
/// How often the volume is asked whether a lost disk is healed.
pub const HEAL_POLL: Duration = Duration::from_millis(100);
/// Longest time that healing a lost disk may take there.
pub const HEAL_WAIT_MAX: Duration = Duration::from_secs(600);
/// Small files there, by default.
pub const SCHEMES_FILES: usize = 4_000;

/// Servers of the benchmark `tier`, each with a hot and a cold disk.
pub const TIER_NODES: usize = 4;
/// Files of the benchmark `tier`, by default.
pub const TIER_FILES: usize = 4_000;
/// Size of each disk in memory, in bytes.
pub const TIER_HOT_BYTES: u64 = 2 << 30;
/// Size of each slow disk, in bytes: a sparse file.
pub const TIER_COLD_BYTES: u64 = 8 << 30;
/// What each slow disk does: about what one spinning disk does.
pub const TIER_COLD_SPEED: Speed = Speed { requests: 200, bytes: 100 << 20 };
/// Longest time in which all files move to the cold tier.
pub const TIER_MOVE_WAIT_MAX: Duration = Duration::from_secs(1800);

/// Servers of the benchmark `space`.
pub const SPACE_NODES: usize = 4;
/// Its bricks: as many as a block of 8 + 4 has shards.
pub const SPACE_BRICKS: usize = 12;
/// The tree that it copies.
pub const SPACE_TREE: &str = "/usr/include";
