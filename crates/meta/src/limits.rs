//! Limits of a metadata server, each with its reason.

use std::time::Duration;

/// Bytes of proposals that wait for the log; beyond it, whoever submits waits. A few disk flushes' worth.
pub const PROPOSED_BYTES_MAX: usize = 32 << 20;
/// The longest proposal, in bytes: with its heads it has to fit into a frame of the network, or no follower ever hears of it. Several times a batch.
pub const PROPOSAL_BYTES_MAX: usize = 6 << 20;
/// Proposals that may be under way.
pub const PROPOSALS_MAX: usize = 4096;
/// Bytes of proposals that share one flush of the log: enough to keep a disk busy, little enough that the first of them does
/// not wait for long.
pub const GROUP_BYTES_MAX: usize = 8 << 20;
/// Committed entries that wait to be applied, in bytes; beyond it the log waits for the store, and with it everything that keeps a leader
/// one. More than clients can have under way.
pub const APPLYING_BYTES_MAX: usize = 2 * PROPOSED_BYTES_MAX;
/// Log entries kept in memory for the moment between being written and being applied, in bytes.
pub const LOG_CACHE_BYTES: usize = 32 << 20;
/// The log is shortened when it has grown by this much since the store was last flushed, in bytes. Bounds what a restart has to
/// replay. On a small disk it is a part of that instead, see [`LOG_DISK_PART`].
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// The log takes at most one part in this many of its disk.
pub const LOG_DISK_PART: u64 = 16;
/// ... and at least this, in bytes: a few of the largest batches.
pub const LOG_BYTES_MIN: u64 = 8 << 20;
/// Smallest table of recent writes of the store, in bytes: on a small disk it is half of the log.
pub const MEMTABLE_BYTES_MIN: usize = 4 << 20;
/// Smallest size at which a blob file of the store is closed, in bytes: on a small disk it is a quarter of the log.
pub const BLOB_FILE_BYTES_MIN: u64 = 2 << 20;
/// A segment of the log is one part in this many of the log.
pub const LOG_SEGMENTS: u64 = 4;
/// The log is kept for followers that are behind up to so many times its size; beyond it they fetch the state ...
pub const LOG_KEPT_FACTOR: u64 = 2;
/// ... and for those only that were heard from within this: several heartbeats may get lost, and a process may be started anew.
pub const FOLLOWER_SILENT_MAX: Duration = Duration::from_secs(5);
/// The log behind a state that is being fetched is kept up to so many times its size ...
pub const LOG_FETCHED_FACTOR: u64 = 8;
/// ... but it takes no more than one part in this many of the room that is never granted.
pub const LOG_RESERVE_PART: u64 = 4;
/// The pace of Raft's clock, where there are other replicas to hear from.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks without a leader after which a replica asks for votes.
pub const ELECTION_TICKS: usize = 14;
/// Ticks between heartbeats of a leader.
pub const HEARTBEAT_TICKS: usize = 3;
/// Ticks between a leader's questions whether it is still followed.
pub const LEASE_TICKS: u64 = 2;
/// How long the answers are good for: less than the shortest time in which another can be elected, [`TICK`] times
/// [`ELECTION_TICKS`], by more than clocks may drift in it.
pub const LEASE: Duration = Duration::from_millis(1100);
/// How long a request waits for a leader whose followers are slow to answer.
pub const LEASE_PATIENCE: Duration = Duration::from_millis(800);
/// Questions that may be under way.
pub const QUESTIONS_MAX: usize = 64;
/// A new replica gets a vote when it is at most this many entries behind.
pub const CAUGHT_UP_ENTRIES: u64 = 256;
/// Messages of other replicas that may wait; more are dropped, as a network may drop them.
pub const MESSAGES_WAITING_MAX: usize = 1024;
/// How long a replica that is shut down waits for another to take the lead.
pub const TRANSFER_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a state that are fetched at a time.
pub const STATE_PAGE_BYTES: usize = 2 << 20;
/// A state that took long to fetch is brought up to date before it is used, so often at most: each time takes as long as the group
/// has written in the time before. Where writing is half as fast as fetching, it is enough for states of 128 times what is kept of the log.
pub const FETCH_ROUNDS_MAX: usize = 8;
/// States that a replica gives to others at the same time.
pub const CHECKPOINTS_MAX: usize = 2;
/// A state that is not fetched from for this long is not needed any more.
pub const CHECKPOINT_IDLE_MAX: Duration = Duration::from_secs(60);
/// ... and after this it makes way for another: whoever began to fetch it has died or been cut off, and is likely to be the one that asks.
pub const CHECKPOINT_ABANDONED_AFTER: Duration = Duration::from_secs(10);
/// Room that a session is assumed to hold until it says so to a new leader, in bytes.
pub const ADOPTED_ROOM_BYTES: u64 = 256 << 20;
/// How long a request waits for a new leader to learn which sessions there are.
pub const ADOPTION_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of entries in one message to another replica.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Messages under way to one replica.
pub const MESSAGES_IN_FLIGHT_MAX: usize = 64;
/// Longest time that an opening server takes to replay its log before it reports that something is wrong.
pub const REPLAY_MAX: Duration = Duration::from_secs(600);

