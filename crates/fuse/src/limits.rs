//! Limits and defaults of the kernel front end, each with its reason.

use std::time::Duration;

/// Threads that read requests from the kernel, unless the machine has fewer cores. They answer requests from
/// memory in microseconds: more threads than cores would only take turns.
pub const READER_THREADS_MAX: usize = 8;
/// Threads for requests that must wait for a disk or a server: this many for reads of metadata, as many for
/// content, and as many for changes. Waiting costs no core.
pub const SLOW_THREADS: usize = 32;
/// Threads for fsync and other requests about the volume as a whole. All calls that wait at once share one
/// group commit.
pub const SYNC_THREADS: usize = 32;
/// Threads for requests to servers about locks of programs. They never wait for other programs, but for a new
/// leader to collect all locks.
pub const LOCK_THREADS: usize = 16;
/// Programs that may wait for locks at once, each with a thread; more are refused with `ENOLCK`.
pub const LOCK_WAITERS_MAX: usize = 4096;
/// INTERRUPTs that are remembered because their request has not arrived, or is of another kind: more than
/// there are reading threads.
pub const INTERRUPTS_KEPT_MAX: usize = 256;
/// Requests that may wait in each queue of slow requests; more fail with `ENOMEM`. A full queue must not hold
/// up the threads that take requests from the kernel: see `slow`. Each waiting request is a system call of a
/// process, or a background request, so the kernel's limit of processes comes first (32,768 unless raised).
pub const SLOW_QUEUE_LEN_MAX: usize = 65_536;
/// Bytes that writes may own while they wait; more fail with `ENOMEM`. Each write owns at most
/// [`REQUEST_BYTES_MAX`], and a file has one at a time, so this is two thousand files being written at once.
pub const WAITING_WRITE_BYTES_MAX: u64 = 2 << 30;
/// Largest read or write request, in bytes: what the kernel allows without raising `fs.fuse.max_pages_limit`.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Least value of the largest request, in bytes: what the kernel used before it was configurable. Smaller
/// requests would cost more time than they save memory.
pub const REQUEST_BYTES_MAX_LEAST: u32 = 128 << 10;
/// Read-ahead and writeback requests that the kernel may have in flight at once (its own default is 12):
/// enough to keep several streams of [`REQUEST_BYTES_MAX`] each busy.
pub const BACKGROUND_REQUESTS_MAX: u16 = 64;
/// The least number of such requests in flight: the kernel's own default.
pub const BACKGROUND_REQUESTS_MAX_LEAST: u16 = 12;
/// How far the kernel reads ahead in a file, in KiB (its own default is 128): two full requests in flight, so
/// that one is fetched while the other is consumed. Measured with 1 GiB in the client's memory and 4 threads:
/// 128 KiB 2.1 GB/s, 512 KiB 3.4, 1 MiB 3.5, 2 MiB 4.1, and no more beyond.
pub const READ_AHEAD_KIB: u32 = 2048;
/// For how long the kernel may use names and attributes without asking. They do not age, because a session is
/// recalled before another client changes what it caches; the protocol just needs a number.
pub const KERNEL_CACHE: Duration = Duration::from_secs(365 * 24 * 3600);
/// `st_blksize` and the unit of statfs(2), in bytes. Copying tools read and write 128 KiB and more whatever
/// the value; language runtimes allocate a buffer of this size for every file they open, so a larger one
/// would cost more than it gains.
pub const STAT_BLOCK_BYTES: u32 = 4096;
/// Copies of the counters, so that threads do not contend for one cache line.
pub const COUNTER_SHARDS: usize = 16;
/// Listings remembered as cut where the next name may have the same hash; see `listing`. It takes 2^32 names
/// in one directory to expect one such pair.
pub const SPLIT_LISTINGS_MAX: usize = 1024;
/// Requests that are not finished within this time after the end of the mount are interrupted: no program
/// waits for their replies.
pub const DRAIN_WAIT: Duration = Duration::from_secs(2);
/// Threads that send notifications and are not blocked in the kernel. One notification takes microseconds.
pub const NOTIFIERS: usize = 4;
/// Threads that send notifications, including blocked ones. A thread is blocked in the kernel as long as a
/// local change holds the lock that its notification needs.
pub const NOTIFIERS_MAX: usize = 256;
/// Threads that send `INVAL_ENTRY`, which takes the inode lock of a directory. With more all names are
/// outdated instead, which takes no lock.
pub const NAME_NOTIFIERS_MAX: usize = 32;
/// A notification thread ends when it had nothing to do for this long.
pub const NOTIFIER_IDLE_MAX: Duration = Duration::from_secs(10);
/// Notifications that are queued at once by one caller: bounds the queue.
pub const INVALIDATIONS_AT_ONCE_MAX: usize = 16_384;
/// Rounds of lseek(2) for data or holes: another one is needed if a mapping has changed what was found.
pub const SEEK_ROUNDS_MAX: u32 = 100;
/// Only a notification that takes longer than this can be blocked. Also the interval at which that is
/// checked.
pub const BLOCKED_AFTER: Duration = Duration::from_millis(2);
/// Pages that are not invalidated within this time while a local change of their file waits count as
/// impossible to write back. Their baselines are read then, which costs messages; usually such pages are just
/// being read or written.
pub const UNFLUSHABLE_AFTER: Duration = Duration::from_millis(10);
/// The time of [`UNFLUSHABLE_AFTER`] for a file of which the kernel has written back no page so far.
pub const UNFLUSHABLE_UNKNOWN_AFTER: Duration = Duration::from_millis(200);
/// Files of which it is remembered that the kernel has written back pages.
pub const MAPPED_FILES_MAX: usize = 4096;
/// Pause before baselines are read again after that has failed.
pub const UNFLUSHABLE_PAUSE: Duration = Duration::from_millis(250);
/// Pages whose baselines are kept. The kernel has no more than some thousands of dirty pages.
pub const MAPPED_PAGES_MAX: u64 = 16_384;
/// `INVAL_ENTRY` waits while the directory is locked. After this time all names are outdated instead, which
/// takes no lock but costs a lookup for each name that is used again.
pub const NAME_PATIENCE: Duration = Duration::from_millis(50);
/// The kernel may have sent a write before an invalidation of its file that is no older than this. The
/// request stays in the kernel until a thread takes it, so this is ample, unless the machine is overloaded.
pub const RECENT: Duration = Duration::from_secs(10);
/// An inode is not invalidated while a GETATTR for it is in flight, for this long at most.
pub const ATTRIBUTES_WAIT_MAX: Duration = Duration::from_millis(250);
/// An inode is not invalidated before the reply to GETATTR has been consumed, for this long at most. The
/// calling thread runs sooner, unless the machine is overloaded.
pub const LOOK_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often it is checked whether a thread has consumed its reply.
pub const ATTRIBUTES_LOOK_EVERY: Duration = Duration::from_micros(200);
/// A thread that has run for so long has consumed its reply, which takes a few microseconds.
pub const ATTRIBUTES_LOOK_TIME: Duration = Duration::from_micros(100);
/// How long a thread may have run before its run time is counted: a tick of the slowest clock that kernels
/// are built with.
pub const TICK_MAX: Duration = Duration::from_millis(10);
/// For how long a reply counts as not consumed if the state of the calling thread cannot be read.
pub const ATTRIBUTES_GRACE: Duration = Duration::from_millis(1);
/// Replies with attributes that are remembered: more than are sent while a thread waits for a processor.
pub const ANSWERS_KEPT_MAX: usize = 2048;
/// A reply older than this counts as consumed, whatever the load of the machine.
pub const LATE_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Entries in the table of directories that were listed.
pub const LISTING_SLOTS: usize = 1024;
/// Entries in the table of directories whose attributes were requested. Directories that share one cost
/// notifications.
pub const ATTR_RACE_SLOTS: usize = 4096;
/// Threads that make the kernel accept sizes. They wait for threads that read, and for local changes of the
/// file.
pub const SIZE_THREADS: usize = 8;
/// Threads that may wait at once for inode locks held by local changes. They wait no longer than these
/// changes do.
pub const SIZE_LOCKERS_MAX: usize = 64;
/// A program that reads a file changed by other clients waits until the kernel has the right size, for this
/// long at most. A local change may wait for other clients, and these for the next leader.
pub const SIZE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is checked whether the kernel has the right size.
pub const SIZE_LOOK_EVERY: Duration = Duration::from_micros(200);
/// A recall waits until local writes in flight to its files have arrived, for this long at most.
pub const WRITERS_WAIT_MAX: Duration = Duration::from_millis(100);
/// A recall waits this long for a file while local changes wait for other clients. They may hold the inode
/// lock, and then no write is in flight. Longer than a write takes to arrive.
pub const WRITERS_PATIENCE: Duration = Duration::from_millis(5);
/// How often it is checked whether a writer waits at the gate of a file.
pub const WRITERS_POLL_EVERY: Duration = Duration::from_micros(500);
/// Threads that revoke write permits for one recall: each may have to wait for a write in
/// flight.
pub const GETATTR_THREADS: usize = 4;
/// Replies with the size of a file wait while the file settles, for this long at most: invalidating its pages
/// may wait for readers.
pub const SETTLE_WAIT_MAX: Duration = Duration::from_millis(250);
/// An append to a file that other clients use waits until recent readers have consumed their replies, for
/// this long at most.
pub const APPEND_WAIT_MAX: Duration = Duration::from_millis(100);
/// Threads that are remembered as recent readers of files to which other clients append.
pub const READERS_KEPT_MAX: usize = 256;
/// The right to change names is given back when local changes have reached the dcache, or after this time.
/// The calling thread runs sooner, unless the machine is overloaded.
pub const NAMED_WAIT_MAX: Duration = Duration::from_millis(100);
/// The right to a file is given back when the kernel has the sizes of local changes, or after this time. The
/// calling thread runs sooner, unless the machine is overloaded.
pub const CONSUMED_WAIT_MAX: Duration = Duration::from_millis(100);
/// A reply about names that is older than this counts as handled.
pub const LATE_NAMES_MAX: Duration = Duration::from_secs(1);
/// Threads that are remembered to have changed names.
pub const NAMED_KEPT_MAX: usize = 64;
/// Inodes that are remembered as recently invalidated; with more, every inode counts as such.
pub const RECENT_INVALIDATIONS_MAX: usize = 4096;
/// An invalidation of an inode unknown to the kernel is repeated for this long, because a reply that
/// introduces it may be in flight. The kernel takes microseconds, unless the machine is overloaded.
pub const ARRIVAL_WAIT: Duration = Duration::from_secs(1);
/// Interval of these repetitions.
pub const ARRIVAL_LOOK_EVERY: Duration = Duration::from_millis(1);
/// Invalidations are no longer waited for when the kernel has completed none for this long. They wait for
/// reads in flight, so this is longer than a read takes that has to leave a dead brick for another.
pub const KERNEL_WAIT_MAX: Duration = Duration::from_secs(20);
/// The deadline until which the kernel's cache may be used is written for the guard process only when it has
/// grown by this much.
pub const DEADLINE_STEP: Duration = Duration::from_millis(100);
/// Threads of the guard process that invalidate inodes while the mount process is stopped. Each may wait for
/// a read that only the mount process can answer.
pub const STOPPED_INVALIDATORS_MAX: usize = 32;
/// Threads of the guard process that search `/proc`. Each may wait for a process in execve(2), which waits
/// for the mount process.
pub const STOPPED_SEARCHERS_MAX: usize = 64;
/// After this time without progress the guard process searches with one more thread.
pub const STOPPED_STANDSTILL: Duration = Duration::from_millis(10);
/// For how long the guard process waits for these threads at most: the other inodes are done soon.
pub const STOPPED_INVALIDATE_MAX: Duration = Duration::from_secs(1);
/// A second lookup of a moved directory by a thread within this time counts as a second walk: the kernel may
/// have failed to move the dentry.
pub const ARRIVAL_AGAIN_MAX: Duration = Duration::from_secs(1);
/// A thread that has looked up or changed a name in a directory within this time may hold its inode lock, or
/// take it the next moment.
pub const BUSY_LATELY_MAX: Duration = Duration::from_secs(1);
/// Slots of the table of directories in which threads work with names. Directories that share one count as
/// the same.
pub const BUSY_SLOTS: usize = 4096;
/// Lookups of moved directories that are remembered.
pub const ARRIVALS_MAX: usize = 1024;
/// Aliases of one directory; then the numbers are used again.
pub const ALIASES_MAX: u64 = 0x7fff;
/// After this many requests of one thread in a row, the thread that reads them moves to that thread's
/// processor.
pub const NEAR_AFTER: u32 = 32;
/// The processor is looked up once in this many requests.
pub const NEAR_LOOK_EVERY: u32 = 8;
/// A request of more bytes is not small: the program may continue while it is carried out.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// So many requests in a row that are not small, read by one thread, count as a stream.
pub const LARGE_CALLS_MIN: u32 = 4;
/// Memory of the machine for each inode that the kernel may refer to by default, in bytes. An inode costs
/// about 1.2 KiB in the kernel's slabs and 0.3 KiB in this process: so at most a twentieth of memory.
pub const MEMORY_PER_INODE_BYTES: usize = 32 << 10;
/// The least that the default may be, in inodes: a source tree or two stay cached on the smallest machine.
pub const INODES_MIN_DEFAULT: usize = 1 << 17;
/// The most that the default may be, in inodes.
pub const INODES_MAX_DEFAULT: usize = 1 << 22;
/// How often it is checked whether the kernel refers to more inodes than it may. Inodes created or found
/// meanwhile exceed the bound.
pub const PRUNE_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest pause between attempts while all of them are in use.
pub const PRUNE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// When there are more than the bound, pruning goes on until one part in this many is free, so that it comes
/// in batches.
pub const PRUNE_SLACK_PART: usize = 16;
/// Inodes of one round: more than can be created or found between two rounds.
pub const PRUNED_AT_ONCE_MAX: usize = 1 << 16;
/// Inodes of one message to the kernel, which handles this many at a time.
pub const PRUNE_MESSAGE_INODES: usize = 512;
/// Inodes with the most requests of a kind that each of [`HOT_SHARDS`] tables keeps for certain; up to
/// twice as many take 40 bytes each. `volume top` lists fewer.
pub const HOT_INODES_KEPT: usize = 128;
/// Tables of inodes for each kind of request.
pub const HOT_SHARDS: usize = 8;
/// An operation that takes longer is logged, unless the mount says otherwise. It is longer than an election,
/// and half of the time for which a silent client may delay other clients.
pub const SLOW_OPERATION: Duration = Duration::from_secs(5);
/// Slow operations that are logged in each [`SLOW_LOGGED_PERIOD`]; others are counted. When servers are away,
/// every operation is slow.
pub const SLOW_LOGGED_MAX: u64 = 20;
/// The period in which at most [`SLOW_LOGGED_MAX`] slow operations are logged.
pub const SLOW_LOGGED_PERIOD: Duration = Duration::from_secs(60);
/// Shortest pause of the thread that looks for slow operations.
pub const SLOW_LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
/// Longest pause of that thread, which also looks whether callers that have waited for so long were killed.
pub const KILLED_LOOK_EVERY: Duration = Duration::from_millis(500);
