//! The header of a block file: which block this is and the checksums of its chunks.
//!
//! ```text
//! offset  bytes  (numbers little-endian)
//!      0      8  magic "ShoalBlk"
//!      8      4  format version
//!     12      4  bytes of the header: 4096
//!     16      8  session
//!     24      8  sequence number
//!     32      4  length of the content
//!     36      4  bytes per chunk: 65536
//!     40      4  number of chunks
//!     48    4*n  CRC-32C of each chunk; the last one includes the padding behind the content
//!   4092      4  CRC-32C of bytes 0 to 4091
//! ```
//! The rest is zero. The content follows at 4096, padded with zeros to a multiple of 4096.

use crate::limits::{ALIGN_BYTES, CHUNK_BYTES, CHUNKS_MAX, HEADER_BYTES};
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_types::{BlockId, SessionId};

const MAGIC: [u8; 8] = *b"ShoalBlk";
const VERSION: u32 = 1;
const SUMS_AT: usize = 48;
const CRC_AT: usize = HEADER_BYTES - 4;

/// What the header of a block file says, apart from the block's name, which was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Length of the content in bytes.
    pub len: u32,
    /// Checksum of each chunk.
    pub sums: Box<[u32]>,
}

/// Length of content on disk, with padding.
pub(crate) fn padded(len: u32) -> usize {
    (len as usize).next_multiple_of(ALIGN_BYTES)
}

/// Number of chunks of a content of this length.
pub(crate) fn chunk_count(len: u32) -> u32 {
    len.div_ceil(CHUNK_BYTES)
}

impl Header {
    /// Length of the whole file in bytes.
    pub fn file_bytes(&self) -> u64 {
        (HEADER_BYTES + padded(self.len)) as u64
    }

    /// Writes the header into the first bytes of a zeroed file image.
    pub fn encode(&self, id: BlockId, out: &mut [u8; HEADER_BYTES]) {
        out.fill(0);
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        out[16..24].copy_from_slice(&id.session.0.to_le_bytes());
        out[24..32].copy_from_slice(&id.seq.to_le_bytes());
        out[32..36].copy_from_slice(&self.len.to_le_bytes());
        out[36..40].copy_from_slice(&CHUNK_BYTES.to_le_bytes());
        out[40..44].copy_from_slice(&(self.sums.len() as u32).to_le_bytes());
        for (slot, sum) in out[SUMS_AT..CRC_AT].chunks_exact_mut(4).zip(&self.sums) {
            slot.copy_from_slice(&sum.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads and checks the header of the file that is named `id`. The error says what is wrong with it.
    pub fn decode(id: BlockId, bytes: &[u8; HEADER_BYTES]) -> Result<Header, String> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes[..8] != MAGIC {
            return Err("the file does not begin like a block".into());
        }
        let version = u32_at(8);
        let intact = crc32c::crc32c(&bytes[..CRC_AT]) == u32_at(CRC_AT);
        if version != VERSION {
            let state = if intact { "" } else { " (and its checksum does not match)" };
            return Err(format!("format version {version} is unknown, this program knows {VERSION}{state}"));
        }
        if !intact {
            return Err("the header's checksum does not match".into());
        }
        let found = BlockId { session: SessionId(u64_at(16)), seq: u64_at(24) };
        if found != id {
            return Err(format!("the file holds block {found}"));
        }
        let (len, chunks) = (u32_at(32), u32_at(40));
        let sane = u32_at(12) == HEADER_BYTES as u32
            && u32_at(36) == CHUNK_BYTES
            && (1..=BLOCK_BYTES_MAX).contains(&len)
            && chunks <= CHUNKS_MAX
            && chunks == chunk_count(len);
        if !sane {
            return Err("the header contradicts itself".into());
        }
        let sums = (0..chunks as usize).map(|i| u32_at(SUMS_AT + 4 * i)).collect();
        Ok(Header { len, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (BlockId, Header) {
        let id = BlockId { session: SessionId(7), seq: 0x1234 };
        (id, Header { len: 70_000, sums: [0xdead_beef, 0x0bad_cafe].into() })
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let (id, header) = sample();
        let mut bytes = [0; HEADER_BYTES];
        header.encode(id, &mut bytes);
        assert_eq!(Header::decode(id, &bytes), Ok(header.clone()));
        assert_eq!(header.file_bytes(), 4096 + 73_728);
    }

    #[test]
    fn every_damaged_byte_of_a_header_is_noticed() {
        let (id, header) = sample();
        let mut bytes = [0; HEADER_BYTES];
        header.encode(id, &mut bytes);
        for at in 0..HEADER_BYTES {
            bytes[at] ^= 0x10;
            assert!(Header::decode(id, &bytes).is_err(), "byte {at}");
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn the_header_of_another_block_is_refused() {
        let (id, header) = sample();
        let mut bytes = [0; HEADER_BYTES];
        header.encode(id, &mut bytes);
        let other = BlockId { seq: id.seq + 1, ..id };
        assert_eq!(Header::decode(other, &bytes), Err("the file holds block 7-1234".into()));
    }

    #[test]
    fn the_format_of_a_header_never_changes() {
        let (id, header) = sample();
        let mut bytes = [0; HEADER_BYTES];
        header.encode(id, &mut bytes);
        let hex: String = bytes[..56].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "53686f616c426c6b0100000000100000070000000000000034120000000000007011010000000100020000000000\
             0000efbeaddefecaad0b"
        );
    }

    #[test]
    fn an_unknown_version_is_refused_by_name() {
        let (id, header) = sample();
        let mut bytes = [0; HEADER_BYTES];
        header.encode(id, &mut bytes);
        bytes[8] = 9;
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(
            Header::decode(id, &bytes),
            Err("format version 9 is unknown, this program knows 1".into())
        );
    }
}
