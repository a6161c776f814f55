//! lseek(2) for data and holes, in units in which other file systems allocate: a unit that has any data is
//! data, so answers are as on ext4 with blocks of 4 KiB.

use crate::values::{Seek, SeekResult};
use std::ops::Range;

/// Data and holes begin and end at multiples of this, in bytes, or with the file.
const UNIT_BYTES: u64 = 4096;

/// The start of the unit in which an offset lies.
pub(super) fn unit_start(offset: u64) -> u64 {
    offset - offset % UNIT_BYTES
}

/// Looks from an offset within the file on. `data`: the ranges that have data, in order, at least from the
/// beginning of the offset's unit on.
pub(super) fn seek(data: impl Iterator<Item = Range<u64>>, offset: u64, size: u64, what: Seek) -> SeekResult {
    let units = data.map(|range| unit_start(range.start)..range.end.next_multiple_of(UNIT_BYTES));
    let mut ahead = units.filter(|range| range.end > offset);
    match what {
        Seek::Data => {
            let found = ahead.next().map(|range| range.start.max(offset)).filter(|found| *found < size);
            SeekResult { found, hole: offset..found.unwrap_or(size) }
        }
        Seek::Hole => {
            let (mut found, mut end) = (offset, size);
            for range in ahead {
                if range.start > found {
                    end = range.start;
                    break;
                }
                found = found.max(range.end);
            }
            SeekResult { found: Some(found.min(size)), hole: found.min(size)..end.min(size) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// Data of 1 byte in the second unit, and of 8 KiB from the middle of the sixth on, in two pieces.
    fn look(offset: u64, what: Seek) -> (Option<u64>, Range<u64>) {
        let data = [4 * KIB + 100..4 * KIB + 101, 22 * KIB..25 * KIB, 25 * KIB..30 * KIB];
        let SeekResult { found, hole } = seek(data.into_iter(), offset, 33 * KIB, what);
        (found, hole)
    }

    #[test]
    fn data_begin_with_their_unit() {
        assert_eq!(look(0, Seek::Data), (Some(4 * KIB), 0..4 * KIB));
        assert_eq!(look(5 * KIB, Seek::Data), (Some(5 * KIB), 5 * KIB..5 * KIB));
        assert_eq!(look(8 * KIB, Seek::Data), (Some(20 * KIB), 8 * KIB..20 * KIB));
        assert_eq!(look(31 * KIB, Seek::Data), (Some(31 * KIB), 31 * KIB..31 * KIB));
        assert_eq!(look(32 * KIB, Seek::Data), (None, 32 * KIB..33 * KIB));
    }

    #[test]
    fn a_hole_begins_behind_the_unit_of_the_last_data() {
        assert_eq!(look(0, Seek::Hole), (Some(0), 0..4 * KIB));
        assert_eq!(look(4 * KIB, Seek::Hole), (Some(8 * KIB), 8 * KIB..20 * KIB));
        assert_eq!(look(21 * KIB, Seek::Hole), (Some(32 * KIB), 32 * KIB..33 * KIB));
        let whole = |what| seek(std::iter::once(0..100), 7, 100, what);
        assert_eq!(whole(Seek::Hole), SeekResult { found: Some(100), hole: 100..100 });
        assert_eq!(whole(Seek::Data), SeekResult { found: Some(7), hole: 7..7 });
    }
}
