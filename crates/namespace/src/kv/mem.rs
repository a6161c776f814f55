//! A store in memory, for tests and simulations.

use super::{Flow, KvRead, KvStore, StoreError, WriteBatch};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

type Map = BTreeMap<Vec<u8>, Bytes>;

/// An ordered map in memory that keeps all of [`KvStore`]'s promises but the one about [`KvStore::flush`].
#[derive(Default, Debug)]
pub struct MemStore {
    map: RwLock<Arc<Map>>,
}

/// A view of a [`MemStore`] at one moment.
#[derive(Clone, Debug)]
pub struct MemSnapshot(Arc<Map>);

impl MemStore {
    /// An empty store.
    pub fn new() -> MemStore {
        MemStore::default()
    }

    fn view(&self) -> MemSnapshot {
        MemSnapshot(Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl KvRead for MemSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
    ) -> Result<(), StoreError> {
        if from < to {
            for (key, value) in
                self.0.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)))
            {
                if visit(key, value).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl KvRead for MemStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.view().get(key)
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
    ) -> Result<(), StoreError> {
        self.view().scan(from, to, visit)
    }
}

impl KvStore for MemStore {
    type Snapshot<'a> = MemSnapshot;

    fn snapshot(&self) -> MemSnapshot {
        self.view()
    }

    fn write(&self, batch: &WriteBatch) -> Result<(), StoreError> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        // Copied only while a snapshot is alive.
        let map = Arc::make_mut(&mut map);
        for (key, value) in &batch.changes {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
