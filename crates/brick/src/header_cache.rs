//! Headers of blocks read or written lately. Blocks never change, so what is remembered stays right until the
//! block is deleted.

use crate::header::Header;
use crate::limits::HEADERS_CACHED_MAX;
use parking_lot::Mutex;
use shoal_types::BlockId;
use std::collections::HashMap;
use std::sync::Arc;

/// Two generations: when the young one is full it becomes the old one, and what was old and not used since is
/// forgotten.
#[derive(Default)]
pub(crate) struct HeaderCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<BlockId, Arc<Header>>,
    old: HashMap<BlockId, Arc<Header>>,
}

impl HeaderCache {
    pub fn get(&self, id: BlockId) -> Option<Arc<Header>> {
        let mut caches = self.0.lock();
        if let Some(header) = caches.young.get(&id) {
            return Some(header.clone());
        }
        let header = caches.old.remove(&id)?;
        caches.insert(id, header.clone());
        Some(header)
    }

    pub fn insert(&self, id: BlockId, header: Arc<Header>) {
        self.0.lock().insert(id, header);
    }

    pub fn remove(&self, id: BlockId) {
        let mut caches = self.0.lock();
        caches.young.remove(&id);
        caches.old.remove(&id);
    }
}

impl Generations {
    fn insert(&mut self, id: BlockId, header: Arc<Header>) {
        if self.young.len() >= HEADERS_CACHED_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let cache = HeaderCache::default();
        let id = |seq| BlockId { session: SessionId(1), seq };
        let header = Arc::new(Header { len: 1, sums: [0].into() });
        for seq in 0..3 * HEADERS_CACHED_MAX as u64 {
            cache.insert(id(seq), header.clone());
            assert!(cache.get(id(0)).is_some(), "used at every step, forgotten at {seq}");
        }
        let caches = cache.0.lock();
        assert!(caches.young.len() <= HEADERS_CACHED_MAX && caches.old.len() <= HEADERS_CACHED_MAX);
    }
}
