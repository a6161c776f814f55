//! Decoded reads of the store, and the error of a store that fails or holds damaged records.

use crate::kv::{Flow, KvRead, StoreError};
use crate::{Fault, keys, records};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use shoal_types::limits::INLINE_BYTES_MAX;
use shoal_types::{Extent, XattrName};

/// Why a store could not answer. A caller that gets this stops using the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store holds what no Shoal has written.
    #[error("metadata record {key} is damaged: {what}")]
    Damaged {
        /// The record's key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
}

impl TreeError {
    /// A damaged record.
    pub fn damaged(key: &[u8], what: impl ToString) -> TreeError {
        let key = keys::Key::decode(key).map_or_else(|| format!("{key:02x?}"), |key| format!("{key:?}"));
        TreeError::Damaged { key, what: what.to_string() }
    }
}

impl From<TreeError> for Fault<TreeError> {
    fn from(error: TreeError) -> Fault<TreeError> {
        Fault::Tree(error)
    }
}

impl From<StoreError> for Fault<TreeError> {
    fn from(error: StoreError) -> Fault<TreeError> {
        Fault::Tree(error.into())
    }
}

/// Reads and decodes a record.
pub(crate) fn read<T: DeserializeOwned>(
    store: &(impl KvRead + ?Sized),
    key: &[u8],
) -> Result<Option<T>, TreeError> {
    match store.get(key)? {
        None => Ok(None),
        Some(value) => Ok(Some(records::decode(&value).map_err(|error| TreeError::damaged(key, error))?)),
    }
}

/// Scans with a visitor that may fail.
pub(crate) fn scan(
    store: &(impl KvRead + ?Sized),
    (from, to): &keys::KeyRange,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<Flow, TreeError>,
) -> Result<(), TreeError> {
    let mut outcome = Ok(());
    store.scan(from, to, &mut |key, value| match visit(key, value) {
        Ok(flow) => flow,
        Err(error) => {
            outcome = Err(error);
            Flow::Break(())
        }
    })?;
    outcome
}

/// Takes an attribute's record apart.
pub(crate) fn split_xattr<'v>(key: &[u8], value: &'v [u8]) -> Result<(XattrName, &'v [u8]), TreeError> {
    let value = records::decode_xattr(value).map_err(|error| TreeError::damaged(key, error))?;
    match keys::Key::decode(key) {
        Some(keys::Key::Xattr(_, name)) => Ok((name, value)),
        _ => Err(TreeError::damaged(key, "not the key of an extended attribute")),
    }
}

/// Reads the value of an extended attribute.
pub(crate) fn read_xattr(store: &(impl KvRead + ?Sized), key: &[u8]) -> Result<Option<Bytes>, TreeError> {
    match store.get(key)? {
        None => Ok(None),
        Some(record) => {
            let value = records::decode_xattr(&record).map_err(|error| TreeError::damaged(key, error))?;
            Ok(Some(record.slice_ref(value)))
        }
    }
}

/// Decodes an extent's record, with its offset.
pub(crate) fn decode_extent(key: &[u8], value: &[u8]) -> Result<(u64, Extent), TreeError> {
    decode_extent_within(key, value, None)
}

/// As [`decode_extent`]. Of an inline extent within the range `[start, end)` only the length is true.
pub(crate) fn decode_extent_within(
    key: &[u8],
    value: &[u8],
    range: Option<(u64, u64)>,
) -> Result<(u64, Extent), TreeError> {
    static ZEROS: [u8; INLINE_BYTES_MAX as usize] = [0; INLINE_BYTES_MAX as usize];
    let Some(keys::Key::Extent(_, end)) = keys::Key::decode(key) else {
        return Err(TreeError::damaged(key, "not the key of an extent"));
    };
    let inline = |bytes: &[u8]| {
        let offset = end.saturating_sub(bytes.len() as u64);
        match (range, ZEROS.get(..bytes.len())) {
            (Some((from, to)), Some(zeros)) if offset >= from && end <= to => Bytes::from_static(zeros),
            _ => Bytes::copy_from_slice(bytes),
        }
    };
    records::decode_extent_with(end, value, inline).map_err(|error| TreeError::damaged(key, error))
}
