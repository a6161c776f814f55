//! Mapping locks: on which mount a file may be mapped shared and writable (mmap(2) with `MAP_SHARED`).
//!
//! The kernel does not report stores into mapped pages. So programs on two mounts that map one file would see
//! each other's stores late: SQLite's write-ahead log, whose index is such a mapping, would lose
//! transactions. A client has the mapping lock of each file that its programs have open for reading and
//! writing. A file whose lock another client has is opened past the page cache (`FOPEN_DIRECT_IO` of FUSE),
//! and such a mapping of it fails with `ENODEV`.
//!
//! **A file that was created here** needs no request at first: another client can find it only after a right
//! of this one was recalled. Before any recall is acknowledged, the locks of such files are requested.
//!
//! **When the servers end a session** its locks are lost. The next session requests them again. A file that
//! another client has opened meanwhile can neither be read nor written here until all programs here have
//! closed it: they may rely on a mapping.

use crate::limits::MAPPING_REFUSALS_KEPT_MAX;
use crate::locks::{LockClient, ReplyEffect};
use crate::values::{Failure, Reply, Wait};
use shoal_runtime::sync::{Condvar, Mutex, MutexGuard};
use shoal_types::{Errno, InodeId, SessionId};
use shoal_wire::{LockKind, LockOp, LockOutcome, LockOwner, LockRange, LockRecord, LockSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// The owner number of all mapping locks of a client.
const OWNER: u64 = 0;

/// The mapping locks of a mount.
#[derive(Default)]
pub(crate) struct MappingLocks {
    state: Mutex<MappingTable>,
    /// A request has been answered.
    answered: Condvar,
    /// A lock of an open file is lost.
    some_lost: AtomicBool,
}

#[derive(Default)]
struct MappingTable {
    files: BTreeMap<InodeId, File>,
    /// Files whose refusal has been logged.
    reported: BTreeSet<InodeId>,
}

/// A file that programs have open for reading and writing.
struct File {
    /// The number of opens.
    opens: usize,
    lock: Status,
    /// A request about it is in flight. Until it is answered this entry does not change.
    busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    /// The file was created in this session, and the lock has not been requested.
    Unrequested(SessionId),
    /// The servers granted it in this session.
    Granted(SessionId),
    /// Lost with its session.
    Lost,
    /// Lost, and granted to another client since.
    Taken,
}

impl Status {
    /// Whether programs may read and write the open file.
    fn is_good(self) -> bool {
        matches!(self, Status::Unrequested(_) | Status::Granted(_))
    }
}

impl MappingLocks {
    fn lock(&self) -> MutexGuard<'_, MappingTable> {
        self.state.lock()
    }

    /// Waits until no request about a file is in flight.
    fn wait_for(&self, state: &mut MutexGuard<'_, MappingTable>, ino: InodeId) {
        while state.files.get(&ino).is_some_and(|file| file.busy) {
            self.answered.wait(state);
        }
    }

    /// A request has been answered: sets the lock's status. `None`: the file is not open any more.
    fn settle(&self, state: &mut MappingTable, ino: InodeId, status: Option<Status>) {
        match (status, state.files.get_mut(&ino)) {
            (Some(status), Some(file)) => (file.lock, file.busy) = (status, false),
            _ => drop(state.files.remove(&ino)),
        }
        let lost = state.files.values().any(|file| !file.lock.is_good());
        self.some_lost.store(lost, Ordering::Release);
        self.answered.notify_all();
    }

    /// A file has been created and opened. Called while the session's core is locked, so that no recall comes
    /// in between.
    pub(crate) fn created(&self, ino: InodeId, session: SessionId) {
        let status = Status::Unrequested(session);
        let mut state = self.lock();
        let file = state.files.entry(ino).or_insert(File { opens: 0, lock: status, busy: false });
        file.opens += 1;
    }

    /// The session has been replaced: locks that the new one has not requested again are lost.
    pub(crate) fn session_replaced(&self, session: SessionId) {
        let mut state = self.lock();
        for file in state.files.values_mut() {
            let (Status::Unrequested(of) | Status::Granted(of)) = file.lock else { continue };
            if of != session {
                file.lock = Status::Lost;
                self.some_lost.store(true, Ordering::Release);
            }
        }
    }

    fn inodes(&self, with: impl Fn(Status) -> bool) -> Vec<InodeId> {
        let state = self.lock();
        state.files.iter().filter(|(_, file)| with(file.lock)).map(|(ino, _)| *ino).collect()
    }

    /// Requests the locks of files of a status, and records what becomes of them.
    fn request(&self, client: &LockClient, with: impl Fn(Status) -> bool) -> Result<(), Errno> {
        for ino in self.inodes(&with) {
            let mut state = self.lock();
            self.wait_for(&mut state, ino);
            match state.files.get_mut(&ino) {
                Some(file) if with(file.lock) => file.busy = true,
                // The file was closed, or another thread has requested the lock.
                _ => continue,
            }
            drop(state);
            let other = client.request_mapping_lock(ino);
            let status = match other {
                Ok(None) => Status::Granted(client.session()),
                Ok(Some(_)) => Status::Taken,
                Err(_) => Status::Lost,
            };
            if status == Status::Taken {
                tracing::warn!(
                    %ino,
                    "is open here for reading and writing, and on another mount meanwhile: reads and writes fail \
                     until it is closed"
                );
            }
            self.settle(&mut self.lock(), ino, Some(status));
            other?;
        }
        Ok(())
    }

    /// Requests the locks of files that were created here, because other clients are about to find them.
    pub(crate) fn request_of_created(&self, client: &LockClient) -> Result<(), Errno> {
        self.request(client, |status| status == Status::Unrequested(client.session()))
    }

    /// Requests the locks of earlier sessions once more. To be called before this session is used.
    pub(crate) fn request_inherited(&self, client: &LockClient) {
        let session = client.session();
        let mine = |status| matches!(status, Status::Unrequested(of) | Status::Granted(of) if of == session);
        let earlier = |status| status != Status::Taken && !mine(status);
        if let Err(error) = self.request(client, earlier) {
            tracing::debug!(%error, "requesting the mapping locks of an earlier session failed");
        }
    }

    /// A file is being opened. Returns whether it may be mapped, or `None` if the lock has to be requested
    /// first; then [`end_open`](Self::end_open) must follow.
    pub(crate) fn begin_open(&self, wait: Wait, ino: InodeId, session: SessionId) -> Reply<Option<bool>> {
        let mut state = self.lock();
        if wait == Wait::Allowed {
            self.wait_for(&mut state, ino);
        }
        match state.files.get_mut(&ino) {
            Some(file) if !file.lock.is_good() => return Ok(Some(false)),
            Some(file) if !file.busy => {
                file.opens += 1;
                return Ok(Some(true));
            }
            _ if wait == Wait::Never => return Err(Failure::WouldBlock),
            _ => {}
        }
        state.files.insert(ino, File { opens: 0, lock: Status::Granted(session), busy: true });
        Ok(None)
    }

    /// The request for the lock of a file that is being opened has been answered. `holder`: the session that
    /// has the lock, if it was not granted. `is_current`: the session that made the request has not been
    /// replaced.
    pub(crate) fn end_open(
        &self,
        ino: InodeId,
        session: SessionId,
        holder: Result<Option<SessionId>, Errno>,
        is_current: bool,
    ) {
        let mut state = self.lock();
        let granted = holder == Ok(None) && is_current;
        if granted && let Some(file) = state.files.get_mut(&ino) {
            file.opens = 1;
        }
        self.settle(&mut state, ino, granted.then_some(Status::Granted(session)));
        if let Ok(Some(other)) = holder
            && state.reported.len() < MAPPING_REFUSALS_KEPT_MAX
            && state.reported.insert(ino)
        {
            tracing::warn!(
                %ino, session = other.0,
                "is open for reading and writing on another mount: shared writable mappings of it fail here"
            );
        }
    }

    /// A file is being closed. Returns whether its lock has to be released; then
    /// [`end_close`](Self::end_close) must follow.
    pub(crate) fn begin_close(&self, wait: Wait, ino: InodeId, session: SessionId) -> Reply<bool> {
        let mut state = self.lock();
        if wait == Wait::Allowed {
            self.wait_for(&mut state, ino);
        }
        let Some(file) = state.files.get_mut(&ino) else { return Ok(false) };
        let is_last = file.opens == 1;
        let is_known = file.lock == Status::Granted(session);
        if file.busy || is_last && is_known && wait == Wait::Never {
            return Err(Failure::WouldBlock);
        }
        if !is_last {
            file.opens -= 1;
            return Ok(false);
        }
        if is_known {
            file.busy = true;
            return Ok(true);
        }
        self.settle(&mut state, ino, None);
        Ok(false)
    }

    /// The lock of a closed file has been released.
    pub(crate) fn end_close(&self, ino: InodeId) {
        self.settle(&mut self.lock(), ino, None);
    }

    /// Whether the lock of a file was lost while programs have the file open.
    pub(crate) fn has_lost(&self, ino: InodeId) -> bool {
        self.some_lost.load(Ordering::Acquire)
            && self.lock().files.get(&ino).is_some_and(|file| !file.lock.is_good())
    }
}

