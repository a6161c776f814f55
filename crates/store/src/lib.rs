//! What the metadata server keeps on disk: the state machine's store and the log that rebuilds it.
//!
//! - [`RocksStore`] implements the namespace's key-value trait over RocksDB, without a write-ahead log: after
//!   a crash it holds a prefix of what was written, at least up to the last flush.
//! - [`RaftLog`] is that write-ahead log: the one place where an acknowledged change is durable first.
//! - [`conformance`] is the suite that every key-value store must pass.
//!
//! Nothing here knows what the keys, the values and the log's payloads mean.

pub mod cache;
pub mod checksum;
pub mod conformance;
pub mod limits;
pub mod log;
mod rocks;

pub use log::{LogEntry, LogError, LogOptions, RaftLog};
pub use rocks::{RocksOptions, RocksSnapshot, RocksStore};
