//! Limits of a client, each with its reason.

use std::time::Duration;

/// Bytes of operations after which the open batch is sealed and sent. Large enough that a batch's fixed cost
/// (a log entry, a message) disappears, small enough that the first bytes of a burst are sent while it lasts.
pub const BATCH_BYTES_TARGET: usize = 1 << 20;
/// Longest time that an operation stays in the open batch. This is what a crash may lose without fsync(2),
/// and the time in which a temporary file can be created and deleted without a message to the server.
pub const JOURNAL_AGE_MAX: Duration = Duration::from_millis(50);
/// Bytes of content in blocks that one batch may wait for, so that a stream of writes commits in steps.
pub const BATCH_BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of small blocks that one batch carries inline; further ones are stored as blocks. With
/// [`BATCH_BYTES_TARGET`] and one more operation it keeps a batch well below the largest message.
pub const BATCH_INLINED_BYTES_MAX: usize = 2 << 20;
/// Bytes of operations and blocks that are not committed yet; beyond it, writers wait (backpressure). Bounds
/// the time that an fsync can take. Where memory is short, writers wait sooner.
pub const UNCOMMITTED_BYTES_MAX: u64 = 128 << 20;
/// Bytes that an operation is charged in the journal besides its data: its record and index entries.
pub const OP_OVERHEAD_BYTES: usize = 160;
/// Room on the volume that an operation is charged besides its data: keys, records and their copies in the
/// store.
pub const OP_ROOM_BYTES: u64 = 512;

/// Room requested ahead of need, so that a local success is not refused later.
pub const ROOM_GRANT_BYTES: u64 = 256 << 20;
/// Below this much granted room more is requested in the background.
pub const ROOM_LOW_BYTES: u64 = 96 << 20;
/// Inode numbers requested ahead of need.
pub const INODE_GRANT: u64 = 1 << 16;
/// Below this many granted numbers more are requested in the background.
pub const INODE_LOW: u64 = 1 << 14;

/// Files whose refused mapping lock is logged, once each. Bounds the memory of what was logged.
pub const MAPPING_REFUSALS_KEPT_MAX: usize = 4096;

/// The list of the kernel's references may be compacted if it has more stale entries than this.
pub const STALE_REFERENCES_MIN: usize = 1024;

