//! Sessions and locks of a volume, for `volume status NAME clients` and `volume clear-locks`.
//!
//! **Assumes** that this server leads its group: rights and locks are in the memory of the leader.

use crate::leases::{ClearLocks, Waiter};
use crate::limits::{CLEARED_LOCKS_MAX, DUMP_LINES_MAX, PATH_DEPTH_MAX, PATH_NAMES_MAX};
use crate::serve::Server;
use serde::{Deserialize, Serialize};
use shoal_lease::locks::LockRecord;
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{TreeError, query};
use shoal_types::{Errno, InodeId, Name, SessionId, Timestamp};
use shoal_wire::MetaError;
use std::collections::HashMap;

/// A session and what it holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Number of the session.
    pub session: SessionId,
    /// The name that its client gave.
    pub client: String,
    /// When it began.
    pub opened: Timestamp,
    /// How long it has been silent, in milliseconds.
    pub silent_ms: u64,
    /// Covers (directories and files with several links) that it may cache.
    pub watched: u64,
    /// Covers and inodes that it holds exclusively.
    pub exclusive: u64,
    /// Locks that its programs hold.
    pub locks: u64,
    /// Requests for locks that wait.
    pub locks_waiting: u64,
    /// Bytes that it was granted and has not committed.
    pub granted_bytes: u64,
}

/// A lock that was removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClearedLock {
    /// The lock.
    pub lock: LockRecord,
    /// The name that the client of its session chose.
    pub client: String,
}

/// The result of removing locks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cleared {
    /// How many held locks were removed.
    pub granted_count: u64,
    /// How many waiting requests were refused.
    pub blocked_count: u64,
    /// The first [`CLEARED_LOCKS_MAX`] locks that were held.
    pub granted: Vec<ClearedLock>,
    /// The first waiting requests that were refused.
    pub blocked: Vec<ClearedLock>,
}

impl Server {
    /// All sessions with what they hold, in the order of their numbers.
    pub fn session_infos(&self) -> Result<Vec<SessionInfo>, MetaError> {
        let shared = &self.shared;
        let term = shared.serving()?;
        let records = shared.tree(query::sessions(&shared.store.snapshot()))?;
        let held = shared.held_by_sessions(term)?;
        let info = |(session, record): (SessionId, shoal_namespace::records::SessionRecord)| {
            let held = held.get(&session).copied().unwrap_or_default();
            SessionInfo {
                session,
                client: record.client,
                opened: record.opened,
                silent_ms: u64::try_from(shared.sessions.silence(session).as_millis()).unwrap_or(u64::MAX),
                watched: held.rights.watched,
                exclusive: held.rights.exclusive,
                locks: held.locks,
                locks_waiting: held.waiting,
                granted_bytes: shared.sessions.outstanding_of(session),
            }
        };
        let infos = records.into_iter().filter(|(_, record)| !record.has_ended()).map(info).collect();
        shared.still_leads(term)?;
        Ok(infos)
    }

