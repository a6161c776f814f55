//! What a lock is.

use serde::{Deserialize, Serialize};
use shoal_types::{InodeId, SessionId};
use std::fmt;

/// Which family a lock belongs to. Locks of different families never conflict with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LockSpace {
    /// fcntl(2): ranges of bytes, owned by processes. Open file description locks are of this kind, too: FUSE
    /// does not tell them apart.
    Posix,
    /// flock(2): whole files, owned by open files.
    Flock,
    /// Whole files, owned by clients: the client has the file open for reading and writing, so that its
    /// programs may map it shared and writable (mmap(2) with `MAP_SHARED`).
    Mapping,
}

impl LockSpace {
    /// Linux's two families, whose locks programs ask for.
    pub const BOTH: [LockSpace; 2] = [LockSpace::Posix, LockSpace::Flock];
    /// All families.
    pub const ALL: [LockSpace; 3] = [LockSpace::Posix, LockSpace::Flock, LockSpace::Mapping];

    /// Whether its locks always cover the whole file.
    pub fn is_of_whole_files(self) -> bool {
        self != LockSpace::Posix
    }
}

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LockKind {
    /// Shared: excludes writers.
    Read,
    /// Excludes all other owners.
    Write,
}

impl LockKind {
    /// Whether two owners may not have locks of these kinds on the same byte.
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Write || other == LockKind::Write
    }
}

/// The owner of a lock. Its number is chosen by the client's kernel, and is unique only within its session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LockOwner {
    /// The client.
    pub session: SessionId,
    /// Its kernel's number for the process or open file (FUSE's `lock_owner`).
    pub owner: u64,
}

/// The bytes that a lock covers, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct LockRange {
    start: u64,
    end: u64,
}

/// A range that ends before it begins, or begins beyond the largest file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no bytes can be locked from {0} to {1}")]
pub struct NoSuchRange(u64, u64);

impl LockRange {
    /// The end of a range that reaches to the end of the file, however far that may move: the kernel's
    /// `OFFSET_MAX`.
    pub const EOF: u64 = i64::MAX as u64;
    /// The whole file.
    pub const ALL: LockRange = LockRange { start: 0, end: LockRange::EOF };

    /// The bytes `start..=end`; an end beyond [`EOF`](Self::EOF) becomes `EOF`.
    pub fn new(start: u64, end: u64) -> Result<LockRange, NoSuchRange> {
        let range = LockRange { start, end: end.min(LockRange::EOF) };
        if range.start <= range.end { Ok(range) } else { Err(NoSuchRange(start, end)) }
    }

    /// The first byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The last byte, or [`EOF`](Self::EOF).
    pub fn end(self) -> u64 {
        self.end
    }

    /// Whether a byte is in both.
    pub fn overlaps(self, other: LockRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether together they are one range without a gap.
    pub(super) fn touches(self, other: LockRange) -> bool {
        // No overflow: EOF + 1 is half of u64.
        self.start <= other.end + 1 && other.start <= self.end + 1
    }

    /// The smallest range that contains both.
    pub(super) fn enclosing(self, other: LockRange) -> LockRange {
        LockRange { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The parts before and after `other`.
    pub fn around(self, other: LockRange) -> [Option<LockRange>; 2] {
        let before =
            (self.start < other.start).then(|| LockRange { start: self.start, end: other.start - 1 });
        let behind = (self.end > other.end).then(|| LockRange { start: other.end + 1, end: self.end });
        [before, behind]
    }
}

impl TryFrom<(u64, u64)> for LockRange {
    type Error = NoSuchRange;
    fn try_from((start, end): (u64, u64)) -> Result<LockRange, NoSuchRange> {
        LockRange::new(start, end)
    }
}
impl From<LockRange> for (u64, u64) {
    fn from(range: LockRange) -> (u64, u64) {
        (range.start, range.end)
    }
}
impl fmt::Debug for LockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            LockRange::EOF => write!(f, "{}..", self.start),
            end => write!(f, "{}..={end}", self.start),
        }
    }
}

/// A lock that is held or wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LockRecord {
    /// The file.
    pub ino: InodeId,
    /// The family.
    pub space: LockSpace,
    /// Whose it is.
    pub owner: LockOwner,
    /// The process that asked, a number of the client's machine. Only shown (F_GETLK), never compared.
    pub pid: u32,
    /// The bytes. [`LockRange::ALL`], whatever was requested, where locks
    /// [cover whole files](LockSpace::is_of_whole_files).
    pub range: LockRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// A request that may wait: its session, and a number that the session chose, by which it is answered or
/// cancelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RequestKey {
    /// The session.
    pub session: SessionId,
    /// The number of the request.
    pub request: u64,
}
