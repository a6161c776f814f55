//! How a client behaves.

use crate::limits;
use shoal_types::{Origin, Process};
use std::time::Duration;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the client, for administrators.
    pub name: String,
    /// Where the client runs, so that the servers do not wait for sessions that it left behind when it died.
    pub origin: Option<Origin>,
    /// Whether a process of this machine, in this PID namespace, has certainly ended.
    pub has_ended: fn(&Process) -> bool,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: usize,
    /// Room for cached blocks and read-ahead, in bytes.
    pub block_cache_bytes: usize,
    /// Opening the session gives up when no server of a cluster has led for this long.
    pub open_wait: Duration,
    /// Calls that have waited this long for servers or bricks fail with `EIO`; `None`: they wait as long as
    /// it takes.
    pub fail_after: Option<Duration>,
    /// [`Client::close`](crate::Client::close) gives up when nothing has become durable for this long.
    pub close_wait: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: format!("process {}", std::process::id()),
            origin: None,
            has_ended: |_| false,
            cache_bytes: limits::CACHE_BYTES_DEFAULT,
            block_cache_bytes: limits::BLOCK_CACHE_BYTES_DEFAULT,
            open_wait: limits::OPEN_WAIT_DEFAULT,
            fail_after: None,
            close_wait: limits::CLOSE_WAIT_DEFAULT,
        }
    }
}