/// A session renews at least this often.
pub const RENEW: Duration = Duration::from_secs(15);
/// A session that others wait for and that has been silent for this long is ended.
pub const SESSION_DEAD_AFTER: Duration = Duration::from_secs(10);
/// A session of an earlier run of its machine is ended when that says so, if it has been silent for this long: longer than two polls of a
/// client, which renew it, and shorter than any machine takes to start.
pub const REBOOT_SILENCE: Duration = Duration::from_secs(4);
/// Other sessions of its machine that a new session is told of.
pub const SIBLINGS_MAX: usize = 256;
/// A client may use what it caches for this part of that time after it was last answered: the rest is for the difference of two clocks
/// and for having its kernel drop everything.
pub const LEASE_PART: (u32, u32) = (4, 5);
/// A session that renews but does not give back what it was asked for is ended after this long.
pub const RECALL_MAX: Duration = Duration::from_secs(60);
/// A session that nobody waits for and that has been silent for this long is ended.
pub const SESSION_FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// How long a question for recalls is kept if there are none.
pub const POLL_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody has waited for too long.
pub const LEASE_TICK: Duration = Duration::from_millis(50);
/// Threads on which requests go on that have waited for other clients.
pub const LEASE_THREADS: usize = 4;
/// A look-up whose answer keeps growing with what it finds begins anew this often.
pub const ASK_ROUNDS_MAX: u32 = 64;
/// Directories in one request of somebody who walks through a tree.
pub const WALK_DIRS_MAX: usize = 256;
/// Sub-directories of what is listed that others are asked for at once: the recall must fit a message.
pub const WALK_RECALLS_MAX: usize = 4096;
/// A directory that was changed within this time is in use: nobody is asked for it who has it, before somebody really looks at it. Clocks of machines
/// that differ by more make that guess a worse one, and nothing else.
pub const LEFT_ALONE_AFTER: Duration = Duration::from_secs(1);
/// Wants in one request, and names in one of them: what one operation changes.
pub const WANTS_MAX: usize = 16;
/// Requests for locks that wait for all sessions to have declared what they hold; more are refused, and come again.
pub const LOCKS_PUT_OFF_MAX: usize = 65_536;
/// Requests for locks that are remembered as cancelled before they arrived: bounds memory. One that is not remembered goes on waiting, and is
/// cancelled by the end of its session.
pub const LOCK_CANCELS_MAX: usize = 65_536;
/// Inode numbers that a session begins with.
pub const INODES_AT_START: u64 = 1 << 16;

/// Room that is kept free on a disk, one part in this many: the log, the store's compactions and removals need it
/// when everything else is full.
pub const RESERVE_PART: u64 = 20;
/// The least room kept free, in bytes.
pub const RESERVE_BYTES_MIN: u64 = 48 << 20;
/// The most room kept free, in bytes.
pub const RESERVE_BYTES_MAX: u64 = 2 << 30;
/// A session that would be left with less than this, in bytes, is short of room: before it hears so, what was deleted is given back.
pub const SHORT_BYTES: u64 = 8 << 20;
/// How long a client that asks for room on a full volume waits for what has just been deleted to be given back.
pub const RECLAIM_WAIT_MAX: Duration = Duration::from_secs(5);
/// The store may take one part in this many of the reserve while it moves what lives out of blob files: as much again may be on
/// its way in a compaction of its own, and a third is for everything else.
pub const RECLAIM_RESERVE_PART: u64 = 3;
/// The store collects garbage, even if room is not short, when it makes up this share of all blobs, in percent.
pub const BLOB_GARBAGE_PERCENT_MAX: u64 = 50;
/// How long the store works on giving back room at a time; then somebody may want its attention.
pub const RECLAIM_TIME_MAX: Duration = Duration::from_secs(20);
/// After room was given back, that is not done again for this many times as long as it took: a full volume that is written to
/// must not spend its days compacting.
pub const RECLAIM_REST_FACTOR: u32 = 1;
/// Where nothing was removed since, giving back is tried again after this long: something may have been overwritten.
pub const RECLAIM_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Bytes of room that a created inode is assumed to take, for statfs(2).
pub const INODE_ROOM_BYTES: u64 = 1024;

