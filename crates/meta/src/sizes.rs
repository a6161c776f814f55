//! The sizes of a server's log, memtables and reserve on a disk of a given size.

use crate::limits::*;
use nix::sys::statvfs::statvfs;
use shoal_store::{LogOptions, RocksOptions};
use shoal_wire::MetaError;
use std::path::Path;

/// Sizes of a server's parts, derived from the disk's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of log after the last flush of the store that start the next one.
    pub(crate) log_bytes: u64,
    /// Bytes of one memtable of the store.
    pub(crate) memtable_bytes: usize,
    /// Bytes that are never granted.
    pub(crate) reserve_bytes: u64,
}

impl Sizes {
    /// The sizes for a disk.
    pub(crate) fn for_disk(total_bytes: u64) -> Sizes {
        let log_bytes = (total_bytes / LOG_DISK_PART).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
        let memtable_most = shoal_store::limits::MEMTABLE_BYTES_DEFAULT;
        Sizes {
            log_bytes,
            memtable_bytes: (log_bytes as usize / 2).clamp(MEMTABLE_BYTES_MIN, memtable_most),
            reserve_bytes: reserve_of(total_bytes),
        }
    }

    /// How much of the log a leader keeps after a state that is being fetched, in bytes.
    pub(crate) fn log_fetched_bytes(&self) -> u64 {
        (LOG_FETCHED_FACTOR * self.log_bytes).min(self.reserve_bytes / LOG_RESERVE_PART)
    }

    /// Options of the log: the size and the number of its segments.
    pub(crate) fn log_options(&self) -> LogOptions {
        LogOptions {
            segment_bytes: (self.log_bytes / LOG_SEGMENTS).max(shoal_store::limits::SEGMENT_BYTES_MIN),
            spare_segments: LOG_SEGMENTS as usize / 2,
        }
    }

    /// Options of the store.
    pub(crate) fn store_options(&self) -> RocksOptions {
        let most = shoal_store::limits::BLOB_FILE_BYTES_DEFAULT;
        RocksOptions {
            create: true,
            memtable_bytes: self.memtable_bytes,
            blob_file_bytes: (self.log_bytes / LOG_SEGMENTS).clamp(BLOB_FILE_BYTES_MIN, most),
            ..RocksOptions::default()
        }
    }
}

/// Total and free bytes of the disk of a directory.
pub(crate) fn disk_bytes(dir: &Path) -> Result<(u64, u64), MetaError> {
    let stat = statvfs(dir).map_err(|error| MetaError::Failed(format!("{}: {error}", dir.display())))?;
    // The types of these fields differ between platforms.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let (unit, total, free) =
        (stat.fragment_size() as u64, stat.blocks() as u64, stat.blocks_available() as u64);
    Ok((unit * total, unit * free))
}

/// Space that is never granted on a disk of this size, in bytes.
pub(crate) fn reserve_of(total_bytes: u64) -> u64 {
    (total_bytes / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_keeps_most_of_its_room_for_files() {
        let sizes = Sizes::for_disk(256 << 20);
        assert_eq!(sizes.log_bytes, 16 << 20);
        assert_eq!(sizes.reserve_bytes, RESERVE_BYTES_MIN);
        let sizes = Sizes::for_disk(4 << 40);
        assert_eq!((sizes.log_bytes, sizes.reserve_bytes), (LOG_BYTES_MAX, RESERVE_BYTES_MAX));
    }
}
