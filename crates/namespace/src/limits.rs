//! Limits of the namespace. Those that clients must know too stand in [`shoal_types::limits`].

use shoal_types::limits::INLINE_BYTES_DEFAULT;

/// Steps that a walk from a directory up to the root may take. No real path comes near; a damaged volume
/// whose directories form a ring must end in an error and not in a loop.
pub const ANCESTORS_MAX: u32 = 1 << 20;

/// Neighbouring inline extents are joined up to this many bytes. A file that is appended to in small pieces
/// stays one record; a longer one would be copied and stored again too often. Both sides of the wire must
/// agree on it, so it is no setting.
pub const INLINE_JOIN_BYTES_MAX: u64 = INLINE_BYTES_DEFAULT as u64;

/// A dying inode with more extents than this is taken apart in steps, so that no single command holds up the
/// others.
pub const DESTROY_EXTENTS_MAX: u64 = 256;

/// Holds that one command drops when their session ends, and inodes that it destroys with them at most; the
/// rest is left to the next.
pub const END_HOLDS_MAX: usize = 256;

/// Inodes that one command may note as held: each is a record to read and to write.
pub const HOLD_INODES_MAX: usize = 4096;

/// A file is a candidate for compaction from this many extents on: below it, merging gains nothing worth a
/// rewrite.
pub const COMPACT_EXTENTS_MIN: u64 = 64;

/// ... and if its extents are not longer than this on the average, in bytes: an eighth of a block costs a
/// disk little more per byte than a whole one.
pub const COMPACT_EXTENT_BYTES_MEAN_MAX: u64 = 512 << 10;

/// Separate ranges of inode numbers that one session may hold. Adjacent grants count as one; a session that
/// alternates with others asks for larger ones long before it gets here, and loses the oldest then.
pub const SESSION_RANGES_MAX: usize = 1024;

/// Inode numbers that one command may grant.
pub const GRANT_INODES_MAX: u64 = 1 << 20;

/// Content that comes along with a name or inode, in bytes: beyond this, extents are asked for when they are
/// needed.
pub const RECORD_CONTENT_BYTES_MAX: u64 = 256 << 10;

/// Extents that come along with a name or inode.
pub const RECORD_EXTENTS_MAX: u64 = 64;

/// About how long a page of extents may be, in bytes: far from the longest message, whatever is inline of
/// them.
pub const EXTENTS_BYTES_MAX: u64 = 2 << 20;

/// Names that a listing reads at a time before it looks at how much room they take.
pub const LIST_CHUNK_NAMES: usize = 128;

/// A client's description of itself that is kept, in bytes. It is for people to read.
pub const CLIENT_BYTES_MAX: usize = 1024;

/// Blocks that one command may take off the garbage list.
pub const COLLECT_BLOCKS_MAX: usize = 4096;

/// Blocks of which one command may say where they are.
pub const PLACE_BLOCKS_MAX: usize = 4096;

/// Records between two reports of a check's progress.
pub const CHECK_PROGRESS_RECORDS: u64 = 4096;