/// Extents that one command takes off a dead inode: about a millisecond of applying.
pub const REAP_EXTENTS: u32 = 512;
/// Dead inodes read from the queue at a time.
pub const REAP_PAGE: usize = 64;
/// Blocks deleted and reported collected at a time.
pub const COLLECT_PAGE: usize = 256;
/// Copies on bricks looked up in one go: the healer waits meanwhile.
pub const SWEEP_PAGE: usize = 4096;
/// What was swept is swept once more after this long: a block that was given up on may still be on its way to a slow brick, but no longer than
/// whoever stores it waits for a brick, a connection takes to break, and a disk to be found broken.
pub const SWEEP_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// When the bricks fail, nothing is swept for this long: asking them may have taken half of it, and other work is to have most of the time.
pub const SWEEP_RETRY_AFTER: Duration = Duration::from_secs(60);
/// All sessions are swept this often even if there is no reason to: what a brick took later than that, and what else was left there. It may take
/// a while, as the bricks list all that they have; and what it finds does no harm but for the room it takes.
pub const SWEEP_EVERY: Duration = Duration::from_secs(6 * 3600);
/// After a page of a session was swept when all are, the next one waits for this many times as long as that took: at most a fifth of the time of
/// the disks goes into it.
pub const SWEEP_REST_FACTOR: u32 = 4;
/// Candidates for compaction read at a time.
pub const COMPACT_PAGE: usize = 64;
/// Extents of a candidate read at a time.
pub const COMPACT_EXTENTS_PAGE: usize = 4096;
/// Neighbouring extents that are worth one block: fewer gain less than the rewrite costs.
pub const COMPACT_RUN_EXTENTS_MIN: usize = 8;
/// How long a file stays a candidate before it is compacted: whoever is still writing would undo it.
pub const COMPACT_AFTER: Duration = Duration::from_secs(5);
/// Block numbers reserved at a time for compaction.
pub const COMPACT_BLOCK_IDS: u64 = 64;
/// Files of which the compactor remembers since when they are candidates; what is beyond waits for its turn.
pub const COMPACT_REMEMBERED_MAX: usize = 4096;
/// After a piece of compaction the thread rests for this many times as long as it took: at most a third of one disk's time.
pub const COMPACT_REST_FACTOR: u32 = 2;
/// Blocks that were stored on too few bricks are copied after this long: more of them come along.
pub const HEAL_AFTER: Duration = Duration::from_secs(1);
/// Blocks that could not be healed are tried again after this long, or when a brick returns.
pub const HEAL_RETRY: Duration = Duration::from_secs(30);
/// A rebalance that cannot put every block where it should be is tried again so many times, [`HEAL_RETRY`] apart or when a brick returns.
pub const REBALANCE_RETRIES: u32 = 10;
/// All blocks are looked at this often even if no brick has come or gone: a client may have used an old map until after the last look.
pub const HEAL_SURVEY_EVERY: Duration = Duration::from_secs(600);
/// Blocks copied at a time: enough to keep several disks busy, few enough that clients find theirs idle.
pub const HEAL_THREADS: usize = 4;
/// Blocks copied before the log says where they are: at most 128 MiB are done in vain when a leader dies.
pub const HEAL_PAGE: usize = 32;
/// Blocks looked at in one read of the store.
pub const HEAL_READ_PAGE: usize = 1024;
/// Blocks to be healed that are remembered at a time; 16 bytes each.
pub const HEAL_FOUND_MAX: usize = 1 << 18;
/// Blocks whose deletion failed on some brick and is put off. Beyond it they are tried again with the others.
pub const DEFERRED_BLOCKS_MAX: usize = 1 << 20;
/// After a failure of a brick, background work waits this long before it tries again.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Locks that were taken away and are named to the administrator, of each kind: a page or two of text.
pub const CLEARED_LOCKS_MAX: usize = 256;
