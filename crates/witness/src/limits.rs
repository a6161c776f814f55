//! Limits and defaults, with the reason for each.

use std::time::Duration;

/// Configurations (ways in which the calls so far may have taken place) that the checker keeps at most.
/// Beyond it the answer is "too hard", rather than a machine without memory. A run needs tens.
pub const CONFIGS_MAX: usize = 200_000;

/// Attempts to leave calls out of a segment that has no explanation, to make it shorter for the reader.
pub const SHRINK_ATTEMPTS_MAX: usize = 400;

/// Time spent on those attempts.
pub const SHRINK_TIME_MAX: Duration = Duration::from_secs(10);

/// Facts of one observation that the checker follows, one bit each.
pub const ATOMS_MAX: usize = 64;

/// Words of content that the model keeps of a file; runs stay far below.
pub const MODEL_WORDS_MAX: u64 = 4096;

/// Words after which a worker truncates what it finds, so that contents stay readable.
pub const FILE_WORDS_GOAL: u64 = 6;

/// Bytes that a worker asks for when it reads a file: one page.
pub const READ_BYTES: usize = 4096;

/// Open files of each worker.
pub const SLOTS: u8 = 2;

/// Calls that one worker makes between two pauses. Short rounds keep segments short, so that a refused one
/// can be read.
pub const ROUND_CALLS: std::ops::RangeInclusive<u32> = 4..=24;

/// The longest think time between two calls of a slow round, in microseconds: long enough for a cache to be
/// filled, for a lease to be granted and recalled.
pub const THINK_US_MAX: u32 = 2_000;

/// How long a run works in one tree before all workers move on to a fresh one. A tree collects what no later
/// call looks at, and the trees of a run can be checked in parallel.
pub const TREE_MS: u64 = 500;

/// How long a round waits for its slowest worker before the rest go on without it.
pub const ROUND_WAIT: Duration = Duration::from_secs(2);

/// How long after the end of a run a worker may take to finish its call before it counts as hung.
pub const HANG_GRACE: Duration = Duration::from_secs(30);

/// How long to wait for a killed worker to be gone. One that is stuck in a kernel is left behind.
pub const KILL_WAIT: Duration = Duration::from_secs(2);

/// How long making or removing the tree of a run may take.
pub const PREPARE_WAIT: Duration = Duration::from_secs(60);

/// How long a new directory may take to be seen through the other directories before they count as different
/// volumes.
pub const SAME_VOLUME_WAIT: Duration = Duration::from_secs(5);

/// How long a change may take to be seen before it counts as never seen.
pub const VISIBLE_WAIT: Duration = Duration::from_secs(5);

/// Changes never seen after which `visible` gives up.
pub const NEVER_MAX: u32 = 3;

/// How long `visible` may take besides.
pub const PROBE_WAIT: Duration = Duration::from_secs(120);

/// One turn of so many also looks for the file of the turn before. It is odd, so that every directory does.
pub const TURNS_PER_LOOK: u64 = 7;

/// Names that hammering workers use: so few that most calls conflict.
pub const HAMMER_NAMES: u32 = 40;

/// How long the thread that measures scheduling delay sleeps: long enough to add no load.
pub const LATENESS_NAP: Duration = Duration::from_millis(10);

/// Problems that are printed one by one.
pub const WRONG_SHOWN: usize = 20;

/// What a dying mount may have acknowledged and not written back yet. Older changes count, synced or not.
pub const UNSYNCED_MAX: Duration = Duration::from_secs(2);

/// What a mount may have acknowledged and not written back when it is cut off from its servers and goes on
/// for a while before it stops answering.
pub const LAPSE_MAX: Duration = Duration::from_secs(10);

/// Time spent on finding out how much a mount may have lost. It is usually very little, and found at once.
pub const CUTS_TIME_MAX: Duration = Duration::from_secs(60);

/// Errors of calls on a mount whose file system dies or loses something.
pub const DEATH_ERRNOS: &[i32] =
    &[libc::EIO, libc::ENOTCONN, libc::ESTALE, libc::ECONNABORTED, libc::ENODEV, libc::ESHUTDOWN];
