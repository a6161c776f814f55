//! The bounds of this crate, each with its reason.

/// Size of a memtable of RocksDB, in bytes. A flush writes one memtable, so this is also about the size of a
/// blob file: large enough to be written at disk speed.
pub const MEMTABLE_BYTES_DEFAULT: usize = 32 << 20;
/// Most memtables, the active one included. Writers wait when all of them wait for the disk.
pub const MEMTABLES_MAX: i32 = 3;
/// What the memtables of all stores of a process may take together by default, in bytes: those of two busy
/// volumes. Beyond it they are flushed before they are full.
pub const MEMTABLES_BYTES_MAX_DEFAULT: usize = 256 << 20;
/// The block cache of a process takes one part in this many of the machine's memory, unless a size is given.
/// Small values, indexes and filters only: large values are in blob files, which the kernel's page cache
/// serves.
pub const BLOCK_CACHE_MEMORY_PART: usize = 32;
/// Smallest block cache, in bytes: the filters of a few million keys, and the blocks in use by compactions.
pub const BLOCK_CACHE_BYTES_MIN: usize = 16 << 20;
/// Largest block cache by default, in bytes.
pub const BLOCK_CACHE_BYTES_MAX_DEFAULT: usize = 1 << 30;
/// The block cache has two to this power shards, each with a lock and an equal part of the capacity. A block
/// that is larger than a shard is never kept, so shards must be much larger than [`TABLE_BLOCK_BYTES`] and
/// [`METADATA_BLOCK_BYTES`].
pub const BLOCK_CACHE_SHARD_BITS: i32 = 4;
/// Values from this size on go to blob files, in bytes: below it the 32-odd bytes of a reference and the
/// second read cost more than moving the value in compactions.
pub const BLOB_BYTES_MIN: u64 = 2 << 10;
/// A blob file is closed at this size by default, in bytes: garbage is reclaimed in whole files.
pub const BLOB_FILE_BYTES_DEFAULT: u64 = 32 << 20;
/// Share of garbage in all blob files below which moving the rest is not worth it, even when room is short.
pub const RECLAIM_GARBAGE_MIN: f64 = 0.03;
/// A sorted table in which this share of a window of [`TOMBSTONE_WINDOW_ENTRIES`] entries are deletions is
/// compacted soon. So `rm -rf` frees its space, and scans do not read many tombstones.
pub const TOMBSTONE_RATIO: f64 = 0.3;
/// Entries of the window in which tombstones are counted, see [`TOMBSTONE_RATIO`].
pub const TOMBSTONE_WINDOW_ENTRIES: usize = 4096;
/// Data block of a sorted table, in bytes.
pub const TABLE_BLOCK_BYTES: usize = 16 << 10;
/// Size of a partition of a table's index or filter, in bytes: the unit that is read and cached. Without
/// partitions the filter of a table of 64 MiB is one block of several MiB, which each lookup reads whole if
/// it is not cached.
pub const METADATA_BLOCK_BYTES: usize = 4 << 10;
/// Bloom filter bits per key: 1% false positives.
pub const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// Open files of RocksDB; beyond this it closes and reopens files.
pub const OPEN_FILES_MAX: i32 = 512;
/// Threads for flushes and compactions: the machine also runs clients and applications.
pub const BACKGROUND_JOBS_MAX: i32 = 3;
/// Files of RocksDB's own info log that are kept.
pub const INFO_LOGS_KEPT: usize = 3;
/// Size of one file of RocksDB's info log, in bytes.
pub const INFO_LOG_BYTES_MAX: usize = 1 << 20;

/// Nominal size of a segment of the Raft log, in bytes. The log is truncated in whole segments; each new one
/// costs two more flushes of the disk.
pub const SEGMENT_BYTES_DEFAULT: u64 = 16 << 20;
/// Smallest nominal size of a segment, in bytes: for volumes on very small disks.
pub const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Largest payload of one record of the log, in bytes. Batches are far smaller; a longer length counts as
/// damage.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Old segments that are kept for reuse. A flush into blocks that the file already owns does not wait for the
/// file system's journal (measured: 110 instead of 160 microseconds).
pub const SPARE_SEGMENTS_MAX: usize = 4;
/// Records are gathered up to this size before they are handed to the kernel, in bytes.
pub const GATHER_BYTES: usize = 1 << 20;
