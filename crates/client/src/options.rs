//! The configuration of a client.

use crate::limits;
use shoal_runtime::budget::Budget;
use shoal_types::limits::INLINE_BYTES_MAX;
use shoal_types::{Origin, Process};
use std::sync::Arc;
use std::time::Duration;

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the client, for administrators.
    pub name: String,
    /// The machine, boot and process of the client. Lets clients that start on the same machine end the
    /// sessions of dead ones at once.
    pub origin: Option<Origin>,
    /// Whether a process of this machine, in this PID namespace, has certainly ended.
    pub has_ended: fn(&Process) -> bool,
    /// The budget for all buffers and caches of the client.
    pub memory: Arc<Budget>,
    /// Largest size of the cache of metadata and small contents, in bytes.
    pub cache_bytes: usize,
    /// Largest size of the cache of blocks and read-ahead, in bytes.
    pub block_cache_bytes: usize,
    /// Content up to this size is kept in the metadata, if this is less than the volume's limit, in bytes.
    pub inline_bytes_max: u32,
    /// Longest time that an operation stays in the open batch of the journal. With zero, a batch holds what
    /// is done while the one before is being sent.
    pub journal_age_max: Duration,
    /// Whether directories are prefetched for programs that walk through a tree.
    pub tree_read_ahead: bool,
    /// Whether blocks are fetched ahead of a program that reads a file in sequence.
    pub file_read_ahead: bool,
    /// Opening the session fails when no metadata leader has answered for this long.
    pub open_wait: Duration,
    /// Calls that have waited this long for servers or bricks fail with `EIO`; `None`: they wait without a
    /// limit.
    pub fail_after: Option<Duration>,
    /// [`Client::close`](crate::Client::close) gives up when nothing was committed for this long.
    pub close_wait: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: format!("process {}", std::process::id()),
            origin: None,
            has_ended: |_| false,
            memory: Budget::new(limits::MEMORY_BYTES_DEFAULT),
            cache_bytes: limits::CACHE_BYTES_DEFAULT,
            block_cache_bytes: limits::BLOCK_CACHE_BYTES_DEFAULT,
            inline_bytes_max: INLINE_BYTES_MAX,
            journal_age_max: limits::JOURNAL_AGE_MAX,
            tree_read_ahead: true,
            file_read_ahead: true,
            open_wait: limits::OPEN_WAIT_DEFAULT,
            fail_after: None,
            close_wait: limits::CLOSE_WAIT_DEFAULT,
        }
    }
}
