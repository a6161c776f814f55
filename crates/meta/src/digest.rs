//! A digest of a whole state, by which replicas are compared.

use shoal_namespace::keys;
use shoal_namespace::kv::{Flow, KvRead, StoreError};
use xxhash_rust::xxh3::Xxh3;

/// Digest of every key and value. Reads the whole store.
pub fn digest(state: &impl KvRead) -> Result<u128, StoreError> {
    let mut digest = Xxh3::new();
    let (from, to) = keys::everything();
    state.scan(&from, &to, &mut |key, value| {
        for part in [key, value] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Flow::Continue(())
    })?;
    Ok(digest.digest128())
}
