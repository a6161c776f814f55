//! The limits of the driver.

use std::time::Duration;

/// Bytes of a volume's id: the specification's limit for a string.
pub const ID_BYTES_MAX: usize = 128;

/// Bytes of a name that a volume is created by: the specification's limit for a string.
pub const NAME_BYTES_MAX: usize = 128;

/// Bytes of the name of a directory that the driver makes. `pvc-` and a UUID take 40.
pub const DIRECTORY_BYTES_MAX: usize = 64;

/// Bytes of a path in a request: `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;

/// Volumes that a node may have staged. Each is a mount, a process of its own with its own cache.
pub const VOLUMES_PER_NODE_MAX: i64 = 100;

/// Calls in flight; more are refused. Each occupies a thread.
pub const CALLS_MAX: usize = 64;

/// Volumes in one answer to ListVolumes, about 200 bytes each: gRPC's messages end at 4 MiB.
pub const LISTED_MAX: usize = 10_000;

/// Bytes of a request. Those of the driver's calls have a few hundred.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A record of a volume is not longer.
pub const RECORD_BYTES_MAX: u64 = 4096;

/// Calls that are in flight when the driver is told to stop have this long to end.
pub const STOP_PATIENCE: Duration = Duration::from_secs(20);
