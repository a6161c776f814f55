//! Limits of leases and locks, each with its reason.

/// Locks that a session may hold, its waiting requests counted as [`LOCKS_PER_WAITER`] each; more are refused
/// with `ENOLCK`. A busy mail server or database holds some thousand; a session at this limit costs the
/// leader about 2 MB.
pub const LOCKS_PER_SESSION_MAX: usize = 16_384;
/// Room kept for a waiting request, so that it can be granted whenever its turn comes: a lock may become
/// three when another is put in its middle.
pub const LOCKS_PER_WAITER: usize = 2;
/// Requests that may wait for locks of one file; more are refused with `ENOLCK`. Each is a blocked thread of
/// some client, and each is looked at when a lock of the file is released.
pub const WAITERS_PER_INODE_MAX: usize = 4096;

/// Answers of one session that may be under way at once: more than any client has requests.
pub const ANSWERED_MAX: usize = 16_384;
