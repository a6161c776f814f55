//! The memory of the stores of a process: memtables, and the block cache. That has blocks of sorted tables,
//! of their indexes and of their filters, uncompressed.
//!
//! **Model.** A node runs one store per volume, so a cache per store would grow with the number of volumes.
//! There is one cache per process instead: each store that names no size of its own uses it, and busy volumes
//! displace idle ones.
//!
//! **Promises.** The cache holds at most its capacity, however many stores are open. The capacity may be
//! changed at any time; a smaller one takes effect at once. Memtables of all stores together are flushed when
//! they exceed what they may take; no writer waits for that.

use crate::limits::{
    BLOCK_CACHE_BYTES_MAX_DEFAULT, BLOCK_CACHE_BYTES_MIN, BLOCK_CACHE_MEMORY_PART, BLOCK_CACHE_SHARD_BITS,
    MEMTABLES_BYTES_MAX_DEFAULT,
};
use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};
use shoal_runtime::memory;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Counts the memtables of all stores. Where they exceed what they may take together, one is flushed early.
static MEMTABLES: LazyLock<WriteBufferManager> =
    LazyLock::new(|| WriteBufferManager::new_write_buffer_manager(MEMTABLES_BYTES_MAX_DEFAULT, false));

static SHARED: LazyLock<Mutex<Cache>> =
    LazyLock::new(|| Mutex::new(sized(default_bytes(memory::total_bytes()))));

fn shared() -> MutexGuard<'static, Cache> {
    // A panic elsewhere leaves the handle as it was.
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache of this capacity.
fn sized(bytes: usize) -> Cache {
    let mut options = LruCacheOptions::default();
    options.set_capacity(bytes);
    options.set_num_shard_bits(BLOCK_CACHE_SHARD_BITS);
    Cache::new_lru_cache_opts(&options)
}

/// The cache that a store uses: one of its own where a size is given, else the process's.
pub(crate) fn of(bytes: Option<usize>) -> Cache {
    bytes.map_or_else(|| shared().clone(), sized)
}

/// Sets the capacity of the process's cache, in bytes; at least [`BLOCK_CACHE_BYTES_MIN`].
pub fn set_shared_bytes(bytes: usize) {
    shared().set_capacity(bytes.max(BLOCK_CACHE_BYTES_MIN));
}

/// The manager of all memtables of the process.
pub(crate) fn memtables() -> &'static WriteBufferManager {
    &MEMTABLES
}

/// Sets what the memtables of all stores may take together, in bytes.
pub fn set_memtables_bytes(bytes: usize) {
    MEMTABLES.set_buffer_size(bytes);
}

/// Memory of the block cache and of all memtables, in bytes.
pub fn used_bytes() -> usize {
    shared().get_usage() + MEMTABLES.get_usage()
}

/// The capacity on a machine with this much memory, in bytes, where the administrator names none.
pub fn default_bytes(memory_bytes: usize) -> usize {
    (memory_bytes / BLOCK_CACHE_MEMORY_PART).clamp(BLOCK_CACHE_BYTES_MIN, BLOCK_CACHE_BYTES_MAX_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_share_of_memory_within_bounds() {
        assert_eq!(default_bytes(0), BLOCK_CACHE_BYTES_MIN);
        assert_eq!(default_bytes(8 << 30), (8 << 30) / BLOCK_CACHE_MEMORY_PART);
        assert_eq!(default_bytes(1 << 50), BLOCK_CACHE_BYTES_MAX_DEFAULT);
    }
}
