//! How many files are being read in sequence at the moment: they share the room for read-ahead.

use crate::limits::STREAM_IDLE_MAX;
use rustc_hash::FxHashSet;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;

/// The files that were read in sequence lately.
#[derive(Debug)]
pub(crate) struct Streams {
    begun: Instant,
    /// Files read since then.
    now: FxHashSet<InodeId>,
    /// Files read in the period before.
    before: FxHashSet<InodeId>,
}

impl Streams {
    pub(crate) fn new(now: Instant) -> Streams {
        Streams { begun: now, now: FxHashSet::default(), before: FxHashSet::default() }
    }

    /// A file is read in sequence. Returns how many are, this one included.
    pub(crate) fn record(&mut self, ino: InodeId, now: Instant) -> usize {
        let age = now.saturating_duration_since(self.begun);
        if age >= STREAM_IDLE_MAX {
            self.before = std::mem::take(&mut self.now);
            if age >= 2 * STREAM_IDLE_MAX {
                self.before.clear();
            }
            self.begun = now;
        }
        self.now.insert(ino);
        self.now.len().max(self.before.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_counts_as_a_stream_until_it_was_not_read_for_a_while() {
        let begun = Instant::now();
        let mut streams = Streams::new(begun);
        let at = |halves: u32| begun + STREAM_IDLE_MAX * halves / 2;
        assert_eq!([1, 2, 2, 3].map(|ino| streams.record(InodeId(ino), at(0))), [1, 2, 2, 3]);
        assert_eq!(streams.record(InodeId(1), at(2)), 3, "the others may be read again soon");
        assert_eq!(streams.record(InodeId(1), at(3)), 3);
        assert_eq!(streams.record(InodeId(1), at(4)), 1);
        streams.record(InodeId(2), at(5));
        assert_eq!(streams.record(InodeId(3), at(50)), 1, "nothing was read for long");
    }
}
