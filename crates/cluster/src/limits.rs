//! Limits of a cluster's blocks, each with its reason.

use std::time::Duration;

/// Requests to one brick that are under way at a time: enough to keep a disk and a connection busy, few
/// enough that what is in memory for a brick that has stopped answering stays within this many blocks.
pub const LANE_CALLS_MAX: usize = 12;
/// Requests that wait for their turn at one brick; more are refused as if the brick did not answer.
pub const LANE_QUEUE_MAX: usize = 4096;
/// A thread that serves a brick ends when it has had nothing to do for this long.
pub const LANE_IDLE: Duration = Duration::from_secs(10);

/// A brick that failed is passed over for this long; then it is asked whether it is there again, and used
/// when it says so.
pub const SUSPECT_FOR: Duration = Duration::from_secs(2);
/// A write that has its copies on a majority waits for a slow brick no longer than this; then another takes
/// its place. Far longer than a busy disk takes for a block, and far shorter than the 5 s that an application
/// may be held up.
pub const STORE_HEDGE: Duration = Duration::from_millis(2000);
/// A write that does not come to a majority gives up after this long. The caller tries again.
pub const STORE_WAIT_MAX: Duration = Duration::from_secs(20);
/// A read that has waited for a brick this long asks another one, too.
pub const FETCH_HEDGE: Duration = Duration::from_millis(1000);
/// A read that no brick answers gives up after this long. The caller tries again.
pub const FETCH_WAIT_MAX: Duration = Duration::from_secs(20);
/// Deletions and listings wait for a brick this long; nobody is held up by them.
pub const SURVEY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Free room is asked for anew when it was heard of longer ago than this.
pub const ROOM_AGE_MAX: Duration = Duration::from_secs(1);
/// Whoever asks for the free room waits for a brick this long, and makes do with what it said before.
pub const ROOM_WAIT_MAX: Duration = Duration::from_millis(1500);
/// A brick with less room than this, in bytes, gets no more blocks if another can take them: what is on its
/// way to it should still fit.
pub const ROOM_LOW_BYTES: u64 = 128 << 20;
/// How fast a brick is scrubbed, in bytes per second: a terabyte in a day and a half, a few percent of a slow
/// disk.
pub const SCRUB_BYTES_PER_SECOND: u64 = 8 << 20;
/// A brick is not scrubbed in the first minutes after it was opened, when there is other work.
pub const SCRUB_AFTER: Duration = Duration::from_secs(600);
/// A brick that was scrubbed is left alone for this long.
pub const SCRUB_REST: Duration = Duration::from_secs(3600);
/// Blocks that are being repaired because a reader found a damaged copy; what is found beyond is repaired
/// when it is read again.
pub const REPAIRS_MAX: usize = 4;
