//! Encoding of everything that leaves a process or stays on a disk: a version byte, then
//! [postcard](https://postcard.jamesmunns.com/wire-format).

use crate::Op;
pub use crate::op::OPS_VERSION_FLAGS;
use serde::{Serialize, de::DeserializeOwned};

/// The newest version of an encoded list of operations. Version 1 lacks [`Op::SetFlags`] and
/// [`Op::CreateUnnamed`].
pub const OPS_VERSION: u8 = 2;

/// Encodes the operations of a batch, for the wire and the log alike, in the oldest version that has all of
/// them: programs that know no newer one read most batches.
pub fn encode_ops(ops: &[Op]) -> Vec<u8> {
    encode(ops.iter().map(Op::version).max().unwrap_or(1), &ops)
}

/// The version of encoded operations.
pub fn ops_version(bytes: &[u8]) -> Option<u8> {
    bytes.first().copied()
}

/// How many operations the bytes say that they encode; `None` if they cannot say so.
pub fn ops_count(bytes: &[u8]) -> Option<u64> {
    let (_, list) = bytes.split_first()?;
    postcard::take_from_bytes(list).ok().map(|(count, _)| count)
}

/// Decodes the operations of a batch, of a version up to `known`. An operation that the version lacks is
/// malformed, as it is to programs that know no newer version.
pub fn decode_ops_up_to(known: u8, bytes: &[u8]) -> Result<Vec<Op>, CodecError> {
    let version = ops_version(bytes).filter(|version| (1..=known).contains(version)).unwrap_or(known);
    let ops: Vec<Op> = decode(version, bytes)?;
    match ops.iter().all(|op| op.version() <= version) {
        true => Ok(ops),
        false => Err(CodecError::Malformed(postcard::Error::DeserializeBadEnum)),
    }
}

/// Decodes the operations of a batch, of any known version.
pub fn decode_ops(bytes: &[u8]) -> Result<Vec<Op>, CodecError> {
    decode_ops_up_to(OPS_VERSION, bytes)
}

/// Bytes that are not what they should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Nothing there at all.
    #[error("empty record")]
    Empty,
    /// Written by a newer Shoal, or not by Shoal.
    #[error("format version {found} is unknown to this program, which reads up to {known}")]
    Version {
        /// In the record.
        found: u8,
        /// The newest this program reads.
        known: u8,
    },
    /// The bytes do not form a value.
    #[error("malformed record: {0}")]
    Malformed(#[from] postcard::Error),
    /// Bytes left over behind the value.
    #[error("{0} stray bytes behind a record")]
    Trailing(usize),
}

/// Encodes a value under a version.
pub fn encode<T: Serialize>(version: u8, value: &T) -> Vec<u8> {
    encode_behind(Vec::with_capacity(64), version, value)
}

/// The same behind bytes that are there already.
pub fn encode_behind<T: Serialize>(mut out: Vec<u8>, version: u8, value: &T) -> Vec<u8> {
    out.push(version);
    postcard::to_extend(value, out).expect("encoding into memory cannot fail")
}

/// Decodes a value written under exactly this version.
pub fn decode<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Result<T, CodecError> {
    match bytes.split_first() {
        None => Err(CodecError::Empty),
        Some((&found, _)) if found != version => Err(CodecError::Version { found, known: version }),
        Some((_, body)) => {
            let (value, rest) = postcard::take_from_bytes(body)?;
            if rest.is_empty() { Ok(value) } else { Err(CodecError::Trailing(rest.len())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_records_are_errors_and_never_values() {
        let good = encode(1, &(7u64, "seven".to_string()));
        assert_eq!(decode::<(u64, String)>(1, &good), Ok((7, "seven".to_string())));
        assert_eq!(decode::<(u64, String)>(1, &[]), Err(CodecError::Empty));
        assert_eq!(decode::<(u64, String)>(2, &good), Err(CodecError::Version { found: 1, known: 2 }));
        assert!(matches!(decode::<(u64, String)>(1, &good[..4]), Err(CodecError::Malformed(_))));
        let mut long = good.clone();
        long.push(0);
        assert_eq!(decode::<(u64, String)>(1, &long), Err(CodecError::Trailing(1)));
    }
}