/// Memory for all buffers and caches by default, in bytes: what the defaults of its parts need together.
pub const MEMORY_BYTES_DEFAULT: usize = 1 << 30;
/// Bytes that an inode is charged that the kernel refers to: the list of references, and its watch.
pub const REFERENCE_BYTES: usize = 300;
/// Metadata and small contents cached by default, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;
/// Blocks and read-ahead cached by default, in bytes.
pub const BLOCK_CACHE_BYTES_DEFAULT: usize = 128 << 20;
/// Streams together read ahead as much as fits the block cache, except for one part in this many: what was
/// read ahead must stay there until it is read.
pub const AHEAD_CACHE_REST: usize = 4;
/// A file that was not read for so long is no stream any more. Streams share the room for read-ahead.
pub const STREAM_IDLE_MAX: Duration = Duration::from_millis(500);
/// Blocks leave the block cache when they are older than this: the kernel has what was read of them.
pub const BLOCK_AGE_MAX: Duration = Duration::from_secs(30);
/// A table of cached inodes is made smaller when it has room for this many times as many as there are.
pub const CACHE_TABLE_WASTE_MAX: usize = 4;
/// Cached inodes that eviction visits for one operation: its cost is spread. Also how many of them may be
/// uncommitted, which cannot be evicted.
pub const EVICT_STEPS: usize = 16;
/// Further inodes that eviction visits when a listing has brought a great many: about a millisecond's worth.
pub const EVICT_BURST_STEPS: usize = 8192;
/// Eviction of the committed extents of a file that is being written frees at least one part in this many of
/// the cache, so that it is rare.
pub const EVICT_EXTENTS_REST: usize = 8;
/// Regions of a file, of [`EXTENTS_ALIGN_BYTES`] each, that such an eviction visits: it holds up other calls.
pub const EVICT_REGIONS_MAX: usize = 256;
/// A directory with more names than this is not fetched whole for a single lookup.
pub const DIR_FETCH_ENTRIES_MAX: u64 = 8192;
/// A directory with more names than this is not cached whole: its listing is passed through page by page.
pub const DIR_CACHE_ENTRIES_MAX: u64 = 65_536;
/// Bytes of small contents that come along with one listing; beyond it, attributes only.
pub const DIR_CONTENT_BYTES_MAX: usize = 32 << 20;
/// The contents that come along with one listing take at most the cache's bytes divided by this.
pub const DIR_CONTENT_CACHE_SHARE: usize = 16;
/// Bytes requested in one page of a listing.
pub const LIST_PAGE_BYTES: usize = 4 << 20;
/// Walks at the same time; beyond it the one that was idle for longest is forgotten.
pub const WALKS_MAX: usize = 8;
/// Sub-directories of one directory that are listed before this counts as a walk through all of them: a
/// single one may be on the path to a file.
pub const WALK_SIBLINGS_MIN: u32 = 2;
/// Recalls of directories that a walk has not reached, without progress of the walk, after which it is given
/// up: another client works there.
pub const WALK_RECALLS_MAX: u32 = 4;
/// Directories that a walk may be expected in; more are expected when these are listed.
pub const WALK_EXPECTED_MAX: usize = 4096;
/// Directories that are prefetched, or requested, and that a walk has not reached.
pub const WALK_AHEAD_DIRS_MAX: usize = 192;
/// Bytes of the cache taken up by what walks have not reached.
pub const WALK_AHEAD_BYTES_MAX: usize = 24 << 20;
/// Most directories in one prefetch request.
pub const WALK_ASK_DIRS_MAX: usize = 48;
/// Fewest directories in one prefetch request, while other requests are in flight.
pub const WALK_ASK_DIRS_MIN: usize = 16;
/// Target length of a reply with several directories, in bytes: long enough that its fixed cost disappears,
/// short enough that it arrives soon.
pub const WALK_REPLY_BYTES_TARGET: usize = 1 << 20;
/// Threads that prefetch for walks.
pub const WALK_THREADS: usize = 3;
/// A call that needs a directory that is being prefetched waits this long at most, then requests it alone.
pub const WALK_WAIT_MAX: Duration = Duration::from_millis(200);
/// After this many directories with files, without a file being read, it is doubtful whether contents are
/// wanted.
pub const WALK_UNREAD_DOUBTFUL: u32 = 2;
/// Directories prefetched while it is doubtful whether contents are wanted.
pub const WALK_AHEAD_DIRS_DOUBTFUL: usize = 24;
/// After this many directories with files, without a file being read, contents are not prefetched any more.
pub const WALK_UNREAD_MAX: u32 = 8;
/// Directories listed last that a walk remembers: a read of a file in one of them belongs to the walk.
pub const WALK_ENTERED_MAX: usize = 64;
/// Runs of content in blocks that are read ahead of a walk.
pub const WALK_RUNS_AHEAD_MAX: usize = 16;
/// Bytes of content in blocks that are read ahead of a walk.
pub const WALK_RUNS_AHEAD_BYTES_MAX: u64 = 8 << 20;
/// Directories that a walk has not reached and whose first content in blocks is read ahead, too.
pub const WALK_RUNS_DIRS_AHEAD: usize = 6;
/// Runs of content in blocks that a walk remembers, to read them ahead.
pub const WALK_RUNS_MAX: usize = 1024;
/// Files of a directory listed without contents that are fetched one by one, before the contents of all are
/// fetched.
pub const BARE_READS_MAX: u32 = 3;
/// Extents are requested from a multiple of this offset on, in bytes, so that a file that is read backward
/// costs one request per this many bytes.
pub const EXTENTS_ALIGN_BYTES: u64 = 16 << 20;
/// Extents requested at once.
pub const EXTENTS_PAGE: usize = 1024;
/// The number for a file whose extents do not all fit the cache: it is written at random places, and more
/// would be evicted before they are used.
pub const EXTENTS_PAGE_EVICTED: usize = 16;

