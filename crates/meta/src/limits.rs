//! Limits of a metadata server, each with its reason.

use std::time::Duration;

/// Bytes of proposals that wait for the log; beyond it, callers that propose wait. A few disk flushes' worth.
pub const PROPOSED_BYTES_MAX: usize = 32 << 20;
/// The longest proposal, in bytes. With its headers it has to fit into a frame of the network, or it can
/// never be replicated. Several times a batch.
pub const PROPOSAL_BYTES_MAX: usize = 6 << 20;
/// Operations of one batch: ten times what mounts send. One that takes two bytes in a message takes hundreds
/// when it is decoded, on each replica.
pub const BATCH_OPS_MAX: u64 = 65_536;
/// Proposals that may be in flight.
pub const PROPOSALS_MAX: usize = 4096;
/// Bytes of proposals that share one flush of the log: enough to keep a disk busy, little enough that the
/// first of them does not wait for long.
pub const GROUP_BYTES_MAX: usize = 8 << 20;
/// Committed entries that wait to be applied, in bytes. Beyond it the driver waits for the store, heartbeats
/// included. More than clients can have in flight.
pub const APPLYING_BYTES_MAX: usize = 2 * PROPOSED_BYTES_MAX;
/// Log entries kept in memory between being written and being applied, in bytes.
pub const LOG_CACHE_BYTES: usize = 32 << 20;
/// A replica's cache of log entries takes at most the process's budget of memory divided by this.
pub const LOG_CACHE_MEMORY_PART: usize = 16;
/// The log is truncated when it has grown by this much since the store was last flushed, in bytes. Bounds
/// what a restart has to replay. On a small disk it is a part of that instead, see [`LOG_DISK_PART`].
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// The log takes at most one part in this many of its disk.
pub const LOG_DISK_PART: u64 = 16;
/// The log may take at least this on any disk, in bytes: a few of the largest batches.
pub const LOG_BYTES_MIN: u64 = 8 << 20;
/// Smallest memtable of the store, in bytes: on a small disk it is half of the log.
pub const MEMTABLE_BYTES_MIN: usize = 4 << 20;
/// Smallest size at which a blob file of the store is closed, in bytes: on a small disk it is a quarter of
/// the log.
pub const BLOB_FILE_BYTES_MIN: u64 = 2 << 20;
/// A segment of the log is one part in this many of the log.
pub const LOG_SEGMENTS: u64 = 4;
/// The log is kept for followers that are behind, up to this multiple of its usual size; beyond it they fetch
/// the state.
pub const LOG_KEPT_FACTOR: u64 = 2;
/// The log is kept only for followers that were heard from within this time: several heartbeats may get lost,
/// and a process may be restarted.
pub const FOLLOWER_SILENT_MAX: Duration = Duration::from_secs(5);
/// The log after a state that is being fetched is kept, up to this multiple of its usual size.
pub const LOG_FETCHED_FACTOR: u64 = 8;
/// The log kept for fetched states takes no more than one part in this many of the reserve.
pub const LOG_RESERVE_PART: u64 = 4;
/// The tick of Raft's clock, where the group has several replicas.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks without a leader after which a replica starts an election.
pub const ELECTION_TICKS: usize = 14;
/// Ticks between heartbeats of a leader.
pub const HEARTBEAT_TICKS: usize = 3;
/// Ticks between a leader's quorum checks (Raft's `ReadIndex`), which renew its lease.
pub const LEASE_TICKS: u64 = 2;
/// How long a leader's lease lasts after a quorum check began. Shorter than the shortest time in which
/// another leader can be elected, [`TICK`] times [`ELECTION_TICKS`], by more than clocks may drift in it.
pub const LEASE: Duration = Duration::from_millis(1100);
/// How long a request waits for a leader to renew its lease.
pub const LEASE_PATIENCE: Duration = Duration::from_millis(800);
/// Quorum checks that may be in flight.
pub const QUORUM_CHECKS_MAX: usize = 64;
/// A learner gets a vote when it is at most this many entries behind.
pub const CAUGHT_UP_ENTRIES: u64 = 256;
/// Raft messages that may wait; more are discarded, as a network may lose them.
pub const MESSAGES_WAITING_MAX: usize = 1024;
/// How long a replica that is shut down waits for another to take the lead.
pub const TRANSFER_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a state that are fetched at a time.
pub const STATE_PAGE_BYTES: usize = 2 << 20;
/// How often at most a state that took long to fetch is brought up to date before it is used. Each round
/// takes as long as fetching what the group has written during the last one. If writing is half as fast as
/// fetching, it is enough for states of 128 times what is kept of the log.
pub const FETCH_ROUNDS_MAX: usize = 8;
/// Checkpoints that a replica serves at the same time.
pub const CHECKPOINTS_MAX: usize = 2;
/// A checkpoint that was not fetched from for this long is deleted.
pub const CHECKPOINT_IDLE_MAX: Duration = Duration::from_secs(60);
/// A checkpoint that was not fetched from for this long is replaced when a new one is requested: its fetcher
/// has died or was cut off, and is probably the sender of that request.
pub const CHECKPOINT_ABANDONED_AFTER: Duration = Duration::from_secs(10);
/// Room that a new leader assumes a session to hold until the session reports it, in bytes.
pub const ADOPTED_ROOM_BYTES: u64 = 256 << 20;
/// How long a request waits until a new leader knows the sessions.
pub const ADOPTION_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of entries in one message to another replica.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Messages in flight to one replica.
pub const MESSAGES_IN_FLIGHT_MAX: usize = 64;
/// Longest time that an opening server takes to replay its log before it reports an error.
pub const REPLAY_MAX: Duration = Duration::from_secs(600);

