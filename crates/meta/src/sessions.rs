//! The sessions that are alive, as far as time has a say in it.
//!
//! The namespace knows which sessions exist and what they own; that is in the log. This table knows when each was last heard of
//! and how much room it holds. It lives in memory: after a restart it is empty, and the sessions of before are ended, since in a
//! single process their client died with the server. (With clients elsewhere they will have a grace period to come back in.)
//!
//! **Fencing.** A session that is not in the table is refused at the door; one that is ended while its batches are under way is
//! refused by the log, where its end comes before them.

use parking_lot::Mutex;
use shoal_types::SessionId;
use shoal_wire::MetaError;
use std::collections::HashMap;
use std::time::{Duration, Instant};

struct Living {
    client: String,
    renewed: Instant,
    /// Bytes that it was granted and that are not committed, as it last said, and what was granted since.
    outstanding_bytes: u64,
}

/// The table.
pub(crate) struct Sessions {
    living: Mutex<HashMap<SessionId, Living>>,
    dead_after: Duration,
    /// Held while a session begins, so that two cannot both find the volume free.
    pub(crate) opening: Mutex<()>,
}

impl Sessions {
    /// An empty table; whoever has not renewed for `dead_after` may be ended for another's sake.
    pub(crate) fn new(dead_after: Duration) -> Sessions {
        Sessions { living: Mutex::default(), dead_after, opening: Mutex::default() }
    }

    /// A session has begun.
    pub(crate) fn add(&self, session: SessionId, client: String) {
        let living = Living { client, renewed: Instant::now(), outstanding_bytes: 0 };
        self.living.lock().insert(session, living);
    }

    /// A session has ended. Answers whether it was alive.
    pub(crate) fn remove(&self, session: SessionId) -> bool {
        self.living.lock().remove(&session).is_some()
    }

    /// Refuses a session that has ended.
    pub(crate) fn check(&self, session: SessionId) -> Result<(), MetaError> {
        if self.living.lock().contains_key(&session) { Ok(()) } else { Err(MetaError::Fenced(session)) }
    }

    /// A sign of life.
    pub(crate) fn renew(&self, session: SessionId) -> Result<(), MetaError> {
        self.with(session, |_| ())
    }

    /// What a session says it holds.
    pub(crate) fn report(&self, session: SessionId, outstanding_bytes: u64) -> Result<(), MetaError> {
        self.with(session, |living| living.outstanding_bytes = outstanding_bytes)
    }

    /// A session has been granted room.
    pub(crate) fn granted(&self, session: SessionId, bytes: u64) -> Result<(), MetaError> {
        self.with(session, |living| living.outstanding_bytes = living.outstanding_bytes.saturating_add(bytes))
    }

    /// Room that all sessions hold, in bytes.
    pub(crate) fn outstanding_bytes(&self) -> u64 {
        self.living.lock().values().map(|living| living.outstanding_bytes).fold(0, u64::saturating_add)
    }

    /// Those that count as dead, if all do; otherwise one that lives, and its client.
    pub(crate) fn dead(&self) -> Result<Vec<SessionId>, (SessionId, String)> {
        let living = self.living.lock();
        match living.iter().find(|(_, one)| one.renewed.elapsed() < self.dead_after) {
            Some((id, one)) => Err((*id, one.client.clone())),
            None => Ok(living.keys().copied().collect()),
        }
    }

    /// How many are alive.
    pub(crate) fn count(&self) -> usize {
        self.living.lock().len()
    }

    fn with<T>(&self, session: SessionId, change: impl FnOnce(&mut Living) -> T) -> Result<T, MetaError> {
        let mut table = self.living.lock();
        let living = table.get_mut(&session).ok_or(MetaError::Fenced(session))?;
        living.renewed = Instant::now();
        Ok(change(living))
    }
}
