//! Limits and defaults of the kernel front end, each with its reason.

use std::time::Duration;

/// Threads that read requests from the kernel, unless the machine has fewer cores. Requests are answered on these threads
/// from memory in microseconds: more of them than cores would only take turns.
pub const READER_THREADS_MAX: usize = 8;
/// Threads for requests that must wait for a disk or a server. Waiting costs no core; as many fsyncs as there are threads
/// share one group commit.
pub const SLOW_THREADS: usize = 32;
/// Requests that may wait for one of these threads; beyond it the reading threads wait too. A waiting write owns its
/// data, so this is also at most 128 MiB of memory.
pub const SLOW_QUEUE_LEN_MAX: usize = 128;
/// Largest read or write request, in bytes: what the kernel allows without raising `fs.fuse.max_pages_limit`.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Read-ahead and write-back requests that the kernel may have under way at once (its own default is 12): enough to keep
/// several streams of [`REQUEST_BYTES_MAX`] each busy.
pub const BACKGROUND_REQUESTS_MAX: u16 = 64;
/// How far the kernel reads ahead in a file, in KiB (its own default is 128): two full requests under way, so that one is
/// fetched while the other is consumed. Measured with 1 GiB in the client's memory and 4 threads: 128 KiB 2.1 GB/s, 512 KiB
/// 3.4, 1 MiB 3.5, 2 MiB 4.1, and no more beyond.
pub const READ_AHEAD_KIB: u32 = 2048;
/// For how long the kernel may use names and attributes without asking. A session is told before anyone else changes what
/// it caches, so they do not age; the kernel just wants a number.
pub const KERNEL_CACHE: Duration = Duration::from_secs(365 * 24 * 3600);
/// `st_blksize` and the unit of statfs(2), in bytes. Copying tools read and write 128 KiB and more whatever stands here;
/// language runtimes allocate a buffer of this size for every file they open, so larger would cost more than it gains.
pub const STAT_BLOCK_BYTES: u32 = 4096;
/// Buckets of a latency histogram. Bucket `n` counts durations from 2^n nanoseconds up to twice that, so the last one
/// begins at about 34 seconds.
pub const LATENCY_BUCKETS: usize = 36;
/// Copies of the counters, so that threads do not fight over one cache line.
pub const COUNTER_SHARDS: usize = 16;
/// Listings remembered as broken off between two names with the same hash; see `listing`. It takes 2^32 names in one
/// directory to expect one such pair.
pub const SPLIT_LISTINGS_MAX: usize = 1024;
/// A thread that waits for a place among the requests that wait looks this often whether the mount was ended meanwhile.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When the mount has ended nobody waits for answers any more; requests that are not finished within this time are interrupted.
pub const DRAIN_WAIT: Duration = Duration::from_secs(2);
