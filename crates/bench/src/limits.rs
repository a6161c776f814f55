//! The sizes of things, as the field's reports chose them, and the goals.

use std::time::Duration;

/// Times that each thing is measured on each side: a median needs three.
pub const RUNS_DEFAULT: usize = 3;
/// The same of several mounts, when nothing else is asked for: one run unpacks 14 trees.
pub const RUNS_SEVERAL_DEFAULT: usize = 1;

/// Files in the kernel tree of the GlusterFS, MooseFS and CephFS reports.
pub const KERNEL_FILES: usize = 17_477;

/// Small files of the reports on concurrent reading.
pub const SMALL_FILES: usize = 10_000;
/// Length of each, in bytes.
pub const SMALL_FILE_BYTES: usize = 20 << 10;
/// How they are spread: this many to a directory.
pub const SMALL_FILES_PER_DIR: usize = 100;
/// `tar cf - . >/dev/null` at the same time. (tar notices and reads no content.)
pub const TARS_CONCURRENT: usize = 100;
/// `tar cf - . | cat >/dev/null` at the same time. (With content.)
pub const PIPED_TARS_CONCURRENT: usize = 20;

/// Length of the large file, in bytes.
pub const STREAM_BYTES: u64 = 2 << 30;
/// Record sizes it is written and read with, in bytes.
pub const STREAM_RECORD_BYTES: &[usize] = &[256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Length of the file that is written at random places, in bytes.
pub const RANDOM_FILE_BYTES: u64 = 256 << 20;
/// Length of each such write, in bytes.
pub const RANDOM_RECORD_BYTES: usize = 4 << 10;
/// Writes per measurement, each with its own fsync.
pub const RANDOM_WRITES: usize = 300;

/// Files for the question of memory in one process.
pub const MEMORY_FILES: usize = 1_000_000;
/// Length of each, in bytes: a line of text.
pub const MEMORY_FILE_BYTES: usize = 80;

/// Files of the benchmark of millions, when nothing else is asked for.
pub const MILLION_FILES: usize = 5_000_000;
/// Rates are taken of so many files; of a quarter of all, if that is fewer.
pub const MILLION_STEP_FILES: usize = 1_000_000;
/// Files per directory.
pub const MILLION_FILES_PER_DIR: usize = 1_000;
/// Length of each, in bytes.
pub const MILLION_FILE_BYTES: usize = 200;
/// Programs that create and remove at the same time.
pub const MILLION_PROGRAMS: usize = 4;
/// Servers, when no other number is asked for.
pub const MILLION_NODES: usize = 3;
/// How the rate of the last step may differ from that of the first.
pub const MILLION_LAST_OF_FIRST_MIN: f64 = 0.8;

/// Files of the store alone, when nothing else is asked for: three keys each, so 10 million keys.
pub const STORE_FILES: usize = 3_333_334;
/// Length of each, in bytes.
pub const STORE_FILE_BYTES: usize = 200;
/// Programs that create them in turns, each in a directory of its own.
pub const STORE_PROGRAMS: usize = 4;
/// Files in one batch of a journal.
pub const STORE_BATCH_FILES: usize = 500;
/// Names looked up at random.
pub const STORE_LOOKUPS: usize = 200_000;
/// Directories listed at random.
pub const STORE_LISTS: usize = 300;
/// Bytes of one such listing: more than a directory has.
pub const STORE_LIST_BYTES: usize = 4 << 20;

/// Mounts of one volume at the same time.
pub const MOUNTS_MAX: usize = 3;
/// Files made in one directory by two mounts in turn.
pub const TURNS: usize = 1_000;
/// One-byte changes made on one mount and read on another.
pub const VISIBLE_CHANGES: usize = 2_000;
/// Time that is left to other mounts to hear what the kernel has forgotten, when its caches are emptied,
/// before anything is measured.
pub const FORGOTTEN_WITHIN: Duration = Duration::from_secs(2);
/// What a second mount that has nothing cached is to read of a tree at least, in files per second.
pub const SECOND_MOUNT_FILES_PER_SECOND_GOAL: f64 = 10_000.0;

/// How long a call may take while several mounts are at work, in seconds: a power of two of nanoseconds.
pub const LONGEST_CALL_SECONDS_GOAL: f64 = 1.08;

/// How many times as long as the local directory Shoal may take.
pub mod goals {
    /// Several mounts at once, each beside one alone: how many times what that comes to in the local
    /// directory.
    pub const SEVERAL: f64 = 1.5;
    /// Unpacking many small files.
    pub const UNPACK: f64 = 1.5;
    /// Reading them with all caches empty.
    pub const TAR_COLD: f64 = 2.0;
    /// Reading them again.
    pub const TAR_WARM: f64 = 1.1;
    /// Removing them.
    pub const REMOVE: f64 = 1.5;
    /// Unpacking them onto a cluster, three copies of each.
    pub const UNPACK_CLUSTER: f64 = 3.0;
    /// Reading them from a cluster with all caches empty.
    pub const TAR_COLD_CLUSTER: f64 = 3.0;
    /// Many readers at once.
    pub const CONCURRENT: f64 = 1.1;
    /// Large files.
    pub const STREAM: f64 = 1.3;
}
