//! Grants room to sessions, out of the free room by `space`.

use crate::limits::{RECLAIM_WAIT_MAX, SHORT_BYTES};
use crate::shared::Shared;
use crate::space::Reservations;
use shoal_runtime::time::Instant;
use shoal_types::SessionId;
use shoal_wire::{MetaError, Space};
use std::sync::atomic::Ordering;

impl Shared {
    /// The room that has to be set aside now.
    pub(crate) fn reservations(&self) -> Reservations {
        let core = &self.replica.core;
        let log = core.driver.log_disk_bytes.load(Ordering::Relaxed);
        Reservations {
            // The log continues to grow while the store is flushed.
            log_growth: (core.sizes.log_bytes + core.sizes.log_bytes / 2).saturating_sub(log),
            unwritten: self.store.unwritten_bytes(),
            outstanding: self.sessions.outstanding_bytes(),
        }
    }

    /// The room that may be granted in addition, in bytes.
    pub(crate) fn grantable(&self) -> Result<u64, MetaError> {
        self.room.free(self.reservations())
    }

    /// Grants the wanted room, or what is free of it. If that would leave a session with very little, deleted
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
        core.flush_tasks.reclaim(core.removed.load(Ordering::Relaxed), until);
        let bytes = self.try_grant(session, want, 0)?.unwrap_or(0);
        tracing::debug!(%session, want, bytes, reservations = ?self.reservations(), waited = ?begun.elapsed(), "room is short");
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
