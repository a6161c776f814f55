//! Limits and defaults of the kernel front end, each with its reason.

use std::time::Duration;

/// Threads that read requests from the kernel, unless the machine has fewer cores. Requests are answered on these threads
/// from memory in microseconds: more of them than cores would only take turns.
pub const READER_THREADS_MAX: usize = 8;
/// Threads for requests that must wait for a disk or a server, as many for those that read as for those that change
/// something. Waiting costs no core.
pub const SLOW_THREADS: usize = 32;
/// The same for fsync and what else is about the volume as a whole. As many as there are threads share one group commit.
pub const SYNC_THREADS: usize = 32;
/// Threads that ask the servers about locks of programs. They never wait for other programs, but for a new leader to have heard of all locks.
pub const LOCK_THREADS: usize = 16;
/// Programs that may wait for locks at the same time, each with a thread; more are refused with `ENOLCK`.
pub const LOCK_WAITERS_MAX: usize = 4096;
/// Interrupts that are remembered because their request has not arrived, or is of another kind: more than there are threads that read.
pub const INTERRUPTS_KEPT_MAX: usize = 256;
/// Requests that may wait for a thread that reads; beyond it the threads that take requests from the kernel wait too.
pub const SLOW_QUEUE_LEN_MAX: usize = 128;
/// Requests that may wait for a thread that changes something, and as many that may wait for one that syncs; what comes
/// beyond it fails with `ENOMEM`. A full queue must not hold up the threads that take requests from the kernel: a
/// change may wait for another client, and that one for a read of ours. Each of them is a system call in which a process
/// waits, so the kernel's limit of processes comes first (32,768 unless raised).
pub const CHANGE_QUEUE_LEN_MAX: usize = 65_536;
/// Bytes that writes may own while they wait; what comes beyond it fails with `ENOMEM`. Each write owns at most
/// [`REQUEST_BYTES_MAX`], and a file has one at a time, so this is two thousand files being written at once.
pub const WAITING_WRITE_BYTES_MAX: u64 = 2 << 30;
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
/// Threads that make the kernel drop what it has cached, unless they are blocked in the kernel. Told one thing takes it
/// microseconds.
pub const NOTIFIERS: usize = 4;
/// The same with all that are blocked. A thread blocks when a local change comes in between, and until that is answered.
pub const NOTIFIERS_MAX: usize = 256;
/// Those of them that drop names, which takes the lock of a directory. With more all names are outdated instead, which takes none.
pub const NAME_NOTIFIERS_MAX: usize = 32;
/// A thread that makes the kernel drop things ends when it had nothing to do for this long.
pub const NOTIFIER_IDLE_MAX: Duration = Duration::from_secs(10);
/// Things that are dropped in one go: bounds the queue.
pub const DROPS_AT_ONCE_MAX: usize = 16_384;
/// Only a notification that takes longer than this can be blocked. It is looked for as often.
pub const BLOCKED_AFTER: Duration = Duration::from_millis(2);
/// Pages that are not dropped for so long, while the file is being changed here, are taken for such as cannot be written back until that is over. What they were read
/// from is looked at then, which costs messages; as a rule they are only being read or written.
pub const STUCK_AFTER: Duration = Duration::from_millis(10);
/// The same where nothing has been written back yet that a program has changed through a mapping.
pub const STUCK_UNKNOWN_AFTER: Duration = Duration::from_millis(200);
/// Files of which it is known that something has.
pub const MAPPED_FILES_MAX: usize = 4096;
/// The same is tried again after this, if it has failed.
pub const STUCK_PAUSE: Duration = Duration::from_millis(250);
/// Pages for which it is kept what they were read from. The kernel has no more than some thousands that it has to write back.
pub const MAPPED_PAGES_MAX: u64 = 16_384;
/// The kernel drops a name when nobody holds the directory's lock. If somebody does for longer than this, all names are
/// outdated instead: which takes no lock, but costs a lookup for each name that is used again.
pub const NAME_PATIENCE: Duration = Duration::from_millis(50);
/// A write to a file that was dropped no longer ago than this may have been sent by the kernel before. It stays in the kernel
/// until a thread takes it, so this is long, unless the machine is overloaded.
pub const RECENT: Duration = Duration::from_secs(10);
/// An inode whose attributes the kernel has asked for is not dropped before it was answered, if that does not take longer than this.
pub const ATTRIBUTES_WAIT_MAX: Duration = Duration::from_millis(250);
/// Nor before it has looked at the answer, if that does not take longer than this: the thread that asked is given a processor sooner, unless the machine is
/// overloaded.
pub const LOOK_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether it was given one.
pub const ATTRIBUTES_LOOK_EVERY: Duration = Duration::from_micros(200);
/// A thread that has run for so long has looked at the answer, which takes it a few microseconds.
pub const ATTRIBUTES_LOOK_TIME: Duration = Duration::from_micros(100);
/// How long a thread may have run without its being counted: a tick of the slowest clock that kernels are built with.
pub const TICK_MAX: Duration = Duration::from_millis(10);
/// For how long an answer is taken to be on its way if nothing is known of the thread that asked.
pub const ATTRIBUTES_GRACE: Duration = Duration::from_millis(1);
/// Answers with attributes that are remembered: more than are given while a thread waits for a processor.
pub const ANSWERS_KEPT_MAX: usize = 2048;
/// A thread that was answered has looked at the answer after this, whatever else the machine has to do.
pub const LATE_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Places for directories that somebody has asked about. Those that share one cost messages.
pub const ASKER_PLACES: usize = 4096;
/// Threads that have the kernel take sizes in. They wait for threads that read, and for local changes of the same file.
pub const SIZE_THREADS: usize = 8;
/// Threads that may wait at the same time for the lock of those who change a file locally. They wait no longer than these do.
pub const SIZE_LOCKERS_MAX: usize = 64;
/// A program that reads a file which others change waits for the kernel to take the size in, if that does not take longer than this: a local change of it may wait
/// for other clients, and these for the next leader.
pub const SIZE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
pub const SIZE_LOOK_EVERY: Duration = Duration::from_micros(200);
/// A client that wants to use a file waits until what is being written to it here has come, if that does not take longer than this.
pub const ASK_WAIT_MAX: Duration = Duration::from_millis(100);
/// The same if there are local changes that wait for other clients: they may hold the file's lock, and then nobody is writing to it. Longer than a write takes to come.
pub const ASK_PATIENCE: Duration = Duration::from_millis(5);
/// How often it is looked whether somebody waits to be let write to it.
pub const ASK_LOOK_EVERY: Duration = Duration::from_micros(500);
/// Threads that have the kernel ask before it writes, for one client's wish: each may have to wait for what is being written.
pub const ASK_THREADS: usize = 4;
/// Nobody is told the length of a file while what the kernel has of it is dropped, if that does not take longer than this: it may wait for whoever reads.
pub const SETTLE_WAIT_MAX: Duration = Duration::from_millis(250);
/// The kernel is let append to a file that others use when those who have read it have looked at what they were told, if that does not take longer than this.
pub const APPEND_WAIT_MAX: Duration = Duration::from_millis(100);
/// Threads that are known to have read such files.
pub const READERS_KEPT_MAX: usize = 256;
/// The right to change names is given back when the kernel has taken in what was changed here, if that does not take longer than this: whoever called gets a processor
/// sooner, unless the machine is overloaded.
pub const NAMED_WAIT_MAX: Duration = Duration::from_millis(100);
/// What was answered longer ago has been taken in.
pub const LATE_NAMES_MAX: Duration = Duration::from_secs(1);
/// Threads of which it is known that they have changed names.
pub const NAMED_KEPT_MAX: usize = 64;
/// Inodes that are remembered as dropped; with more than these every one is taken for such.
pub const RECENT_DROPS_MAX: usize = 4096;
/// An answer that names an inode may still be on its way when the inode is to be dropped. So long it is waited for: the
/// kernel takes microseconds, unless the machine is overloaded.
pub const ARRIVAL_WAIT: Duration = Duration::from_secs(1);
/// How often it is looked for.
pub const ARRIVAL_LOOK_EVERY: Duration = Duration::from_millis(1);
/// When the kernel has not dropped anything for this long, although it was told to, it is waited for no longer. It waits for
/// reads that are under way, so this is longer than a read takes whose brick has died.
pub const KERNEL_WAIT_MAX: Duration = Duration::from_secs(20);
/// It is written down for whoever watches over this process until when what the kernel caches may be used, unless it has grown by less than this.
pub const DEADLINE_STEP: Duration = Duration::from_millis(100);
/// Threads that have the kernel drop the content of open files while the process that serves is stopped. Each may wait for a read that only that process can
/// answer.
pub const STOPPED_DROPPERS_MAX: usize = 32;
/// For how long these are waited for at most: others go on soon.
pub const STOPPED_DROP_MAX: Duration = Duration::from_secs(1);
/// A thread that asks for a directory which has moved, and does so again within this time, has perhaps failed to take the first answer in.
pub const ARRIVAL_AGAIN_MAX: Duration = Duration::from_secs(1);
/// Where somebody has asked about a name or changed one no longer ago than this, he may hold the kernel's lock of the directory, or take it again the next moment.
pub const BUSY_LATELY_MAX: Duration = Duration::from_secs(1);
/// Places for directories in which somebody has. Those that share one are taken for the same.
pub const BUSY_PLACES: usize = 4096;
/// Such questions that are remembered.
pub const ARRIVALS_MAX: usize = 1024;
/// Numbers besides its own by which the kernel may know a directory; then they are used again.
pub const ALIASES_MAX: u64 = 0x7fff;
/// After so many requests of one thread in a row, a thread that reads requests goes to that one's processor.
pub const NEAR_AFTER: u32 = 32;
/// Where that is now is looked at once in so many requests.
pub const NEAR_LOOK_EVERY: u32 = 8;
/// A request of more bytes is not small: the program may go on while it is carried out.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// So many requests in a row that are not small, to one thread that reads requests, are taken for a stream.
pub const LARGE_CALLS_MIN: u32 = 4;
/// Memory of the machine for each inode that the kernel may refer to by default, in bytes. An inode costs
/// about 1.2 KiB in the kernel's slabs and 0.3 KiB in this process: so at most a twentieth of memory.
pub const MEMORY_PER_INODE_BYTES: usize = 32 << 10;
/// The least that the default may be, in inodes: a source tree or two stay cached on the smallest machine.
pub const INODES_MIN_DEFAULT: usize = 1 << 17;
/// The most that the default may be, in inodes.
pub const INODES_MAX_DEFAULT: usize = 1 << 22;
/// How often it is looked whether the kernel refers to more inodes than it may. What is created or found
/// meanwhile exceeds the bound.
pub const PRUNE_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest pause between attempts while all of them are in use.
pub const PRUNE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// When there are more than the bound, pruning goes on until one part in this many is free, so that it comes
/// in batches.
pub const PRUNE_SLACK_PART: usize = 16;
/// Inodes of one round: more than can be created or found between two rounds.
pub const PRUNED_AT_ONCE_MAX: usize = 1 << 16;
/// Inodes of one message to the kernel, which works on so many at a time.
pub const PRUNE_MESSAGE_INODES: usize = 512;