/// A session renews its lease at least this often.
pub const RENEW: Duration = Duration::from_secs(15);
/// A session that blocks another and has been silent for this long is fenced.
pub const SESSION_DEAD_AFTER: Duration = Duration::from_secs(10);
/// A session of an earlier boot of a machine is fenced when a client of a later boot opens a session, if it
/// has been silent for this long. Longer than two polls of a client, which renew it, and shorter than any
/// machine takes to boot.
pub const REBOOT_SILENCE: Duration = Duration::from_secs(4);
/// Other sessions of the same machine that are listed in the reply to a new session.
pub const SIBLINGS_MAX: usize = 256;
/// The part of [`SESSION_DEAD_AFTER`] for which a client may use its caches after a renewal. The rest is for
/// clock drift and for invalidating its kernel's caches.
pub const LEASE_PART: (u32, u32) = (4, 5);
/// A session that renews but does not acknowledge a recall is fenced after this long.
pub const RECALL_MAX: Duration = Duration::from_secs(60);
/// A session that blocks no other and has been silent for this long is fenced.
pub const SESSION_FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// How long a long-poll is kept open if there are no recalls.
pub const POLL_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often waiters are checked for timeouts.
pub const LEASE_TICK: Duration = Duration::from_millis(50);
/// Threads that resume requests that have waited for other clients.
pub const LEASE_THREADS: usize = 4;
/// A lookup whose set of covers grows while it waits is restarted at most this often.
pub const READ_ROUNDS_MAX: u32 = 64;
/// Directories in one readahead request of a client that walks a tree.
pub const WALK_DIRS_MAX: usize = 256;
/// Subdirectories of a listing that are recalled from other clients in one request: the recall must fit a
/// message.
pub const WALK_RECALLS_MAX: usize = 4096;
/// A directory that was changed within this time is in use: readahead does not recall it from its holder,
/// only a real lookup does. Clock differences between machines beyond this make the guess worse, and nothing
/// else.
pub const LEFT_ALONE_AFTER: Duration = Duration::from_secs(1);
/// Wants in one request, and names in one want: what one operation changes.
pub const WANTS_MAX: usize = 16;
/// Lock requests that wait until all sessions have reclaimed their locks; more are refused, and are retried.
pub const LOCKS_PUT_OFF_MAX: usize = 65_536;
/// Lock requests that are remembered as cancelled before they arrived: bounds memory. A forgotten one stays
/// queued, and is cancelled by the end of its session.
pub const LOCK_CANCELS_MAX: usize = 65_536;
/// Inode numbers that a session is granted when it begins.
pub const INODES_AT_START: u64 = 1 << 16;

/// Free space that is reserved on a disk, one part in this many: the log, the store's compactions and
/// removals need it when everything else is full.
pub const RESERVE_PART: u64 = 20;
/// The smallest reserve, in bytes.
pub const RESERVE_BYTES_MIN: u64 = 48 << 20;
/// The largest reserve, in bytes.
pub const RESERVE_BYTES_MAX: u64 = 2 << 30;
/// A session that would be left with less than this, in bytes, is short of room: before it is refused,
/// deleted space is reclaimed.
pub const SHORT_BYTES: u64 = 8 << 20;
/// How long a client that asks for room on a full volume waits until deleted space is reclaimed.
pub const RECLAIM_WAIT_MAX: Duration = Duration::from_secs(5);
/// The store may take one part in this many of the reserve while it moves live records out of blob files. A
/// compaction of its own may take as much again, and a third is for everything else.
pub const RECLAIM_RESERVE_PART: u64 = 3;
/// The store collects garbage, even if room is not short, when it makes up this share of all blobs, in
/// percent.
pub const BLOB_GARBAGE_PERCENT_MAX: u64 = 50;
/// How long the store reclaims space at a time; then other work of its thread gets a turn.
pub const RECLAIM_TIME_MAX: Duration = Duration::from_secs(20);
/// After space was reclaimed, that is not done again for this many times as long as it took: a full volume
/// that is written to must not compact all the time.
pub const RECLAIM_REST_FACTOR: u32 = 1;
/// If nothing was removed since, reclaiming is tried again after this long: records may have been
/// overwritten.
pub const RECLAIM_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Bytes of room that a created inode is assumed to take, for statfs(2).
pub const INODE_ROOM_BYTES: u64 = 1024;

