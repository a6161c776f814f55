//! The bytes of a segment.
//!
//! ```text
//! segment:  header, 4096 bytes                      record:  40 bytes, payload, zeros up to a multiple of 8
//!    0  8  "SHOALLOG"                                  0  4  "Slrc"
//!    8  4  format version (1)                          4  4  crc32c of all that follows, the payload included,
//!   12  4  crc32c of bytes 16..48                            begun with the segment's salt and the record's place
//!   16  8  number of the segment                       8  4  length of the payload
//!   24  8  index of the entry before the first        12  1  kind: 1 entry, 2 state
//!   32  8  its term                                   13  1  tag, the caller's
//!   40  8  salt, random                               14  2  zero
//!   48     zeros                                      16  8  index of the entry
//!                                                     24  8  its term
//! All numbers little-endian.                          32  8  bytes of this segment known durable when written
//! ```
//!
//! The checksum includes the salt and the place, so that only what was written as a record here is taken for
//! one. The old content of a reused segment is not, and neither is a payload that looks like a log. The
//! durable length tells damage from a torn tail: no record after a torn one was written after a flush of the
//! torn one.

use super::error::LogError;
use crate::limits::RECORD_BYTES_MAX;

/// Version of the format of segments.
pub const SEGMENT_VERSION: u32 = 1;
/// Where the records begin, in bytes.
pub const HEADER_BYTES: u64 = 4096;
/// Length of a record before its payload, in bytes.
pub const RECORD_HEADER_BYTES: usize = 40;

const SEGMENT_MAGIC: &[u8; 8] = b"SHOALLOG";
const RECORD_MAGIC: &[u8; 4] = b"Slrc";
const ALIGN: usize = 8;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Counts segments up from 1; never used twice in a log.
    pub number: u64,
    /// Index of the entry before the segment's first: later entries of earlier segments are void.
    pub base_index: u64,
    /// Term of that entry.
    pub base_term: u64,
    /// The first input of the checksums of this use of the file.
    pub salt: u64,
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An entry.
    Entry,
    /// The caller's state, which replaces the one before.
    State,
}

/// A record before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// What it holds.
    pub kind: RecordKind,
    /// The caller's tag of an entry.
    pub tag: u8,
    /// The entry's index.
    pub index: u64,
    /// The entry's term.
    pub term: u64,
    /// How much of the segment was durable when the record was written, in bytes.
    pub durable: u64,
    /// Length of the payload in bytes.
    pub len: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl SegmentHeader {
    /// The header's bytes, all [`HEADER_BYTES`] of them.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEADER_BYTES as usize);
        for field in [self.number, self.base_index, self.base_term, self.salt] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        let mut out = SEGMENT_MAGIC.to_vec();
        out.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out.resize(HEADER_BYTES as usize, 0);
        out
    }

    /// Reads a header.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<SegmentHeader, LogError> {
        let damaged = |what: &str| LogError::Damaged { file: file.into(), offset: 0, what: what.into() };
        if bytes.get(..8) != Some(SEGMENT_MAGIC) {
            return Err(damaged("it does not begin as a segment"));
        }
        let version = u32_at(bytes, 8).ok_or_else(|| damaged("the header is cut off"))?;
        if version != SEGMENT_VERSION {
            return Err(LogError::Version { file: file.into(), found: version, known: SEGMENT_VERSION });
        }
        let read = || {
            let body = bytes.get(16..48)?;
            if u32_at(bytes, 12)? != crc32c::crc32c(body) {
                return None;
            }
            Some(SegmentHeader {
                number: u64_at(bytes, 16)?,
                base_index: u64_at(bytes, 24)?,
                base_term: u64_at(bytes, 32)?,
                salt: u64_at(bytes, 40)?,
            })
        };
        read().ok_or_else(|| damaged("the header fails its checksum"))
    }
}

/// The space that a record takes, in bytes.
pub fn record_bytes(payload: usize) -> u64 {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(ALIGN) as u64
}

fn checksum(salt: u64, offset: u64, after_crc: &[u8], payload: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&salt.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&place), after_crc), payload)
}

