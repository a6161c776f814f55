//! Limits of a client, each with its reason.

use shoal_types::limits::BLOCK_BYTES_MAX;
use std::time::Duration;

/// Bytes of operations after which the open batch is sealed and sent: large enough that a batch's fixed cost (a log entry, a
/// message) disappears, small enough that the first bytes of a burst are on their way while it lasts.
pub const BATCH_BYTES_TARGET: usize = 1 << 20;
/// Longest time that an operation stays in the open batch. The window of what a crash may lose without fsync(2), and
/// the time in which a temporary file can come and go without the server ever hearing of it.
pub const JOURNAL_AGE_MAX: Duration = Duration::from_millis(50);
/// Bytes of content in blocks that one batch may wait for, so that a stream of writes commits in steps.
pub const BATCH_BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of small blocks that travel inline when a batch is sealed; the others are stored as blocks, small as they are. With
/// [`BATCH_BYTES_TARGET`] and one operation more it keeps a batch well below the largest message.
pub const BATCH_INLINED_BYTES_MAX: usize = 2 << 20;
/// Bytes of operations and blocks that are not committed yet; beyond it, writers wait. Bounds the client's memory
/// and the time that an fsync can take.
pub const UNCOMMITTED_BYTES_MAX: u64 = 128 << 20;
/// What an operation costs in the journal's accounts besides its data: its record and index entries.
pub const OP_OVERHEAD_BYTES: usize = 160;
/// Room on the volume that an operation is charged besides its data: keys, records and their copies in the store.
pub const OP_ROOM_BYTES: u64 = 512;

/// Room asked for ahead of need, so that a local success is not refused later.
pub const ROOM_GRANT_BYTES: u64 = 256 << 20;
/// Below this much granted room more is asked for in the background.
pub const ROOM_LOW_BYTES: u64 = 96 << 20;
/// Inode numbers asked for ahead of need.
pub const INODE_GRANT: u64 = 1 << 16;
/// Below this many granted numbers more are asked for in the background.
pub const INODE_LOW: u64 = 1 << 14;

/// Places of forgotten inodes that the order of the kernel's references may keep, besides one for each inode
/// that is referred to.
pub const STALE_REFERENCES_MIN: usize = 1024;

/// Metadata and small contents cached by default, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;
/// Blocks and read-ahead cached by default, in bytes.
pub const BLOCK_CACHE_BYTES_DEFAULT: usize = 128 << 20;
/// Cached inodes that one operation looks at to find room: eviction is paid in small steps.
pub const EVICT_STEPS: usize = 16;
/// ... and how many more when a listing has brought a great many: about a millisecond's worth.
pub const EVICT_BURST_STEPS: usize = 8192;
/// A directory with more names than this is not fetched whole for a single lookup.
pub const DIR_FETCH_ENTRIES_MAX: u64 = 8192;
/// A directory with more names than this is not kept whole: its listing is passed through page by page.
pub const DIR_CACHE_ENTRIES_MAX: u64 = 65_536;
/// Bytes of small contents that come along with one listing; beyond it, attributes only.
pub const DIR_CONTENT_BYTES_MAX: usize = 32 << 20;
/// Bytes asked for in one page of a listing.
pub const LIST_PAGE_BYTES: usize = 4 << 20;
/// Programs that walk through trees at the same time; who went on longest ago is forgotten.
pub const WALKS_MAX: usize = 8;
/// Sub-directories of one directory that are looked into before that is taken for a walk through all of them:
/// one may be on the way to a file.
pub const WALK_SIBLINGS_MIN: u32 = 2;
/// Recalls of directories that a walk has not reached and that it is given up after, if it does not go on
/// meanwhile: another client works there.
pub const WALK_RECALLS_MAX: u32 = 4;
/// Directories that a walk may be expected in; more are asked for when they are looked into.
pub const WALK_EXPECTED_MAX: usize = 4096;
/// Directories that are here, or on their way, and that a walk has not reached.
pub const WALK_AHEAD_DIRS_MAX: usize = 192;
/// Bytes of the cache that is taken up by what walks have not reached.
pub const WALK_AHEAD_BYTES_MAX: usize = 24 << 20;
/// Directories asked for at once ...
pub const WALK_ASK_DIRS_MAX: usize = 48;
/// ... and the fewest, as long as others are on their way.
pub const WALK_ASK_DIRS_MIN: usize = 16;
/// About how long an answer with several directories is, in bytes: long enough that its fixed cost disappears, short enough that it soon comes.
pub const WALK_REPLY_BYTES_TARGET: usize = 1 << 20;
/// Threads that ask for what walks will look at next.
pub const WALK_THREADS: usize = 3;
/// Whoever needs a directory that is on its way waits this long at most, then asks for it alone.
pub const WALK_WAIT_MAX: Duration = Duration::from_millis(200);
/// After so many directories with files without a file being read it is doubtful whether contents are wanted ...
pub const WALK_UNREAD_DOUBTFUL: u32 = 2;
/// ... and no more directories than these come ahead.
pub const WALK_AHEAD_DIRS_DOUBTFUL: usize = 24;
/// Directories with files that are looked into without a file being read, before contents do not come along any more.
pub const WALK_UNREAD_MAX: u32 = 8;
/// Directories that were looked into last, so that reads of their files are known to be the walk's.
pub const WALK_ENTERED_MAX: usize = 64;
/// Runs of content in blocks that are read ahead of a walk ...
pub const WALK_RUNS_AHEAD_MAX: usize = 16;
/// ... and their bytes.
pub const WALK_RUNS_AHEAD_BYTES_MAX: u64 = 8 << 20;
/// Directories in which a walk has not arrived and of whose content in blocks the first is read ahead, too.
pub const WALK_RUNS_DIRS_AHEAD: usize = 6;
/// Runs of content that are remembered to be read on a walk's way.
pub const WALK_RUNS_MAX: usize = 1024;
/// Files of a directory of which the contents did not come along are asked for one by one so often, then all at once.
pub const BARE_READS_MAX: u32 = 3;
/// Extents asked for at once.
pub const EXTENTS_PAGE: usize = 1024;

