//! Who may still write how much. A local success must not be refused later, so room is granted ahead and never promised
//! twice; and the log and the store must never meet a full disk, so some of it is never granted.

use crate::limits::*;
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use shoal_types::SessionId;
use shoal_wire::{BlockService, MetaError, Space};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// See the module.
pub(crate) struct Room {
    dir: PathBuf,
    reserve_bytes: Option<u64>,
    /// What each session has been granted and not yet turned into committed data.
    outstanding: Mutex<HashMap<SessionId, u64>>,
}

/// Total and free bytes of the disk that a directory is on.
pub(crate) fn disk(dir: &Path) -> Result<(u64, u64), MetaError> {
    let stat = statvfs(dir).map_err(|error| MetaError::Failed(format!("{}: {error}", dir.display())))?;
    // The types of these fields differ between platforms.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let (unit, total, free) =
        (stat.fragment_size() as u64, stat.blocks() as u64, stat.blocks_available() as u64);
    Ok((unit * total, unit * free))
}

impl Room {
    pub(crate) fn new(dir: &Path, reserve_bytes: Option<u64>) -> Room {
        Room { dir: dir.to_owned(), reserve_bytes, outstanding: Mutex::default() }
    }

    fn reserve(&self, total: u64) -> u64 {
        self.reserve_bytes
            .unwrap_or_else(|| (total / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX))
    }

    /// What is free and not reserved: the less of both disks.
    pub(crate) fn free(&self, bricks: &dyn BlockService) -> Result<u64, MetaError> {
        let (meta_total, meta_free) = disk(&self.dir)?;
        let brick = bricks.statfs().map_err(|error| MetaError::Failed(error.to_string()))?;
        Ok(meta_free
            .saturating_sub(self.reserve(meta_total))
            .min(brick.free_bytes.saturating_sub(self.reserve(brick.total_bytes))))
    }

    /// Grants as much as is wanted, or what there is.
    pub(crate) fn grant(
        &self,
        session: SessionId,
        space: Space,
        bricks: &dyn BlockService,
    ) -> Result<u64, MetaError> {
        let mut outstanding = self.outstanding.lock();
        outstanding.insert(session, space.outstanding_bytes);
        if space.want_bytes == 0 {
            return Ok(0);
        }
        let free = self.free(bricks)?;
        let promised: u64 = outstanding.values().sum();
        let granted = (free / ROOM_AMPLIFICATION).saturating_sub(promised).min(space.want_bytes);
        *outstanding.entry(session).or_default() += granted;
        Ok(granted)
    }

    /// A session has ended: what it had left is free again.
    pub(crate) fn end(&self, session: SessionId) {
        self.outstanding.lock().remove(&session);
    }
}
