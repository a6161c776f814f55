//! A mounted volume, as a plain Rust API: session, cache, journal, content. No FUSE in it.

mod api;

pub use api::{Caller, Entry, Failure, Fallocate, Reply, Seek, Visit, Wait};
use shoal_wire::{BlockService, MetaService};
use std::sync::Arc;

/// A session with a volume. Calls may be made from many threads at once.
pub struct Client;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who mounts, for people to read.
    pub name: String,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: usize,
    /// Room for cached blocks and read-ahead, in bytes.
    pub block_cache_bytes: usize,
}

impl Client {
    /// Opens a session.
    pub fn open(
        meta: Arc<dyn MetaService>,
        bricks: Arc<dyn BlockService>,
        options: Options,
    ) -> Result<Arc<Client>, shoal_wire::MetaError> {
        todo!()
    }
    /// What the client has done so far: name, value pairs (journal depth, cache hits, bytes, ...).
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        todo!()
    }
    /// Commits everything and ends the session. Later calls fail with `ENOTCONN`.
    pub fn close(&self) -> Result<(), shoal_types::Errno> {
        todo!()
    }
}
