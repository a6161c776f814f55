//! A shard, or a range of one, with its checksum.

use crate::scheme::Scheme;
use bytes::Bytes;
use std::ops::Range;

/// A range of a shard, or all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Its index: data shards first, then parity.
    pub index: usize,
    /// Offset of the bytes in the whole shard.
    pub offset: u32,
    /// Its bytes.
    pub bytes: Bytes,
    /// Over the bytes, and over the scheme, the index and the offset.
    pub checksum: u32,
}

impl Shard {
    /// Bytes that are known to be right: they come from an encoder, or were verified by the brick that stores
    /// them.
    pub fn new(scheme: Scheme, index: usize, offset: u32, bytes: Bytes) -> Shard {
        let checksum = checksum(scheme, index, offset, &bytes);
        Shard { index, offset, bytes, checksum }
    }

    /// Whether it is what it claims to be.
    pub fn is_intact(&self, scheme: Scheme) -> bool {
        self.index < scheme.shards()
            && self.checksum == checksum(scheme, self.index, self.offset, &self.bytes)
    }

    /// A range of it, in bytes from the beginning of the whole shard; `None` if it is not all here.
    pub fn part(&self, scheme: Scheme, range: Range<u32>) -> Option<Shard> {
        let start = range.start.checked_sub(self.offset)? as usize;
        let end = range.end.checked_sub(self.offset)? as usize;
        let is_here = start <= end && end <= self.bytes.len();
        is_here.then(|| Shard::new(scheme, self.index, range.start, self.bytes.slice(start..end)))
    }
}

fn checksum(scheme: Scheme, index: usize, offset: u32, bytes: &[u8]) -> u32 {
    let mut name = [0; 12];
    name[0] = scheme.data() as u8;
    name[1] = scheme.parity() as u8;
    name[4..8].copy_from_slice(&(index as u32).to_le_bytes());
    name[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&name), bytes)
}
