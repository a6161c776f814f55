//! Ranges of a file in pages of the page cache.

use std::ops::RangeInclusive;

/// Bytes of a page. Where the kernel's are larger, a notification merely concerns more than it had to.
const PAGE_BYTES: u64 = 4096;
/// The last page that a file could have.
const LAST: u64 = (i64::MAX as u64) / PAGE_BYTES;

/// Pages from the first to the last, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pages {
    first: u64,
    last: u64,
}

impl Pages {
    pub(crate) const ALL: Pages = Pages { first: 0, last: LAST };

    /// The pages that a range of bytes touches.
    pub(crate) fn of_bytes(offset: u64, len: u64) -> Pages {
        let end = offset.saturating_add(len.max(1)) - 1;
        Pages { first: (offset / PAGE_BYTES).min(LAST), last: (end / PAGE_BYTES).min(LAST) }
    }

    /// Offset and length in bytes; the length 0 means up to the end.
    pub(crate) fn bytes(self) -> (i64, i64) {
        let offset = (self.first * PAGE_BYTES) as i64;
        match self.last {
            LAST => (offset, 0),
            last => (offset, ((last - self.first + 1) * PAGE_BYTES) as i64),
        }
    }

    /// The page numbers.
    pub(crate) fn numbers(self) -> RangeInclusive<u64> {
        self.first..=self.last
    }

    /// The offset of a page, in bytes.
    pub(crate) fn begin(page: u64) -> u64 {
        page * PAGE_BYTES
    }

    /// Content of whole pages, and perhaps of the beginning of a last one, page by page.
    pub(crate) fn of_content(offset: u64, content: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
        (offset / PAGE_BYTES..).zip(content.chunks(PAGE_BYTES as usize))
    }

    pub(crate) fn overlaps(self, other: Pages) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The number of pages.
    pub(crate) fn count(self) -> u64 {
        self.last - self.first + 1
    }

    /// The first and the second half; `None` if it is one page.
    pub(crate) fn halves(self) -> Option<[Pages; 2]> {
        let last = self.first + (self.last - self.first) / 2;
        let halves = [Pages { first: self.first, last }, Pages { first: last + 1, last: self.last }];
        (self.first < self.last).then_some(halves)
    }

    /// Merges consecutive page numbers into ranges.
    pub(crate) fn runs(pages: impl IntoIterator<Item = u64>) -> Vec<Pages> {
        let mut runs: Vec<Pages> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                Some(run) if run.last + 1 == page => run.last = page,
                _ => runs.push(Pages { first: page, last: page }),
            }
        }
        runs
    }

    /// The range without `others`, which are in order.
    pub(crate) fn without(self, others: &[Pages]) -> Vec<Pages> {
        let (mut left, mut first) = (Vec::new(), self.first);
        for other in others.iter().filter(|other| self.overlaps(**other)) {
            if first < other.first {
                left.push(Pages { first, last: other.first - 1 });
            }
            first = other.last + 1;
        }
        if first <= self.last {
            left.push(Pages { first, last: self.last });
        }
        left
    }

    /// Splits the range so that no part waits for more of the writes than it must. The kernel keeps at most
    /// the outer pages of a write locked: those that it did not have and does not fill.
    pub(crate) fn apart(self, writes: impl IntoIterator<Item = Pages>) -> Vec<Pages> {
        let mut cuts: Vec<u64> = writes
            .into_iter()
            .flat_map(|write| [write.first, write.first + 1, write.last, write.last + 1])
            .filter(|cut| (self.first + 1..=self.last).contains(cut))
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let (mut parts, mut first) = (Vec::with_capacity(cuts.len() + 1), self.first);
        for cut in cuts {
            parts.push(Pages { first, last: cut - 1 });
            first = cut;
        }
        parts.push(Pages { first, last: self.last });
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(first: u64, last: u64) -> Pages {
        Pages { first, last }
    }

    #[test]
    fn range_of_bytes_covers_all_pages_that_it_touches() {
        assert_eq!(Pages::of_bytes(0, 1), pages(0, 0));
        assert_eq!(Pages::of_bytes(4095, 2), pages(0, 1));
        assert_eq!(Pages::of_bytes(8192, 8192), pages(2, 3));
        assert_eq!(Pages::of_bytes(8192, 0), pages(2, 2));
        assert_eq!(Pages::of_bytes(u64::MAX, u64::MAX), pages(LAST, LAST));
        assert_eq!(pages(2, 3).bytes(), (8192, 8192));
        assert_eq!(Pages::ALL.bytes(), (0, 0));
        assert_eq!(pages(LAST, LAST).bytes(), ((LAST * PAGE_BYTES) as i64, 0));
    }

    #[test]
    fn pages_that_a_write_may_lock_are_invalidated_separately() {
        let parts = Pages::ALL.apart([pages(10, 13)]);
        assert_eq!(parts, [pages(0, 9), pages(10, 10), pages(11, 12), pages(13, 13), pages(14, LAST)]);
        assert_eq!(Pages::ALL.apart([pages(0, 0)]), [pages(0, 0), pages(1, LAST)]);
        assert_eq!(Pages::ALL.apart([]), [Pages::ALL]);
    }

    #[test]
    fn pages_are_subtracted_from_a_range() {
        assert_eq!(Pages::runs([1, 2, 3, 7, 9, 10]), [pages(1, 3), pages(7, 7), pages(9, 10)]);
        let left = Pages::ALL.without(&[pages(0, 3), pages(7, 7), pages(8, 10)]);
        assert_eq!(left, [pages(4, 6), pages(11, LAST)]);
        assert_eq!(pages(5, 9).without(&[pages(0, 4), pages(5, 7), pages(9, 20)]), [pages(8, 8)]);
        assert_eq!(pages(5, 9).without(&[pages(0, 20)]), []);
        assert_eq!(pages(5, 9).without(&[]), [pages(5, 9)]);
        assert_eq!(pages(5, 7).halves(), Some([pages(5, 6), pages(7, 7)]));
        assert_eq!((pages(5, 5).halves(), pages(5, 7).count()), (None, 3));
    }

    #[test]
    fn split_parts_are_not_split_again() {
        let writes = [pages(10, 13), pages(12, 40), pages(100, 101)];
        for part in Pages::ALL.apart(writes) {
            assert_eq!(part.apart(writes), [part]);
        }
    }
}
