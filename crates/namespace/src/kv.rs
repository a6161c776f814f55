//! The ordered key-value store under a namespace.

mod mem;

use bytes::Bytes;
pub use mem::{MemSnapshot, MemStore};

/// A store could not do what it was asked to: the disk failed, is full, or holds damaged data. A caller that
/// gets this stops using the store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("metadata store: {0}")]
pub struct StoreError(pub String);

/// What a scan does after an entry.
pub type Flow = std::ops::ControlFlow<()>;

/// A consistent view of ordered keys and values.
pub trait KvRead {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
    /// The values of several keys, in their order; a store may do better than one by one.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    /// Visits the entries with `from <= key < to` in the order of their keys until the visitor breaks off.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
    ) -> Result<(), StoreError>;
}

impl<T: KvRead + ?Sized> KvRead for std::sync::Arc<T> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        (**self).get(key)
    }
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        (**self).multi_get(keys)
    }
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
    ) -> Result<(), StoreError> {
        (**self).scan(from, to, visit)
    }
}

/// Changes that happen all or not at all. Sorted by key, each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// Keys with their new values; `None` removes a key.
    pub changes: std::collections::BTreeMap<Vec<u8>, Option<Bytes>>,
}

/// A store that can be written. Reads see every completed write.
///
/// Writes are atomic but not durable: after a crash the store holds some prefix of them, at least up to the
/// last [`KvStore::flush`]. Replaying the Raft log brings back the rest.
pub trait KvStore: KvRead + Send + Sync + 'static {
    /// A view that later writes do not change.
    type Snapshot<'a>: KvRead
    where
        Self: 'a;
    /// Takes such a view.
    fn snapshot(&self) -> Self::Snapshot<'_>;
    /// Makes the changes.
    fn write(&self, batch: &WriteBatch) -> Result<(), StoreError>;
    /// Everything written before is durable when this returns.
    fn flush(&self) -> Result<(), StoreError>;
}