impl LockClient {
    /// Requests the lock of a file. Returns the session that has it, if it is not granted.
    pub(crate) fn request_mapping_lock(&self, ino: InodeId) -> Result<Option<SessionId>, Errno> {
        let owner = LockOwner { session: self.session(), owner: OWNER };
        let (space, range, kind) = (LockSpace::Mapping, LockRange::ALL, LockKind::Write);
        let lock = LockRecord { ino, space, owner, pid: std::process::id(), range, kind };
        let effect = ReplyEffect::Held((ino, space, OWNER));
        match self.request(effect, None, |_| LockOp::Set { lock, wait: false })? {
            LockOutcome::Done => Ok(None),
            LockOutcome::Conflict(other) => Ok(Some(other.owner.session)),
            // This session has as many locks as it may have.
            _ => Ok(Some(self.session())),
        }
    }

    /// Releases the lock of a file.
    pub(crate) fn release_mapping_lock(&self, ino: InodeId) -> Result<(), Errno> {
        let owners = vec![LockOwner { session: self.session(), owner: OWNER }];
        let effect = ReplyEffect::Released(vec![(ino, LockSpace::Mapping, OWNER)]);
        self.request(effect, None, |_| LockOp::Release { ino, owners: owners.clone() }).map(drop)
    }
}
