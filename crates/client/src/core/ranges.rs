//! A set of byte ranges.

use super::few::FewMap;

/// Disjoint ranges, kept merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(FewMap<u64>);

impl Ranges {
    /// Everything.
    pub(crate) fn all() -> Ranges {
        Ranges(FewMap::from_iter([(0, u64::MAX)]))
    }

    /// Adds `[start, end)`.
    pub(crate) fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((s, &e)) = self.0.at_or_before(end) {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.0.remove(s);
        }
        self.0.insert(start, end);
    }

    /// Removes `[start, end)`.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        while start < end
            && let Some((s, &e)) = self.0.at_or_before(end - 1)
            && e > start
        {
            self.0.remove(s);
            if e > end {
                self.0.insert(end, e);
            }
            if s < start {
                self.0.insert(s, start);
            }
        }
    }

    /// The first byte of `[start, end)` that is not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<u64> {
        if start >= end {
            return None;
        }
        match self.0.at_or_before(start) {
            Some((_, &e)) if e >= end => None,
            Some((_, &e)) if e > start => Some(e),
            _ => Some(start),
        }
    }

    /// The parts of `[start, end)` that are not in the set, in order.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        while let Some(from) = self.first_gap(at, end) {
            let to = self.0.range(from..end).next().map_or(end, |(s, _)| s);
            gaps.push((from, to));
            at = to;
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_set_of_bytes() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 64];
            for _ in 0..next(8) {
                let start = next(64);
                let end = start + next(64 - start + 1);
                let is_added = next(3) > 0;
                match is_added {
                    true => ranges.insert(start, end),
                    false => ranges.remove(start, end),
                }
                bytes[start as usize..end as usize].fill(is_added);
            }
            let start = next(64);
            let end = start + next(64 - start + 1);
            let mut gap_bytes = [false; 64];
            for (from, to) in ranges.gaps(start, end) {
                assert!(from < to && from >= start && to <= end);
                gap_bytes[from as usize..to as usize].fill(true);
            }
            for at in start..end {
                assert_eq!(gap_bytes[at as usize], !bytes[at as usize]);
            }
            assert_eq!(ranges.first_gap(start, end), (start..end).find(|at| !bytes[*at as usize]));
        }
    }
}