/// Appends a record's bytes; `offset` is its place in the segment.
pub fn encode_record(out: &mut Vec<u8>, salt: u64, offset: u64, header: &RecordHeader, payload: &[u8]) {
    debug_assert_eq!(header.len as usize, payload.len());
    let mut head = [0u8; RECORD_HEADER_BYTES];
    head[8..12].copy_from_slice(&header.len.to_le_bytes());
    head[12] = match header.kind {
        RecordKind::Entry => 1,
        RecordKind::State => 2,
    };
    head[13] = header.tag;
    head[16..24].copy_from_slice(&header.index.to_le_bytes());
    head[24..32].copy_from_slice(&header.term.to_le_bytes());
    head[32..40].copy_from_slice(&header.durable.to_le_bytes());
    let crc = checksum(salt, offset, &head[8..], payload);
    head[..4].copy_from_slice(RECORD_MAGIC);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    let start = out.len();
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    out.resize(start + record_bytes(payload.len()) as usize, 0);
}

/// Reads the record at the start of `bytes`, which lies at `offset` of its segment. `None`: there is no
/// intact record here.
pub fn decode_record(bytes: &[u8], salt: u64, offset: u64) -> Option<(RecordHeader, &[u8])> {
    if bytes.get(..4)? != RECORD_MAGIC {
        return None;
    }
    let len = u32_at(bytes, 8)?;
    if len as usize > RECORD_BYTES_MAX {
        return None;
    }
    let payload = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + len as usize)?;
    if u32_at(bytes, 4)? != checksum(salt, offset, bytes.get(8..RECORD_HEADER_BYTES)?, payload) {
        return None;
    }
    let kind = match bytes.get(12)? {
        1 => RecordKind::Entry,
        2 => RecordKind::State,
        _ => return None,
    };
    let header = RecordHeader {
        kind,
        tag: *bytes.get(13)?,
        index: u64_at(bytes, 16)?,
        term: u64_at(bytes, 24)?,
        durable: u64_at(bytes, 32)?,
        len,
    };
    Some((header, payload))
}

/// Finds the next intact record at or after `offset`, and answers its place and header.
pub fn find_record(segment: &[u8], salt: u64, offset: u64) -> Option<(u64, RecordHeader)> {
    let mut at = (offset as usize).next_multiple_of(ALIGN);
    while let Some(rest) = segment.get(at..).filter(|rest| rest.len() >= RECORD_HEADER_BYTES) {
        if let Some((header, _)) = decode_record(rest, salt, at as u64) {
            return Some((at as u64, header));
        }
        at += ALIGN;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader { number: 3, base_index: 7, base_term: 2, salt: 99 };

    fn record(offset: u64) -> (RecordHeader, Vec<u8>) {
        let header =
            RecordHeader { kind: RecordKind::Entry, tag: 5, index: 8, term: 2, durable: 4096, len: 5 };
        let mut bytes = Vec::new();
        encode_record(&mut bytes, 99, offset, &header, b"hello");
        (header, bytes)
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = HEADER.encode();
        assert_eq!(SegmentHeader::decode("f", &good).expect("decode"), HEADER);
        for bit in 0..48 * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode("f", &bad).is_err(), "bit {bit}");
        }
        assert!(SegmentHeader::decode("f", &good[..20]).is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed() {
        let (header, good) = record(4096);
        assert_eq!(decode_record(&good, 99, 4096), Some((header, &b"hello"[..])));
        for bit in 0..(RECORD_HEADER_BYTES + 5) * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_record(&bad, 99, 4096), None, "bit {bit}");
        }
    }

    #[test]
    fn a_record_counts_only_in_its_own_place_and_segment() {
        let (_, bytes) = record(4096);
        assert_eq!(decode_record(&bytes, 99, 4104), None);
        assert_eq!(decode_record(&bytes, 98, 4096), None);
        assert_eq!(decode_record(&bytes[..bytes.len() - 4], 99, 4096), None, "cut off");
    }

    #[test]
    fn the_layout_never_changes_under_the_same_version() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(&HEADER.encode()[..48]),
            "53484f414c4c4f470100000081d511c803000000000000000700000000000000\
             02000000000000006300000000000000"
        );
        assert_eq!(
            hex(&record(4096).1),
            "536c72637b0b46a50500000001050000080000000000000002000000000000000010000000000000\
             68656c6c6f000000"
        );
    }
}