/// Names of a directory in which others work that are asked for one by one; after that all of it is listed.
pub const CONTENDED_LOOKUPS_MAX: u32 = 4;
/// Something of a directory was taken back this often and nobody has looked at the directory since: it is not watched any longer.
pub const RECALLS_UNUSED_MAX: u32 = 4;
/// Names remembered that others have changed and that the kernel has not asked for since. With more they are all forgotten: what they
/// protect against is rare, see `Core::unseen`.
pub const UNSEEN_NAMES_MAX: usize = 10_000;
/// A call that was refused because the kernel has to look again keeps what it has waited for this long at most, while others want to change the same names: the
/// kernel comes back after a few messages, unless others hold its locks.
pub const RETRY_WAIT_MAX: Duration = Duration::from_millis(500);
/// And so long once it has looked: then it comes at once, or never; but a thread may have to wait for a processor.
pub const RETRY_LOOKED_MAX: Duration = Duration::from_millis(500);
/// Neither so long while others here wait for the right to change names, wherever: they may hold the lock of a directory on its path.
pub const RETRY_BESIDE_OTHERS_MAX: Duration = Duration::from_millis(100);
/// So often an answer to who looks again is put off because others wait with a lock that he will need. Each name is tried twice: first without waiting.
pub const RETRY_GIVES_WAY_MAX: usize = 4;
/// So long it is known what was refused: who comes back later has waited for others, each of whom took less.
pub const RETRY_KNOWN_MAX: Duration = Duration::from_secs(10);
/// Such calls that are known; more are as good as none.
pub const RETRIES_MAX: usize = 1024;
/// Files that the kernel writes to without asking, as far as they are known. What is written to others is shown to programs of the mount a moment before it counts, if others use
/// the file.
pub const WRITERS_MAX: usize = 1024;
/// Of a directory that others begin to use, somebody may be writing to those files that he has written to within this time.
pub const WRITTEN_LATELY_MAX: Duration = Duration::from_secs(1);
/// Files that the kernel is made to ask about for one recall: each costs it some microseconds.
pub const HELD_AT_ONCE_MAX: usize = 64;
/// A question for recalls is kept by the server for this long if there are none. It is also what renews the lease.
pub const POLL_WAIT: Duration = Duration::from_millis(1500);
/// A difference between the servers' clock and this machine's that people are told of.
pub const CLOCK_DIFFERENCE_SAID: Duration = Duration::from_secs(1);
/// How often it is looked whether the lease has run out.
pub const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Rights said to a new leader in one message, so that it fits a frame.
pub const DECLARE_PART: usize = 20_000;
/// Recalls carried out at the same time: each may wait for a server, or for the kernel.
pub const RECALL_THREADS_MAX: usize = 64;
/// A thread for them that had nothing to do for this long ends.
pub const RECALL_THREAD_IDLE_MAX: Duration = Duration::from_secs(5);
/// Before a question for recalls that failed is repeated.
pub const POLL_PAUSE: Duration = Duration::from_millis(100);
/// Before a request about a lock that no leader has answered is repeated.
pub const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// An answer that was sent before a recall is waited for this long at most: by then its connection is dead.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);
/// A session that ended soon after it had begun is followed by the next one after this at the earliest, the next time after twice as long ...
pub const SESSION_PAUSE_MIN: Duration = Duration::from_millis(50);
/// ... and at most after this: something is wrong then, and trying again and again must cost the servers little.
pub const SESSION_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Threads that write blocks: enough that several fsyncs of a disk overlap.
pub const PUT_THREADS: usize = 6;
/// Times a block is written before its failure counts.
pub const PUT_TRIES: u32 = 3;
/// Threads that read blocks ahead.
pub const READ_AHEAD_THREADS: usize = 4;
/// Blocks read ahead of a sequential reader.
pub const READ_AHEAD_BLOCKS: usize = 6;
/// Bytes fetched ahead of a sequence that has just been recognised ...
pub const AHEAD_BYTES_MIN: u64 = BLOCK_BYTES_MAX as u64;
/// ... and of a long one.
pub const AHEAD_BYTES_MAX: u64 = (READ_AHEAD_BLOCKS as u64 - 1) * BLOCK_BYTES_MAX as u64;
/// A file is read in sequence where more than this was read without a gap, in bytes: whole blocks are fetched
/// from there on. A random read of 1 MiB arrives as up to eight requests, and the kernel reads 2 MiB ahead by
/// itself.
pub const SEQUENTIAL_BYTES_MIN: u64 = 2 << 20;
/// The same from the start of a file: most programs go on from there. The kernel reads 512 KiB by itself.
pub const SEQUENTIAL_FROM_START_BYTES_MIN: u64 = 512 << 10;
/// What the kernel has in its cache it does not ask for: a sequence may have gaps of this length, in bytes.
pub const GAP_BYTES_MAX: u64 = 64 << 10;
/// How far requests of one sequence may overtake each other, in bytes: as far as the kernel reads ahead.
pub const REORDERED_BYTES_MAX: u64 = 2 << 20;
/// Places of one file that may be read in sequence at the same time.
pub const RUNS_PER_FILE_MAX: usize = 8;
/// A file up to this size is read as a whole, in bytes: the kernel asks for it in pieces, and each would be a request.
pub const READ_WHOLE_BYTES_MAX: u64 = 1 << 20;
/// A read that finds its block collected (its extent was rewritten meanwhile) looks the extents up again this often.
pub const READ_TRIES: u32 = 8;
/// A name that stands for what is gone is resolved anew this often: each time somebody may just have replaced it once more.
pub const LOOKUP_TRIES: u32 = 8;

