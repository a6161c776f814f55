//! Limits of a cluster's blocks, each with its reason.

use std::time::Duration;

/// Requests to one brick that are in flight at a time. Enough to keep a disk and a connection busy; few
/// enough that a brick that has stopped answering keeps no more than this many blocks in memory. As many
/// reads for which no thread waits may be in flight besides.
pub const LANE_CALLS_MAX: usize = 12;
/// Requests queued for one brick; more are refused as if the brick did not answer.
pub const LANE_QUEUE_MAX: usize = 4096;
/// A thread that serves a brick ends when it has been idle for this long.
pub const LANE_IDLE: Duration = Duration::from_secs(10);

/// A brick that failed is skipped for this long; then it is probed, and used again when it answers.
pub const SUSPECT_FOR: Duration = Duration::from_secs(2);
/// A write that is on a majority waits for a slow brick no longer than this; then another takes its place.
/// Far longer than a busy disk takes for a block, and far shorter than the 5 s that an application may be
/// blocked.
pub const STORE_HEDGE: Duration = Duration::from_millis(2000);
/// A write that does not reach a majority fails after this long. The caller retries.
pub const STORE_WAIT_MAX: Duration = Duration::from_secs(20);
/// A read that has waited for a brick this long asks another one, too.
pub const FETCH_HEDGE: Duration = Duration::from_millis(1000);
/// A read that no brick answers fails after this long. The caller retries.
pub const FETCH_WAIT_MAX: Duration = Duration::from_secs(20);
/// Deletions and listings wait for a brick this long; no client waits for them.
pub const SURVEY_WAIT_MAX: Duration = Duration::from_secs(30);
/// A brick is probed again when its reported free space is older than this.
pub const ROOM_AGE_MAX: Duration = Duration::from_secs(1);
/// A request for the free space waits for a brick this long, and then uses the last reported value.
pub const ROOM_WAIT_MAX: Duration = Duration::from_millis(1500);
/// A brick with less free space than this, in bytes, gets no more blocks if another can take them: writes in
/// flight to it should still fit.
pub const ROOM_LOW_BYTES: u64 = 128 << 20;
/// A brick of the hot tier with less than one part in this many free, or less than [`ROOM_LOW_BYTES`], takes
/// no new blocks: they go to the cold tier.
pub const HOT_FREE_PART: u64 = 16;
/// A new block that the hot tier does not take in this time is stored on the cold one: together they take
/// less than the 5 s that an application may be blocked, if only the hot one fails.
pub const HOT_STORE_WAIT_MAX: Duration = Duration::from_millis(3000);
/// How fast a brick is scrubbed, in bytes per second: a terabyte in a day and a half, a few percent of a slow
/// disk.
pub const SCRUB_BYTES_PER_SECOND: u64 = 8 << 20;
/// A brick is not scrubbed in the first minutes after it was opened, when there is other work.
pub const SCRUB_AFTER: Duration = Duration::from_secs(600);
/// Pause after a brick was scrubbed.
pub const SCRUB_REST: Duration = Duration::from_secs(3600);
/// A block shorter than this, in bytes, is stored as copies in a volume of shards, too. Each shard costs a
/// file with a page of header, and a write a request to each of its bricks.
pub const SHARDED_BYTES_MIN: u64 = 128 << 10;
/// Coders that are kept for the next block. Each keeps about 12 MiB.
pub const CODERS_KEPT_MAX: usize = 2;
/// Delegated copies that a node makes at a time; more are refused, and made by the leader. Each takes up to
/// 12 MiB.
pub const DELEGATED_COPIES_MAX: usize = 16;
/// Repairs in progress of damaged copies that readers found; further ones are repaired when they are read
/// again.
pub const REPAIRS_MAX: usize = 4;
