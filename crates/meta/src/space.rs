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

use crate::limits::*;
use crate::shared::Shared;
use nix::sys::statvfs::statvfs;
use shoal_runtime::sync::{Mutex, MutexGuard};
use shoal_runtime::time::Instant;
use shoal_types::{SessionId, Statfs};
use shoal_wire::{BlockError, MetaError, Space, VolumeBlocks};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// What has to be set aside, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dues {
    /// What the log may still grow by.
    log_growth: u64,
    /// What the store has yet to write.
    unwritten: u64,
    /// What sessions hold.
    outstanding: u64,
}

/// Total and free bytes of the disk of a directory.
pub(crate) fn disk(dir: &Path) -> Result<(u64, u64), MetaError> {
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

impl Room {
    /// `reserve`: of this disk; `set`: replaces the reserves that follow from the sizes of this disk and the
    /// bricks' disks.
    pub(crate) fn new(dir: &Path, bricks: Arc<dyn VolumeBlocks>, reserve: u64, set: Option<u64>) -> Room {
        let (reserve_bytes, is_set) = (set.unwrap_or(reserve), set.is_some());
        Room { dir: dir.to_owned(), bricks, reserve_bytes, is_set, granting: Mutex::default() }
    }

    /// What may be granted in addition: free on both disks, and not set aside.
    fn free(&self, dues: Dues) -> Result<u64, MetaError> {
        let (_, here) = disk(&self.dir)?;
        let brick = self.bricks.room().map_err(|error| match error {
            BlockError::Unreachable(why) => MetaError::Unavailable(why),
            other => MetaError::Failed(other.to_string()),
        })?;
        // Some node may have its metadata and a brick on one disk, so the same is set aside on both, each in
        // its proportion.
        let kept = if self.is_set { self.reserve_bytes } else { reserve_of(brick.total_bytes) };
        let dues = [dues.log_growth, dues.unwritten, dues.outstanding];
        let rest = |free: u64, reserve: u64| {
            dues.into_iter().fold(free.saturating_sub(reserve), u64::saturating_sub)
        };
        Ok(rest(here, self.reserve_bytes).min(rest(brick.free_bytes, kept)))
    }

    /// What `statfs` reports. The disk may have other users: the volume's size is what it holds plus what it
    /// may still take. What sessions hold counts as free, since they hold it to write into.
    pub(crate) fn statfs(&self, dues: Dues, used_bytes: u64, inodes: u64) -> Result<Statfs, MetaError> {
        let free_bytes = self.free(Dues { outstanding: 0, ..dues })?;
        Ok(Statfs {
            total_bytes: used_bytes.saturating_add(free_bytes),
            free_bytes,
            inodes,
            free_inodes: free_bytes / INODE_ROOM_BYTES,
        })
    }

    fn granting(&self) -> MutexGuard<'_, ()> {
        self.granting.lock()
    }
}

impl Shared {
    /// What has to be set aside now.
    pub(crate) fn dues(&self) -> Dues {
        let core = &self.replica.core;
        let log = core.driver.log_disk_bytes.load(Ordering::Relaxed);
        Dues {
            // The log goes on growing while the store is flushed.
            log_growth: (core.sizes.log_bytes + core.sizes.log_bytes / 2).saturating_sub(log),
            unwritten: self.store.unwritten_bytes(),
            outstanding: self.sessions.outstanding_bytes(),
        }
    }

    /// What may be granted in addition, in bytes.
    pub(crate) fn grantable(&self) -> Result<u64, MetaError> {
        self.room.free(self.dues())
    }

    /// Grants as much as is wanted, or what there is. If that would leave a session with very little, deleted
    /// space is reclaimed first.
    pub(crate) fn grant_room(&self, session: SessionId, room: Space) -> Result<u64, MetaError> {
        let want = room.want_bytes;
        let least = want.min(SHORT_BYTES.saturating_sub(room.outstanding_bytes));
        if let Some(bytes) = self.try_grant(session, want, least)? {
            return Ok(bytes);
        }
        let begun = Instant::now();
        let until = begun + RECLAIM_WAIT_MAX;
        self.background.wait_idle(until);
        let core = &self.replica.core;
        core.upkeep.reclaim(core.removed.load(Ordering::Relaxed), until);
        let bytes = self.try_grant(session, want, 0)?.unwrap_or(0);
        tracing::debug!(%session, want, bytes, dues = ?self.dues(), waited = ?begun.elapsed(), "room is short");
        Ok(bytes)
    }

    /// Grants what there is up to `want`, if it is at least `least`.
    fn try_grant(&self, session: SessionId, want: u64, least: u64) -> Result<Option<u64>, MetaError> {
        let _one = self.room.granting();
        let bytes = self.grantable()?.min(want);
        if bytes < least {
            return Ok(None);
        }
        self.sessions.granted(session, bytes)?;
        Ok(Some(bytes))
    }
}
