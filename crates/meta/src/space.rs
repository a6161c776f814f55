//! Room: the space that sessions may still write. A local success must not be refused later, so room is
//! granted ahead, and never twice. Neither log nor store nor brick may meet a full disk, so a part of the
//! space is never granted.
//!
//! Metadata and bricks may be on one disk or on two. From the free space of each disk these are set aside:
//! - a reserve in proportion to its size, which is never granted;
//! - what the log may still grow by before it is truncated;
//! - what the store holds in memory and has yet to write;
//! - what sessions hold.
//!
//! So a granted byte that ends up inline has room in the log and again in the store, and the store has the
//! reserve for compactions.

use crate::limits::INODE_ROOM_BYTES;
use crate::sizes::{disk_bytes, reserve_of};
use shoal_runtime::sync::{Mutex, MutexGuard};
use shoal_types::Statfs;
use shoal_wire::{BlockError, MetaError, VolumeBlocks};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The room of a volume.
pub(crate) struct Room {
    dir: PathBuf,
    bricks: Arc<dyn VolumeBlocks>,
    reserve_bytes: u64,
    /// The reserve was configured and does not follow from the sizes of disks.
    is_set: bool,
    /// Held while room is granted.
    granting: Mutex<()>,
}

/// Space to set aside, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reservations {
    /// The most by which the log may still grow.
    pub(crate) log_growth: u64,
    /// Changes that the store has yet to write.
    pub(crate) unwritten: u64,
    /// Grants of sessions.
    pub(crate) outstanding: u64,
}

impl Room {
    /// `reserve`: of this disk; `set`: replaces the reserves that follow from the sizes of this disk and the
    /// bricks' disks.
    pub(crate) fn new(dir: &Path, bricks: Arc<dyn VolumeBlocks>, reserve: u64, set: Option<u64>) -> Room {
        let (reserve_bytes, is_set) = (set.unwrap_or(reserve), set.is_some());
        Room { dir: dir.to_owned(), bricks, reserve_bytes, is_set, granting: Mutex::default() }
    }

    /// Space that may be granted in addition: free on both disks, and not set aside.
    pub(crate) fn free(&self, reservations: Reservations) -> Result<u64, MetaError> {
        let (_, here) = disk_bytes(&self.dir)?;
        let brick = self.bricks.room().map_err(|error| match error {
            BlockError::Unreachable(why) => MetaError::Unavailable(why),
            other => MetaError::Failed(other.to_string()),
        })?;
        // Some node may have its metadata and a brick on one disk, so the same is set aside on both, each in
        // its proportion.
        let kept = if self.is_set { self.reserve_bytes } else { reserve_of(brick.total_bytes) };
        let reservations = [reservations.log_growth, reservations.unwritten, reservations.outstanding];
        let rest = |free: u64, reserve: u64| {
            reservations.into_iter().fold(free.saturating_sub(reserve), u64::saturating_sub)
        };
        Ok(rest(here, self.reserve_bytes).min(rest(brick.free_bytes, kept)))
    }

    /// What `statfs` reports. The disk may have other users: the volume's size is what it holds plus what it
    /// may still take. What sessions hold counts as free, since they hold it to write into.
    pub(crate) fn statfs(
        &self,
        reservations: Reservations,
        used_bytes: u64,
        inodes: u64,
    ) -> Result<Statfs, MetaError> {
        let free_bytes = self.free(Reservations { outstanding: 0, ..reservations })?;
        Ok(Statfs {
            total_bytes: used_bytes.saturating_add(free_bytes),
            free_bytes,
            inodes,
            free_inodes: free_bytes / INODE_ROOM_BYTES,
        })
    }

    /// Held while room is granted, so that none is granted twice.
    pub(crate) fn granting(&self) -> MutexGuard<'_, ()> {
        self.granting.lock()
    }
}
