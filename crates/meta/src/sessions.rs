//! The sessions that are alive, as far as time decides it.
//!
//! The namespace knows which sessions exist and what they own; that is in the log. This table knows when each
//! was last heard from and how much room it holds. It is in the memory of the group's leader: a new leader
//! takes all sessions for alive and just renewed. In a single process the sessions of before a restart are
//! ended, since their client died with the server.
//!
//! **Fencing.** A session that is not in the table is refused at once. If it ends while its batches are in
//! flight, the log refuses them, as its end comes before them there.

use crate::limits::{ADOPTED_ROOM_BYTES, REBOOT_SILENCE, SIBLINGS_MAX};
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{Origin, Process, SessionId};
use shoal_wire::{MetaError, SessionRequest};
use std::collections::BTreeMap;

struct Living {
    client: String,
    /// Chosen by the client; `None` where the session began under an earlier leader.
    instance: Option<u128>,
    /// The machine, boot and process of the client, if known.
    origin: Option<Origin>,
    renewed: Instant,
    /// This leader has received a request of the session.
    heard: bool,
    /// Bytes that it was granted and has not committed: its last report, and what was granted since.
    outstanding_bytes: u64,
}

/// The table.
pub(crate) struct Sessions {
    living: Mutex<BTreeMap<SessionId, Living>>,
    dead_after: Duration,
    /// Held while a session begins, so that a client that retries does not get two.
    pub(crate) opening: Mutex<()>,
}

impl Sessions {
    /// An empty table. A session that has not renewed for `dead_after` may be fenced if it blocks another.
    pub(crate) fn new(dead_after: Duration) -> Sessions {
        Sessions { living: Mutex::default(), dead_after, opening: Mutex::default() }
    }

    /// A session has begun.
    pub(crate) fn add(&self, session: SessionId, request: SessionRequest) {
        let SessionRequest { client, instance, origin, .. } = request;
        let (instance, renewed) = (Some(instance), Instant::now());
        let living = Living { client, instance, origin, renewed, heard: true, outstanding_bytes: 0 };
        self.living.lock().insert(session, living);
    }

    /// A session in the store of a new leader. When it last renewed is unknown.
    pub(crate) fn adopt(&self, sessions: impl Iterator<Item = (SessionId, String, Option<Origin>)>) {
        let now = Instant::now();
        let adopted = |(id, client, origin)| {
            let outstanding_bytes = ADOPTED_ROOM_BYTES;
            (id, Living { client, instance: None, origin, renewed: now, heard: false, outstanding_bytes })
        };
        *self.living.lock() = sessions.map(adopted).collect();
    }

    /// A session has ended. Returns whether it was alive.
    pub(crate) fn remove(&self, session: SessionId) -> bool {
        self.living.lock().remove(&session).is_some()
    }

    /// Refuses a session that has ended.
    pub(crate) fn check(&self, session: SessionId) -> Result<(), MetaError> {
        if self.living.lock().contains_key(&session) { Ok(()) } else { Err(MetaError::Fenced(session)) }
    }

    /// Renews a session.
    pub(crate) fn renew(&self, session: SessionId) -> Result<(), MetaError> {
        self.with(session, |_| ())
    }

    /// A session reports the room that it holds.
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

    /// Sessions that a new session of the same client replaces.
    ///
    /// These are sessions that it opened without receiving the reply, and those of the same name that a dead
    /// process left behind: silent for longer than any live one. Sessions of earlier boots of its machine are
    /// among them, unless this leader has just heard from them. A machine may be mistaken for another, so a
    /// recent request counts more than its boot.
    pub(crate) fn superseded_by(&self, request: &SessionRequest) -> Vec<SessionId> {
        let SessionRequest { client, instance, origin, .. } = request;
        let instance = *instance;
        let living = self.living.lock();
        let of_earlier_run = |one: &Living| match (origin, &one.origin) {
            (Some(now), Some(then)) => {
                now.outlives(then) && (!one.heard || one.renewed.elapsed() > REBOOT_SILENCE)
            }
            _ => false,
        };
        let left = |one: &Living| one.client == *client && one.renewed.elapsed() > self.dead_after / 2;
        let its_own = |one: &Living| match one.instance {
            Some(begun_by) => instance != 0 && begun_by == instance,
            // It was opened under an earlier leader, and has sent nothing to this one.
            None => one.client == *client && !one.heard,
        };
        let is_dead = |one: &Living| its_own(one) || left(one) || of_earlier_run(one);
        living.iter().filter(|(_, one)| is_dead(one)).map(|(session, _)| *session).collect()
    }

    /// Sessions of the same boot of the same machine, with processes whose existence a new session there can
    /// check.
    pub(crate) fn siblings(&self, origin: Option<&Origin>) -> Vec<(SessionId, Process)> {
        let Some(origin) = origin else { return Vec::new() };
        let living = self.living.lock();
        let process = |one: &Living| Some(one.origin.as_ref().filter(|its| origin.can_look_up(its))?.process);
        let all = living.iter().filter_map(|(session, one)| Some((*session, process(one)?)));
        all.take(SIBLINGS_MAX).collect()
    }

    /// Room that a session holds, in bytes.
    pub(crate) fn outstanding_of(&self, session: SessionId) -> u64 {
        self.living.lock().get(&session).map_or(0, |living| living.outstanding_bytes)
    }

    /// How long a session must be silent before it may be fenced.
    pub(crate) fn dead_after(&self) -> Duration {
        self.dead_after
    }

    /// For how long a session has been silent; the maximum for a session that is not in the table.
    pub(crate) fn silence(&self, session: SessionId) -> Duration {
        self.living.lock().get(&session).map_or(Duration::MAX, |living| living.renewed.elapsed())
    }

    /// Sessions that have been silent for longer than this.
    pub(crate) fn silent_for(&self, long: Duration) -> Vec<(SessionId, Duration)> {
        let living = self.living.lock();
        let silence = |(session, one): (&SessionId, &Living)| (*session, one.renewed.elapsed());
        living.iter().map(silence).filter(|(_, silence)| *silence > long).collect()
    }

    /// The name of a session's client.
    pub(crate) fn client(&self, session: SessionId) -> String {
        self.living.lock().get(&session).map(|living| living.client.clone()).unwrap_or_default()
    }

    /// How many are alive.
    pub(crate) fn count(&self) -> usize {
        self.living.lock().len()
    }

    fn with<T>(&self, session: SessionId, change: impl FnOnce(&mut Living) -> T) -> Result<T, MetaError> {
        let mut table = self.living.lock();
        let living = table.get_mut(&session).ok_or(MetaError::Fenced(session))?;
        living.renewed = Instant::now();
        living.heard = true;
        Ok(change(living))
    }
}
