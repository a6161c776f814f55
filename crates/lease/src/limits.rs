//! Limits of leases and locks, each with its reason.

/// Locks that a session may hold, its waiting requests counted as [`LOCKS_PER_WAITER`] each; more are refused
/// with `ENOLCK`. A busy mail server or database holds some thousand; a session at this limit costs the
/// leader about 2 MB.
pub const LOCKS_PER_SESSION_MAX: usize = 16_384;
/// Locks kept free for a waiting request, so that it can always be granted: a lock may become three when
/// another is put in its middle.
pub const LOCKS_PER_WAITER: usize = 2;
/// Requests that may wait for locks of one file; more are refused with `ENOLCK`. Each is a blocked thread of
/// some client, and each is checked when a lock of the file is released.
pub const WAITERS_PER_INODE_MAX: usize = 4096;

/// Replies of one session that may be in flight at once: more than any client has requests.
pub const ANSWERED_MAX: usize = 16_384;