/// Extents that one command removes from a dead inode: about a millisecond of applying.
pub const REAP_EXTENTS: u32 = 512;
/// Dead inodes read from the queue at a time.
pub const REAP_PAGE: usize = 64;
/// Blocks deleted and recorded as collected at a time.
pub const COLLECT_PAGE: usize = 256;
/// Copies on bricks looked up at a time: the healer waits meanwhile.
pub const SWEEP_PAGE: usize = 4096;
/// A swept session is swept once more after this long. A write that its writer gave up on may still be in
/// flight to a slow brick. It arrives within the timeouts of a brick request, of a broken connection and of a
/// failing disk.
pub const SWEEP_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// While bricks are to become empty, all sessions are swept this often.
pub const SWEEP_SOON_AFTER: Duration = Duration::from_secs(15);
/// When bricks fail, nothing is swept for this long: the failing requests may have taken half of it, and
/// other work is to have most of the time.
pub const SWEEP_RETRY_AFTER: Duration = Duration::from_secs(60);
/// All sessions are swept this often even without a reason: it finds blocks that a brick stored later than
/// that, and anything else left there. It is rare because the bricks list all blocks, and what it finds only
/// takes space.
pub const SWEEP_EVERY: Duration = Duration::from_secs(6 * 3600);
/// After each page of a full sweep, the sweeper rests for this many times as long as the page took: at most a
/// fifth of the disks' time goes into it.
pub const SWEEP_REST_FACTOR: u32 = 4;
/// Candidates for compaction read at a time.
pub const COMPACT_PAGE: usize = 64;
/// Extents of a candidate read at a time.
pub const COMPACT_EXTENTS_PAGE: usize = 4096;
/// Neighbouring extents that are worth one block: fewer gain less than the rewrite costs.
pub const COMPACT_RUN_EXTENTS_MIN: usize = 8;
/// How long a file stays a candidate before it is compacted: a writer that is still active would undo it.
pub const COMPACT_AFTER: Duration = Duration::from_secs(5);
/// Block numbers reserved at a time for compaction.
pub const COMPACT_BLOCK_IDS: u64 = 64;
/// Files for which the compactor remembers when they became candidates; more have to wait.
pub const COMPACT_REMEMBERED_MAX: usize = 4096;
/// After a step of compaction the thread rests for this many times as long as the step took: at most a third
/// of one disk's time.
pub const COMPACT_REST_FACTOR: u32 = 2;
/// Blocks that were stored on too few bricks are copied after this long, in order to collect several.
pub const HEAL_AFTER: Duration = Duration::from_secs(1);
/// Blocks that could not be healed are tried again after this long, or when a brick returns.
pub const HEAL_RETRY: Duration = Duration::from_secs(30);
/// A rebalance that cannot move every block is retried this many times, [`HEAL_RETRY`] apart or when a brick
/// returns.
pub const REBALANCE_RETRIES: u32 = 10;
/// All blocks are surveyed this often even if no brick has come or gone: a client may have used an old
/// cluster map until after the last survey.
pub const HEAL_SURVEY_EVERY: Duration = Duration::from_secs(600);
/// Blocks copied in parallel by each node: enough to keep several disks busy, few enough that clients find
/// theirs idle.
pub const HEAL_THREADS: usize = 8;
/// Blocks copied before the log records their places: at most 128 MiB of copies are wasted when a leader
/// dies.
pub const HEAL_PAGE: usize = 32;
/// How often the mover between tiers looks for work, and gets the counts of reads from bricks.
pub const TIER_EVERY: Duration = Duration::from_secs(1);
/// Blocks that are planned to be moved at a time; planning again takes the latest state into account.
pub const TIER_PLAN_MAX: usize = 1024;
/// Blocks of the index of the hot tier that are read for one plan.
pub const TIER_LOOK_MAX: usize = 8192;
/// A block that was used within so many seconds is not moved, nor one of a file that was changed within them:
/// it may be used again at once.
pub const TIER_REST_S: u64 = 10;
/// A last use that is this many seconds in the future is due to a wrong clock.
pub const CLOCK_AHEAD_MAX_S: u64 = 3600;
/// Reads of a hot block are noted when its last use, as far as noted, is older than one part in this many of
/// the time after which it would leave the hot tier: the log is spared the rest.
pub const TIER_TOUCH_PART: u64 = 8;
/// Reads of cold blocks are counted together within this many seconds.
pub const HEAT_WINDOW_S: u64 = 3600;
/// Cold blocks whose reads are counted; about 40 bytes each.
pub const HEAT_BLOCKS_MAX: usize = 1 << 18;
/// All files below pins are visited this often, for blocks that are on the wrong tier: of files that were
/// moved to a pinned directory, or stored by a mount that did not know the pin.
pub const PIN_WALK_EVERY: Duration = Duration::from_secs(600);
/// They are visited again after this long if some blocks could not be moved.
pub const PIN_WALK_RETRY: Duration = Duration::from_secs(15);
/// What is pinned hot counts as used so many seconds in the future; renewed when half of that is left. After
/// the pin is removed, it leaves the hot tier no sooner.
pub const PIN_USED_AHEAD_S: u64 = 86_400;
/// Names of a directory that are read at a time, in bytes of a reply.
pub const PIN_LIST_BYTES: usize = 64 << 10;
/// Blocks that are known to be pinned cold; about 24 bytes each. Reads may bring others to the hot tier,
/// until the next visit.
pub const PINNED_COLD_MAX: usize = 1 << 20;
/// Directories that a search for policies remembers; about 48 bytes each.
pub const POLICY_PARENTS_MAX: usize = 1 << 16;
/// Records of files that a walk for schemes reads at once.
pub const SCHEME_READ_PAGE: usize = 1024;
/// Blocks of several extents that a walk for schemes remembers; about 24 bytes each. Further ones keep the
/// scheme that they have.
pub const SCHEME_SHARED_MAX: usize = 1 << 20;
/// Blocks on the hot tier that are counted for a report: a second or so.
pub const HOT_COUNT_MAX: u64 = 1 << 20;
/// Records of blocks read from the store at a time.
pub const HEAL_READ_PAGE: usize = 1024;
/// Blocks to be healed that are remembered at a time, of each rank of urgency; 16 bytes each, so 4 MiB.
pub const HEAL_FOUND_MAX: usize = 1 << 18;
/// Groups of which a walk over all blocks remembers how endangered they are; about 64 bytes each, so 4 MiB.
/// Blocks in shards on many bricks have nearly as many groups as there are blocks.
pub const HEAL_GROUPS_MAX: usize = 1 << 16;
/// Blocks that lack copies or shards are healed in the order of the losses that they still survive, as long
/// as these are fewer than this; the others follow in no order. Schemes in use survive up to four losses.
pub const HEAL_RANKS: usize = 5;
/// Unreadable blocks that a report names; the others are counted.
pub const UNREADABLE_NAMED_MAX: usize = 20;
/// Blocks whose deletion failed on some brick and is deferred. Beyond it they are retried with the next
/// batch.
pub const DEFERRED_BLOCKS_MAX: usize = 1 << 20;
/// After a failure of a brick, background work waits this long before it tries again.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Removed locks that are named to the administrator, of each kind: a page or two of text.
pub const CLEARED_LOCKS_MAX: usize = 256;
/// Names that are read to find the paths of inodes, when these are shown to people: a second or so.
pub const PATH_NAMES_MAX: usize = 1_000_000;
/// Directories on a path that is shown to people; the kernel takes paths of 4096 bytes.
pub const PATH_DEPTH_MAX: usize = 2048;
/// A client's request that takes longer is logged. Mounts log operations from 5 s on unless told
/// otherwise; so if the server was the reason, its log says so.
pub const SLOW_REQUEST: Duration = Duration::from_secs(2);
/// Slow requests that are logged in each [`SLOW_LOGGED_PERIOD`]; others are counted.
pub const SLOW_LOGGED_MAX: u64 = 20;
/// The period in which at most [`SLOW_LOGGED_MAX`] slow requests are logged.
pub const SLOW_LOGGED_PERIOD: Duration = Duration::from_secs(60);
/// Lines of each part of a state dump: some pages.
pub const DUMP_LINES_MAX: usize = 256;
/// Descriptions of ended sessions that are kept until they are fetched, which is every second.
pub const ENDED_KEPT_MAX: usize = 256;