/// Blocks whose place is remembered; beyond it, those used longest ago are forgotten and asked for again. At about
/// 80 bytes each these are 5 MiB, for 256 GiB of content in full blocks.
pub const GROUPS_KNOWN_MAX: usize = 65_536;
/// A block found nowhere is looked up anew this often: each time it may just have been moved once more.
pub const LOCATE_TRIES: u32 = 4;
/// First pause before something is tried again that a server or brick did not answer.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest such pause: what comes back is noticed within this time.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);
/// The same while nobody leads a metadata group: everything waits for that, and asking costs little.
pub const LEADER_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two rounds of asking who leads.
pub const LEADER_PAUSE_MAX: Duration = Duration::from_millis(200);
/// Waiting this long is worth a line in the log ...
pub const COMPLAIN_AFTER: Duration = Duration::from_secs(2);
/// ... and another one every so often.
pub const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Batches under way to a metadata leader; more wait here until it has answered. Enough that a group of replicas is kept busy
/// across a network, little enough that a new leader is not drowned in what its predecessor left.
pub const RESEND_WINDOW_BATCHES: usize = 64;
/// ... and their bytes; one batch may always go.
pub const RESEND_WINDOW_BYTES: usize = 16 << 20;
/// A leader that answers no batch for this long is not waited for any longer without a look at whether another one leads.
pub const LEADER_SILENCE_MAX: Duration = Duration::from_secs(2);
/// Servers must deny a session its volume for this long, with no replica leading, before it ends: an administrator who takes a step
/// back at once costs no mount anything.
pub const DENIAL_GRACE: Duration = Duration::from_secs(2);
/// A mount that was taken away by force tries this long to make durable what it still holds.
pub const ABANDONED_CLOSE_WAIT: Duration = Duration::from_secs(1);
/// Mounting gives up when no metadata leader has answered for this long.
pub const OPEN_WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The end of a session is announced for this long at most: servers find out by themselves later.
pub const CLOSE_SESSION_WAIT: Duration = Duration::from_secs(5);
/// The end of a mount waits as long as something still becomes durable now and then, and this long when nothing does: longer
/// than it takes to start a server anew, shorter than people's patience.
pub const CLOSE_WAIT_DEFAULT: Duration = Duration::from_secs(60);
