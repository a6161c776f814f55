//! Schemes `k+m`, and where the bytes of a block are in its shards.

use crate::limits::{COLUMN_BYTES, DATA_SHARDS_MAX, DATA_SHARDS_MIN, PARITY_SHARDS_MAX};
use std::fmt;
use std::ops::Range;

/// `k` data shards and `m` parity shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scheme {
    data: u8,
    parity: u8,
}

impl Scheme {
    /// A scheme; `None` if it is outside of the [`limits`](crate::limits).
    pub fn new(data: usize, parity: usize) -> Option<Scheme> {
        let fits =
            (DATA_SHARDS_MIN..=DATA_SHARDS_MAX).contains(&data) && (1..=PARITY_SHARDS_MAX).contains(&parity);
        fits.then_some(Scheme { data: data as u8, parity: parity as u8 })
    }

    /// Data shards, `k`: so many shards of any kind give the block back.
    pub fn data(self) -> usize {
        usize::from(self.data)
    }

    /// Parity shards, `m`: so many shards may be lost.
    pub fn parity(self) -> usize {
        usize::from(self.parity)
    }

    /// All shards, `k + m`. The data shards have the indexes from 0.
    pub fn shards(self) -> usize {
        self.data() + self.parity()
    }
}

/// As an administrator writes it: `4+2`.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A block of some length, split by a scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The scheme.
    pub scheme: Scheme,
    /// Length of the block in bytes.
    pub len: u32,
}

/// Bytes of a block that are in one data shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The shard.
    pub index: usize,
    /// The bytes' range in that shard.
    pub range: Range<u32>,
}

impl Layout {
    /// Length of each shard, data or parity, in bytes: whole columns.
    pub fn shard_bytes(&self) -> u32 {
        self.len.div_ceil(self.scheme.data() as u32).next_multiple_of(COLUMN_BYTES)
    }

    /// Where a range of the block is, in the order of its bytes. Bytes behind the block's end are left out.
    pub fn pieces(&self, offset: u32, len: u32) -> impl Iterator<Item = Piece> + use<> {
        let shard_bytes = self.shard_bytes().max(1);
        let (mut at, end) = (offset, offset.saturating_add(len).min(self.len));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (index, start) = (at / shard_bytes, at % shard_bytes);
            let stop = shard_bytes.min(start + (end - at));
            at += stop - start;
            Some(Piece { index: index as usize, range: start..stop })
        })
    }

    /// The smallest range of whole columns around a range of a shard.
    pub fn columns(&self, range: &Range<u32>) -> Range<u32> {
        range.start - range.start % COLUMN_BYTES..range.end.next_multiple_of(COLUMN_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_outside_of_the_limits_are_refused() {
        assert_eq!(Scheme::new(8, 4).map(|it| it.to_string()).as_deref(), Some("8+4"));
        for (data, parity) in [(0, 1), (1, 1), (13, 1), (4, 0), (4, 5), (258, 1), (4, 257)] {
            assert_eq!(Scheme::new(data, parity), None, "{data}+{parity}");
        }
    }

    #[test]
    fn small_range_is_in_one_shard_and_pieces_cover_any_range_once() {
        for (data, len) in [(2, 1), (3, 1000), (4, 4096), (10, 640), (8, 70_001)] {
            let layout = Layout { scheme: Scheme::new(data, 2).expect("a legal scheme"), len };
            let shard = layout.shard_bytes();
            assert!(shard.is_multiple_of(COLUMN_BYTES) && u64::from(shard) * data as u64 >= u64::from(len));
            for (offset, count) in
                [(0, len), (0, 1), (len - 1, 1), (len / 3, len / 2), (0, u32::MAX), (len, 5)]
            {
                let mut at = offset;
                for piece in layout.pieces(offset, count) {
                    assert_eq!(piece.index as u32 * shard + piece.range.start, at, "{layout:?}");
                    assert!(piece.range.end <= shard && piece.index < data);
                    at += piece.range.end - piece.range.start;
                }
                assert_eq!(at, offset.saturating_add(count).min(len).max(offset), "{layout:?}");
            }
        }
    }

    #[test]
    fn columns_enclose_a_range() {
        let layout = Layout { scheme: Scheme::new(2, 1).expect("a legal scheme"), len: 1000 };
        assert_eq!(layout.columns(&(70..70)), 64..128);
        assert_eq!(layout.columns(&(64..128)), 64..128);
        assert_eq!(layout.columns(&(0..129)), 0..192);
    }
}
