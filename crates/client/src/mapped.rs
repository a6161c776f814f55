//! Content that programs change through shared mappings (mmap(2)).
//!
//! The kernel does not report a store into a mapped page; it writes whole pages back at some later time.
//! Another client may have changed other bytes of such a page meanwhile, and these must stay. So the
//! baseline, the content that the page was filled with, is fetched before any other client may change it. If
//! the file differs from the baseline when the page can be written, only the bytes that the program has
//! changed are written.

use crate::client::Client;
use crate::core::Piece;
use crate::values::{Reply, Wait};
use bytes::Bytes;
use shoal_types::InodeId;
use std::ops::Range;

/// The baseline of pages: the content that the kernel filled them with, or that they were last written back
/// with.
pub struct Before {
    /// The pieces that the pages were filled from.
    pieces: Option<Vec<Piece>>,
    bytes: Vec<u8>,
}

impl Before {
    /// Replaces the baseline of pages that were written back since they were filled, from byte `at` on.
    pub fn replace(&mut self, at: usize, page: &[u8]) {
        let end = at + page.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(page);
        self.pieces = None;
    }
}

impl Client {
    /// Reads the baseline of a range that is about to be written back. To be called before the recall that
    /// lets another client change the range is acknowledged. Waits for servers and bricks.
    pub fn before_write_back(&self, ino: InodeId, offset: u64, len: u32) -> Reply<Before> {
        let (pieces, parts) = self.read_pieces(Wait::Allowed, ino, offset, len)?;
        Ok(Before { pieces: Some(pieces), bytes: parts.concat() })
    }

    /// Writes pages back. Bytes beyond the end of the file are left out: unlike pwrite(2) this does not
    /// extend it. With `before`, if the file has changed since, only the bytes that differ from it are
    /// written. Without `before`, no other client may have changed the pages, which holds if they are written
    /// without waiting. A failure may leave some of the changed bytes written.
    pub fn write_back(
        &self,
        wait: Wait,
        ino: InodeId,
        offset: u64,
        data: &[u8],
        before: Option<&Before>,
    ) -> Reply<()> {
        let (data, now) = (Bytes::copy_from_slice(data), self.now());
        let session = self.current();
        let write = |offset, data: &Bytes, over: Option<&[Piece]>| {
            session.call(wait, |core| core.write_back(ino, offset, data, over, now))
        };
        let changed = match before {
            None => return write(offset, &data, None).map(drop),
            Some(Before { pieces: Some(over), .. }) if write(offset, &data, Some(over))? => return Ok(()),
            Some(before) => changed(&before.bytes, &data),
        };
        for Range { start, end } in changed {
            write(offset + start as u64, &data.slice(start..end), None)?;
        }
        Ok(())
    }
}

/// Ranges in which new bytes differ from old ones, or have none to compare with.
fn changed(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (at, byte) in new.iter().enumerate() {
        if old.get(at) == Some(byte) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_bytes_are_found_exactly() {
        assert_eq!(changed(b"", b""), []);
        assert_eq!(changed(b"abc", b"abc"), []);
        assert_eq!(changed(b"abc", b"ab"), []);
        assert_eq!(changed(b"abcdef", b"xbcyyf"), [0..1, 3..5]);
        assert_eq!(changed(b"ab", b"xbcd"), [0..1, 2..4]);
        assert_eq!(changed(b"x", b"yb").first(), Some(&(0..2)));
        assert_eq!(changed(b"", b"ab").first(), Some(&(0..2)));
    }
}