/// Names looked up one by one in a directory that another client changes; after that it is listed whole.
pub const CONTENDED_LOOKUPS_MAX: u32 = 4;
/// A directory is no longer watched after this many recalls in it without a use of it by this client.
pub const RECALLS_UNUSED_MAX: u32 = 4;
/// Inodes of such a directory that the kernel is asked to forget at a time.
pub const UNUSED_AT_ONCE_MAX: usize = 1 << 16;
/// Remembered names that another client has changed, and that the kernel has not looked up since. If there
/// are more, all are forgotten: the hazard is rare, see `Core::outdated_dentries`.
pub const OUTDATED_DENTRIES_MAX: usize = 10_000;
/// A call that failed with `ESTALE` delays recalls of what its retry needs for this long at most. The second
/// lookup comes after a few messages, unless other threads hold the kernel's locks.
pub const RETRY_WAIT_MAX: Duration = Duration::from_millis(500);
/// After the second lookup of a call that failed with `ESTALE`, recalls are delayed this long at most. The
/// retry follows at once or never, but the thread may have to wait for a processor.
pub const RETRY_LOOKED_MAX: Duration = Duration::from_millis(500);
/// Bound of either delay of recalls while other threads of the mount wait for the right to change names: one
/// of them may hold the lock of a directory on the retry's path.
pub const RETRY_BESIDE_WAITERS_MAX: Duration = Duration::from_millis(100);
/// A second lookup gives way this often to threads that wait with a lock that the retry needs. Each lookup is
/// tried twice, first without waiting, and both tries count.
pub const RETRY_GIVES_WAY_MAX: usize = 4;
/// A call that failed with `ESTALE` is remembered for this long, in which a thread can wait for several other
/// threads before it retries.
pub const RETRY_KNOWN_MAX: Duration = Duration::from_secs(10);
/// Refused calls that are remembered; when there are more, the oldest is forgotten.
pub const RETRIES_MAX: usize = 1024;
/// Files with a write permit that are remembered. A write to any further file may be visible on the mount
/// before it is carried out, if another client uses the file.
pub const WRITERS_MAX: usize = 1024;
/// When a directory is recalled, writes may be in flight to those of its files that were written to within
/// this time.
pub const WRITTEN_LATELY_MAX: Duration = Duration::from_secs(1);
/// Files whose write permit is revoked for one recall: each costs some microseconds.
pub const HELD_AT_ONCE_MAX: usize = 64;
/// The server holds the recall long-poll open for this long if there are no recalls. The long-poll also
/// renews the lease.
pub const POLL_WAIT: Duration = Duration::from_millis(1500);
/// A difference between the servers' clock and this machine's is logged if it is larger.
pub const CLOCK_DIFFERENCE_SAID: Duration = Duration::from_secs(1);
/// How often it is checked whether the lease has run out.
pub const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Rights in one message to a new leader, so that it fits a frame.
pub const RECLAIM_PART: usize = 20_000;
/// Recalls carried out at the same time: each may wait for a server, or for the kernel.
pub const RECALL_THREADS_MAX: usize = 64;
/// A thread for recalls that was idle for this long ends.
pub const RECALL_THREAD_IDLE_MAX: Duration = Duration::from_secs(5);
/// Pause before a recall long-poll that failed is repeated.
pub const POLL_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a request for a lock that no leader has answered is repeated.
pub const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A reply that was sent before a recall is waited for this long at most: by then its connection is dead.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);
/// Shortest pause between the begin of a session and of the next one, if the servers end it at once. The
/// pause doubles each time.
pub const SESSION_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause between the begin of a session and of the next one, if the servers end it at once. Something
/// is wrong then, and repeated attempts must cost the servers little.
pub const SESSION_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Threads that write blocks: enough that several fsyncs of a disk overlap.
pub const PUT_THREADS: usize = 6;
/// Attempts to store a block before the failure is final.
pub const PUT_TRIES: u32 = 3;
/// Threads that read blocks ahead: as many fetches are in flight.
pub const READ_AHEAD_THREADS: usize = 8;
/// Bytes of a block that are fetched at once where a file is read in sequence. Less would cost more requests
/// per byte; more would waste more where a sequence ends, and keep fewer fetches in flight.
pub const FETCH_BYTES_MAX: u32 = 1 << 20;
/// Extents that are considered for one read. A file of small extents is read ahead over fewer bytes.
pub const READ_AHEAD_EXTENTS_MAX: usize = 64;
/// Bytes fetched ahead of a sequence that has just been recognised.
pub const AHEAD_BYTES_MIN: u64 = FETCH_BYTES_MAX as u64;
/// Bytes fetched ahead of a long sequence.
pub const AHEAD_BYTES_MAX: u64 = 20 << 20;
/// In the middle of a file, the length of a sequence divided by this is read ahead, so that random reads of
/// any size waste little.
pub const AHEAD_SHARE: u64 = 4;
/// A file is read in sequence where more than this was read without a gap, in bytes: it is fetched ahead from
/// there on. A random read of 1 MiB arrives as up to eight requests, and the kernel reads 2 MiB ahead by
/// itself.
pub const SEQUENTIAL_BYTES_MIN: u64 = 2 << 20;
/// A file is read in sequence if more than this was read from its start, in bytes: most programs continue
/// from there. The kernel reads 512 KiB by itself.
pub const SEQUENTIAL_FROM_START_BYTES_MIN: u64 = 512 << 10;
/// The kernel does not request what is in its page cache, so a sequence may have gaps of this length, in
/// bytes.
pub const GAP_BYTES_MAX: u64 = 64 << 10;
/// How far requests of one sequence may overtake each other, in bytes: as far as the kernel reads ahead.
pub const REORDERED_BYTES_MAX: u64 = 2 << 20;
/// Equal distances between records after which the next ones are fetched ahead.
pub const STRIDE_RECORDS_MIN: u64 = 3;
/// Records of a stride that are fetched ahead: twice as many as threads fetch them.
pub const STRIDE_AHEAD_RECORDS_MAX: u64 = 2 * READ_AHEAD_THREADS as u64;
/// Sequential readers of one file at different offsets.
pub const RUNS_PER_FILE_MAX: usize = 8;
/// A file up to this size is read as a whole, in bytes. The kernel would read it in pieces, each one request.
pub const READ_WHOLE_BYTES_MAX: u64 = 1 << 20;
/// Times that a read looks its extents up again because a block has been collected: the extent was rewritten
/// meanwhile.
pub const READ_TRIES: u32 = 8;
/// Times that a name is looked up again because its inode is gone: each time it may just have been replaced
/// once more.
pub const LOOKUP_TRIES: u32 = 8;

