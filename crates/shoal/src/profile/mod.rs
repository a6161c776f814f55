//! What bricks and mounts have done, altogether and since an administrator last looked: `volume profile` and
//! `volume top`.
//!
//! **Model.** Counting never stops, so there is nothing to switch on. Brick and mount keep a *mark* each:
//! what they had counted when the last interval began. An administrator's question is a [`Round`]. Every
//! brick and mount answers it once, and moves its mark if the round says so. So intervals are the same
//! from whichever node one asks, as long as one administrator marks at a time.
//!
//! **Bounds.** Latencies and sizes are histograms by powers of two, and so are the least and the greatest
//! latency.

mod operation;

pub use operation::{OpReport, since_all};

use crate::clock::since_1970;
use crate::limits::ROUNDS_KEPT_MAX;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_fuse::OpStats;
use shoal_runtime::histogram::Snapshot;
use std::collections::VecDeque;
use std::time::Instant;

/// What a brick or a mount has done.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// In how many seconds.
    pub duration_s: u64,
    /// In how many milliseconds: from the difference of two profiles follows a rate.
    #[serde(default)]
    pub duration_ms: u64,
    /// What was read.
    pub reads: Sizes,
    /// What was written.
    pub writes: Sizes,
    /// Calls to the brick, or requests of the mount's kernel, by kind.
    pub operations: Vec<OpReport>,
    /// Of a mount: its calls to the metadata server, by kind.
    pub metadata: Vec<OpReport>,
}

/// Sizes of reads or writes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// All together.
    pub bytes: u64,
    /// How many had 2^n up to 2^(n+1) bytes, by n.
    pub size_log2: Vec<u64>,
}

/// A profile of everything, and one of the present interval.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Profiled {
    /// Since the process began.
    pub cumulative: Profile,
    /// Since the last mark.
    pub interval: Profile,
    /// How many intervals came before.
    pub interval_number: u64,
}

/// A question of an administrator to all bricks and mounts of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Tells it from others.
    pub id: u64,
    /// What is asked for.
    pub what: Wanted,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// A profile. With `marks`, the next interval begins.
    Profile {
        /// Whether it does.
        marks: bool,
    },
    /// The inodes with the most requests.
    Top(TopOf),
    /// To count the requests of inodes anew.
    ClearTop,
}

/// Which inodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopOf {
    /// The kind of requests, as in [`OpReport::name`].
    pub operation: String,
    /// Those with the most bytes first, instead of those with the most requests.
    pub by_bytes: bool,
    /// How many inodes.
    pub count_max: u32,
}

/// What a mount answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RoundReply {
    /// To [`Wanted::Profile`].
    Profile(Box<Profiled>),
    /// To [`Wanted::Top`].
    Top(Top),
    /// To [`Wanted::ClearTop`].
    Cleared,
}

/// The inodes with the most requests of a kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Top {
    /// For how long they have been counted, in seconds.
    pub duration_s: u64,
    /// The first of them.
    pub inodes: Vec<TopInode>,
}

/// An inode, and what was counted of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopInode {
    /// Its number.
    pub inode: u64,
    /// Requests, at most.
    pub count: u64,
    /// How far that may be too high.
    pub over_max: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

impl Round {
    /// A new round.
    pub fn new(what: Wanted) -> Round {
        let since = since_1970();
        Round { id: since.as_nanos() as u64, what }
    }
}

impl Sizes {
    fn since(&self, before: &Sizes) -> Sizes {
        let earlier = before.size_log2.iter().copied().chain(std::iter::repeat(0));
        let less = self.size_log2.iter().zip(earlier).map(|(now, then)| now.saturating_sub(then));
        Sizes { bytes: self.bytes.saturating_sub(before.bytes), size_log2: less.collect() }
    }
}

impl From<Snapshot> for Sizes {
    fn from(sizes: Snapshot) -> Sizes {
        let last = sizes.buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        Sizes { bytes: sizes.total, size_log2: sizes.buckets.iter().take(last).copied().collect() }
    }
}

impl Profile {
    /// From counters; without the duration.
    pub fn of(reads: Snapshot, writes: Snapshot, operations: &[OpStats], metadata: &[OpStats]) -> Profile {
        let reports = |ops: &[OpStats]| ops.iter().map(OpReport::from).collect();
        let (operations, metadata) = (reports(operations), reports(metadata));
        Profile { reads: reads.into(), writes: writes.into(), operations, metadata, ..Profile::default() }
    }

    fn since(&self, before: &Profile) -> Profile {
        Profile {
            duration_s: self.duration_s.saturating_sub(before.duration_s),
            duration_ms: self.duration_ms.saturating_sub(before.duration_ms),
            reads: self.reads.since(&before.reads),
            writes: self.writes.since(&before.writes),
            operations: since_all(&before.operations, &self.operations),
            metadata: since_all(&before.metadata, &self.metadata),
        }
    }
}

/// The mark of a brick or mount.
pub struct Marker {
    began: Instant,
    mark: Mutex<Mark>,
}

#[derive(Default)]
struct Mark {
    /// What had been counted when the interval began.
    counted: Profile,
    intervals: u64,
    /// The last rounds and the answers to them: several nodes may ask for the same round.
    last: VecDeque<(u64, Profiled)>,
}

impl Marker {
    /// Everything begins now.
    pub fn new() -> Marker {
        Marker { began: Instant::now(), mark: Mutex::default() }
    }

    /// Answers a round. `count` tells what has been counted so far.
    pub fn answer(&self, round: u64, marks: bool, count: impl FnOnce() -> Profile) -> Profiled {
        let mut mark = self.mark.lock();
        if let Some((_, answer)) = mark.last.iter().find(|(id, _)| *id == round) {
            return answer.clone();
        }
        let lived = self.began.elapsed();
        let (duration_s, duration_ms) = (lived.as_secs(), lived.as_millis() as u64);
        let cumulative = Profile { duration_s, duration_ms, ..count() };
        let interval = cumulative.since(&mark.counted);
        let answer = Profiled { interval, interval_number: mark.intervals, cumulative };
        if marks {
            mark.counted = answer.cumulative.clone();
            mark.intervals += 1;
        }
        if mark.last.len() == ROUNDS_KEPT_MAX {
            mark.last.pop_front();
        }
        mark.last.push_back((round, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::histogram::Histogram;

    #[test]
    fn interval_begins_at_each_mark_and_a_round_is_answered_once() {
        let (marker, reads, writes) = (Marker::new(), Histogram::default(), Histogram::default());
        let count = || Profile::of(reads.snapshot(), writes.snapshot(), &[], &[]);
        reads.add(4096);
        let first = marker.answer(1, true, count);
        assert_eq!((first.cumulative.reads.bytes, first.interval.reads.bytes), (4096, 4096));
        assert_eq!((first.interval_number, first.cumulative.reads.size_log2.len()), (0, 13));
        reads.add(10);
        writes.add(7);
        assert_eq!(marker.answer(1, true, count), first, "the same round");
        let peeked = marker.answer(2, false, count);
        assert_eq!((peeked.interval.reads.bytes, peeked.interval.writes.bytes), (10, 7));
        assert_eq!(peeked.interval.reads.size_log2.iter().sum::<u64>(), 1);
        let second = marker.answer(3, true, count);
        assert_eq!((second.interval, second.interval_number), (peeked.interval, 1));
        assert_eq!(marker.answer(1, true, count), first, "an earlier round");
        let third = marker.answer(4, true, count);
        assert_eq!((third.interval.reads.bytes, third.cumulative.reads.bytes), (0, 4106));
        assert_eq!(third.interval_number, 2);
    }
}
