//! Ranges of files that were changed in batches which are not committed.

use super::super::ranges::Ranges;
use rustc_hash::FxHashSet;
use shoal_types::{BatchSeq, InodeId};
use std::collections::VecDeque;

/// A change of the extents of a file: in this batch, in `[start, end)`.
#[derive(Clone, Copy, Debug)]
struct Change {
    seq: BatchSeq,
    ino: InodeId,
    start: u64,
    end: u64,
}

/// Changes of extents that are not committed, by batch. As long as they are not, servers know older extents.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    changes: VecDeque<Change>,
    /// Files that were looked up since the last batch was committed.
    looked_up: FxHashSet<InodeId>,
}

impl Uncommitted {
    /// An extent was stored or removed by an operation of this batch.
    pub(super) fn record(&mut self, seq: BatchSeq, ino: InodeId, start: u64, end: u64) {
        if let Some(last) = self.changes.back_mut()
            && (last.seq, last.ino) == (seq, ino)
            && start <= last.end
            && last.start <= end
        {
            (last.start, last.end) = (last.start.min(start), last.end.max(end));
            return;
        }
        self.changes.push_back(Change { seq, ino, start, end });
    }

    /// Everything up to this batch is committed.
    pub(super) fn committed(&mut self, acked: BatchSeq) {
        self.looked_up.clear();
        while self.changes.front().is_some_and(|change| change.seq <= acked) {
            self.changes.pop_front();
        }
    }

    /// Whether a file was looked up since the last batch was committed. To do it again costs time and brings
    /// little.
    pub(super) fn was_looked_up(&self, ino: InodeId) -> bool {
        self.looked_up.contains(&ino)
    }

    /// The ranges of a file that are not committed.
    pub(super) fn look_up(&mut self, ino: InodeId) -> Ranges {
        self.looked_up.insert(ino);
        let mut ranges = Ranges::default();
        self.changes.iter().filter(|change| change.ino == ino).for_each(|change| {
            ranges.insert(change.start, change.end);
        });
        ranges
    }
}