/// Blocks whose group is remembered; beyond it, those used longest ago are forgotten. At about 80 bytes each
/// these are 5 MiB, for 256 GiB of content in full blocks.
pub const GROUPS_KNOWN_MAX: usize = 65_536;
/// Times that the group of a missing block is looked up again: each time the block may have been moved once
/// more.
pub const LOCATE_TRIES: u32 = 4;
/// First pause before a request that a server or brick did not answer is repeated.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause before a request that a server or brick did not answer is repeated: one that is back is
/// noticed within this time.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);
/// First pause while a metadata group has no leader: everything waits for that, and asking costs little.
pub const LEADER_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two rounds of asking which replica leads.
pub const LEADER_PAUSE_MAX: Duration = Duration::from_millis(200);
/// A wait of this length is logged.
pub const COMPLAIN_AFTER: Duration = Duration::from_secs(2);
/// A wait that continues is logged again every time this has passed.
pub const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Batches in flight to a metadata leader; more wait here until it has answered. Enough to keep a group of
/// replicas busy across a network, and few enough that a new leader is not flooded with resent ones.
pub const RESEND_WINDOW_BATCHES: usize = 64;
/// Bytes of the batches in flight; one batch may always be sent.
pub const RESEND_WINDOW_BYTES: usize = 16 << 20;
/// After this long without an answer to a batch, the client checks whether another replica leads.
pub const LEADER_SILENCE_MAX: Duration = Duration::from_secs(2);
/// A session ends if servers deny access to its volume for this long while no replica leads. If an
/// administrator undoes the cause sooner, no mount fails.
pub const DENIAL_GRACE: Duration = Duration::from_secs(2);
/// A mount that was unmounted by force tries this long to commit its changes.
pub const ABANDONED_CLOSE_WAIT: Duration = Duration::from_secs(1);
/// Mounting gives up when no metadata leader has answered for this long.
pub const OPEN_WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// Closing a session is tried for this long at most. Servers end it later by themselves.
pub const CLOSE_SESSION_WAIT: Duration = Duration::from_secs(5);
/// Unmounting waits for commits until there was no progress for this long. Longer than the restart of a
/// server.
pub const CLOSE_WAIT_DEFAULT: Duration = Duration::from_secs(60);
/// Waits of a call that are kept, to name the longest when the call was slow; a walk may have thousands.
pub const TRACE_STEPS_MAX: usize = 16;
/// Lines of each part of a state dump: some pages.
pub const DUMP_LINES_MAX: usize = 256;
/// Descriptions of ended sessions that are kept until they are fetched.
pub const LOSSES_KEPT_MAX: usize = 16;
