//! Default sizes of the workloads, as in the published reports, and bounds of the options.

use std::time::Duration;

/// Rounds: a median needs three.
pub const ROUNDS_DEFAULT: usize = 3;
/// More rounds tell nothing new.
pub const ROUNDS_MAX: usize = 1_000;
/// Small files of the reports on concurrent reads.
pub const SMALL_FILES: usize = 10_000;
/// Length of each, in bytes.
pub const SMALL_FILE_BYTES: usize = 20 << 10;
/// Small files in each directory.
pub const FILES_PER_DIR: usize = 100;
/// Files in the kernel tree of the GlusterFS, MooseFS and CephFS reports.
pub const UNTAR_FILES: usize = 17_477;
/// Mean length of a file of that tree, in bytes.
pub const UNTAR_FILE_BYTES: usize = 6_400;
/// Parts into which `cluster` divides the tree that all mounts share: one to four mounts get equally many.
pub const TREE_PARTS: usize = 12;
/// Files of the suites `smallfile`, `web`, `maildir` and `git`.
pub const FILES: usize = 4_000;
/// Files of `build`: each is a run of the compiler.
pub const BUILD_FILES: usize = 200;
/// Files at most: more than a suite can do in a day.
pub const FILES_MAX: usize = 10_000_000;
/// Length of a file at most, in bytes: it is kept in memory.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Concurrent `tar cf - . >/dev/null`. (tar notices, and reads no content.)
pub const TARS: usize = 100;
/// One `tar cf - . | cat >/dev/null` for so many of the others: each reads all content.
pub const TARS_PER_PIPED_TAR: usize = 5;
/// Threads, and clients of `stream`.
pub const THREADS: usize = 4;
/// Threads, clients and concurrent tars at most.
pub const THREADS_MAX: usize = 1_024;
/// Bytes that all clients of `stream` write together.
pub const STREAM_BYTES: u64 = 1 << 30;
/// Bytes of one record of `stream`.
pub const RECORD_BYTES: u64 = 1 << 20;
/// Bytes of a record at most.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Strided reads take one record of so many.
pub const STRIDE_RECORDS: u64 = 4;
/// Files that `web` serves for each that it has.
pub const WEB_REQUESTS_PER_FILE: usize = 5;
/// A part of the space that must stay free beside what a suite needs: one in so many.
pub const SPACE_SPARE_PART: u64 = 10;
/// Bytes that a small file takes at least, with its metadata.
pub const FILE_OVERHEAD_BYTES: u64 = 4 << 10;
/// Time after dropping the kernel's caches: mounts handle the FORGET requests for what was dropped.
pub const FORGOTTEN_WITHIN: Duration = Duration::from_secs(1);
/// Directories and files of results at most: columns of a table.
pub const SYSTEMS_MAX: usize = 32;