    /// The sessions that this server has ended since the last call, in words.
    pub fn take_ended(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.ended.lock())
    }

    /// The state of this server, as lines of text. Of a server that does not lead, that
    /// is its replica.
    pub fn dump(&self) -> Vec<String> {
        let shared = &self.shared;
        let mut lines: Vec<String> =
            self.stats().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let Ok(term) = shared.leads() else {
            lines.push("it does not lead: sessions and rights are known to the leader".into());
            return lines;
        };
        lines.push(format!("it leads in term {term}"));
        let some = |what: &str, all: Vec<String>, lines: &mut Vec<String>| {
            lines.push(format!("{what}: {}", all.len()));
            let rest = all.len().saturating_sub(DUMP_LINES_MAX);
            lines.extend(all.into_iter().take(DUMP_LINES_MAX).map(|line| format!("  {line}")));
            if rest > 0 {
                lines.push(format!("  and {rest} more"));
            }
        };
        let sessions = self.session_infos().unwrap_or_default();
        let session = |info: &SessionInfo| {
            let SessionInfo { session, client, silent_ms, watched, exclusive, locks, locks_waiting, .. } =
                info;
            format!(
                "session {} ({client}): silent for {silent_ms} ms, watches {watched}, may change {exclusive}, \
                 holds {locks} locks, waits for {locks_waiting}",
                session.0
            )
        };
        some("sessions", sessions.iter().map(session).collect(), &mut lines);
        let waiters = shared.leases.waiters();
        let waiter = |waiter: &Waiter| format!("{waiter}, for {}", shared.clients(&waiter.waits_for));
        some("requests that wait for other clients", waiters.iter().map(waiter).collect(), &mut lines);
        let recalls = shared.leases.recalled();
        let recall = |(session, id, waited_ms, items): &(SessionId, u64, u64, usize)| {
            let client = shared.clients(&[*session]);
            format!("recall {id} of {items} items from {client}, for {waited_ms} ms")
        };
        some("recalls that are not acknowledged", recalls.iter().map(recall).collect(), &mut lines);
        lines
    }

    /// The inode at a path from the root of the volume, as far as it is committed. Symbolic links are not
    /// followed.
    pub fn inode_at(&self, path: &str) -> Result<InodeId, MetaError> {
        let shared = &self.shared;
        let term = shared.serving()?;
        let state = shared.store.snapshot();
        let mut at = InodeId::ROOT;
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            let name = Name::new(part.as_bytes().to_vec()).map_err(|_| MetaError::Errno(Errno::EINVAL))?;
            let found = shared.read(query::resolve(&state, at, &name))?;
            (at, _) = found.ok_or(MetaError::Errno(Errno::ENOENT))?;
        }
        shared.still_leads(term)?;
        Ok(at)
    }

    /// The paths of inodes from the root of the volume, as far as they are committed and found: no more
    /// than [`PATH_NAMES_MAX`] names are read. A file with several links has the path of one.
    pub fn paths(&self, inodes: &[InodeId]) -> Result<Vec<Option<String>>, MetaError> {
        let shared = &self.shared;
        let term = shared.serving()?;
        let state = shared.store.snapshot();
        let mut known = HashMap::from([(InodeId::ROOT, Some(String::new()))]);
        let mut left = PATH_NAMES_MAX;
        let paths = inodes.iter().map(|ino| {
            let path = shared.tree(path_of(&state, *ino, &mut known, &mut left))?;
            Ok(path.map(|path| if path.is_empty() { "/".to_owned() } else { path }))
        });
        let paths = paths.collect::<Result<Vec<_>, MetaError>>()?;
        shared.still_leads(term)?;
        Ok(paths)
    }

    /// Removes locks of programs in a file. The holders do not learn of it, and continue as if they had them.
    pub fn clear_locks(&self, ino: InodeId, what: ClearLocks) -> Result<Cleared, MetaError> {
        let shared = &self.shared;
        let term = shared.serving()?;
        let (granted, blocked) = shared.take_locks_away(term, ino, what)?;
        let named = |lock: &LockRecord| {
            let client = shared.sessions.client(lock.owner.session);
            ClearedLock { lock: *lock, client }
        };
        let first = |locks: &[LockRecord]| locks.iter().take(CLEARED_LOCKS_MAX).map(named).collect();
        let cleared = Cleared {
            granted_count: granted.len() as u64,
            blocked_count: blocked.len() as u64,
            granted: first(&granted),
            blocked: first(&blocked),
        };
        if cleared.granted_count + cleared.blocked_count > 0 {
            let Cleared { granted_count, blocked_count, .. } = cleared;
            tracing::warn!(%ino, granted_count, blocked_count, "an administrator has removed locks");
        }
        Ok(cleared)
    }
}

/// The path of an inode, for which no more than `left` names are read. What is found on the way is kept in
/// `known`; the path of the root is empty.
fn path_of(
    state: &impl KvRead,
    ino: InodeId,
    known: &mut HashMap<InodeId, Option<String>>,
    left: &mut usize,
) -> Result<Option<String>, TreeError> {
    let (mut at, mut names) = (ino, Vec::new());
    let above = loop {
        if let Some(path) = known.get(&at) {
            break path.clone();
        }
        let parent = query::record(state, at)?.map(|inode| inode.parent);
        let name = match parent {
            Some(parent) => query::name_of(state, parent, at, left)?.map(|name| (parent, name)),
            None => None,
        };
        let Some((parent, name)) = name.filter(|_| names.len() < PATH_DEPTH_MAX) else { break None };
        names.push((at, name));
        at = parent;
    };
    let mut path = above;
    for (ino, name) in names.into_iter().rev() {
        path = path.map(|path| format!("{path}/{}", String::from_utf8_lossy(name.as_bytes())));
        known.insert(ino, path.clone());
    }
    Ok(path)
}
