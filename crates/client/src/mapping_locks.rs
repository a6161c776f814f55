//! Mapping locks: on which mount a file may be mapped shared and writable (mmap(2) with `MAP_SHARED`).
//!
//! The kernel does not report stores into mapped pages. So programs on two mounts that map one file would see
//! each other's stores late: SQLite's write-ahead log, whose index is such a mapping, would lose
//! transactions. A client has the mapping lock of each file that its programs have open for reading and
//! writing. A file whose lock another client has is opened past the page cache (`FOPEN_DIRECT_IO` of FUSE),
//! and such a mapping of it fails with `ENODEV`.
//!
//! **A file that was created here** needs no request while nothing else is known of it: another client finds
//! it only when a right of this one is recalled. Before any recall is acknowledged, the locks of such files
//! are requested.
//!
//! **With a session** that the servers have ended its locks are lost. The next session requests them again. A
//! file that another client has opened meanwhile can neither be read nor be written here until its programs
//! have closed it: they may rely on a mapping.

use crate::Client;
use crate::api::{Caller, Entry, Failure, Reply, Wait};
use crate::core;
use crate::limits::MAPPING_REFUSALS_KEPT_MAX;
use crate::locks::Tells;
use crate::session::Session;
use bytes::Bytes;
use shoal_runtime::sync::{Condvar, Mutex, MutexGuard};
use shoal_types::{Errno, InodeId, SessionId};
use shoal_wire::{LockKind, LockOp, LockOutcome, LockOwner, LockRange, LockRecord, LockSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of the one owner that a client is.
const OWNER: u64 = 0;

/// The mapping locks of a mount.
#[derive(Default)]
pub(crate) struct MappingLocks {
    state: Mutex<State>,
    /// A request has been answered.
    answered: Condvar,
    /// A lock of an open file is lost.
    some_lost: AtomicBool,
}

#[derive(Default)]
struct State {
    files: BTreeMap<InodeId, File>,
    /// Files of which the log says already that another client has them.
    reported: BTreeSet<InodeId>,
}

/// A file that programs have open for reading and writing.
struct File {
    /// How many times.
    opens: usize,
    lock: Status,
    /// A request about it is in flight. Until it is answered nothing here is changed.
    busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    /// The file was created in this session, and the servers do not know of the lock yet.
    Unrequested(SessionId),
    /// The servers granted it in this session.
    Granted(SessionId),
    /// Lost with its session.
    Lost,
    /// Lost, and another client has had it since.
    Taken,
}

impl Status {
    /// Whether programs may use what they have open.
    fn is_good(self) -> bool {
        matches!(self, Status::Unrequested(_) | Status::Granted(_))
    }
}

/// A file to be created and opened: see [`Client::create_open`].
pub struct Creation<'a> {
    /// Who creates it.
    pub caller: &'a Caller,
    /// The thread that does.
    pub by: u32,
    /// The directory.
    pub parent: InodeId,
    /// The name.
    pub name: &'a [u8],
    /// Permissions.
    pub mode: u32,
    /// With `O_EXCL`: a name that exists is `EEXIST`. Otherwise, if another client has made it, `ESTALE`: the
    /// kernel looks it up again, and finds it.
    pub exclusive: bool,
    /// It is open for reading and writing, as after [`Client::open_mappable`].
    pub mappable: bool,
}

impl MappingLocks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until no request about a file is in flight.
    fn wait_for(&self, state: &mut MutexGuard<'_, State>, ino: InodeId) {
        while state.files.get(&ino).is_some_and(|file| file.busy) {
            self.answered.wait(state);
        }
    }

    /// A request has been answered: this is the lock's status now. `None`: the file is not open any more.
    fn settle(&self, state: &mut State, ino: InodeId, status: Option<Status>) {
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
    fn created(&self, ino: InodeId, session: SessionId) {
        let status = Status::Unrequested(session);
        let mut state = self.lock();
        let file = state.files.entry(ino).or_insert(File { opens: 0, lock: status, busy: false });
        file.opens += 1;
    }

    /// The session has been replaced: what the next one has not requested again is lost.
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
}

impl Session {
    fn mapping_lock(&self, ino: InodeId) -> LockRecord {
        let owner = LockOwner { session: self.id, owner: OWNER };
        let (space, range, kind) = (LockSpace::Mapping, LockRange::ALL, LockKind::Write);
        LockRecord { ino, space, owner, pid: std::process::id(), range, kind }
    }

    /// Requests the lock of a file. Returns the client that has it, if another one does.
    fn request_mapping_lock(&self, ino: InodeId) -> Result<Option<SessionId>, Errno> {
        let lock = self.mapping_lock(ino);
        let tells = Tells::Held((ino, LockSpace::Mapping, OWNER));
        match self.ask_for_lock(tells, None, |_| LockOp::Set { lock, wait: false })? {
            LockOutcome::Done => Ok(None),
            LockOutcome::Conflict(other) => Ok(Some(other.owner.session)),
            // This session has as many locks as it may have.
            _ => Ok(Some(self.id)),
        }
    }

    /// Requests the locks of files of a status, and records what becomes of them.
    fn request_mapping_locks(&self, with: impl Fn(Status) -> bool) -> Result<(), Errno> {
        let locks = &self.shared.mapping_locks;
        for ino in locks.inodes(&with) {
            let mut state = locks.lock();
            locks.wait_for(&mut state, ino);
            match state.files.get_mut(&ino) {
                Some(file) if with(file.lock) => file.busy = true,
                // It was closed, or another thread has requested it.
                _ => continue,
            }
            drop(state);
            let other = self.request_mapping_lock(ino);
            let status = match other {
                Ok(None) => Status::Granted(self.id),
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
            locks.settle(&mut locks.lock(), ino, Some(status));
            other?;
        }
        Ok(())
    }

    /// Requests the locks that the servers do not know of: another client may find the files from now on.
    pub(crate) fn request_locks_of_created(&self) -> Result<(), Errno> {
        self.request_mapping_locks(|status| status == Status::Unrequested(self.id))
    }

    /// Requests the locks of earlier sessions once more. To be called before this session is used.
    pub(crate) fn request_inherited_mapping_locks(&self) {
        let mine = |status| matches!(status, Status::Unrequested(of) | Status::Granted(of) if of == self.id);
        let earlier = |status| status != Status::Taken && !mine(status);
        if let Err(error) = self.request_mapping_locks(earlier) {
            tracing::debug!(%error, "requesting mapping locks once more");
        }
    }
}

impl Client {
    /// open(2) with `O_CREAT` of a name for which the kernel has a negative dentry. The file gains a kernel
    /// reference.
    pub fn create_open(&self, wait: Wait, it: &Creation<'_>) -> Reply<Entry> {
        let (name, now, session) = (core::name(it.name)?, self.now(), self.current());
        session.call(wait, |core| {
            let made = match it.exclusive {
                true => core.create(it.caller, it.parent, &name, it.mode, 0, &Bytes::new(), now),
                false => core.create_or_find(it.by, it.caller, it.parent, &name, it.mode, now),
            }?;
            if it.mappable {
                session.shared.mapping_locks.created(made.ino, session.id);
            }
            Ok(made)
        })
    }

    /// open(2) for reading and writing. Returns whether programs may map the file shared and writable; then
    /// [`close_mappable`](Self::close_mappable) must follow. Otherwise another client has it open for reading
    /// and writing.
    pub fn open_mappable(&self, wait: Wait, ino: InodeId) -> Reply<bool> {
        let session = self.current();
        let locks = &session.shared.mapping_locks;
        let mut state = locks.lock();
        if wait == Wait::Allowed {
            locks.wait_for(&mut state, ino);
        }
        match state.files.get_mut(&ino) {
            Some(file) if !file.lock.is_good() => return Ok(false),
            Some(file) if !file.busy => {
                file.opens += 1;
                return Ok(true);
            }
            _ if wait == Wait::Never => return Err(Failure::WouldBlock),
            _ => {}
        }
        state.files.insert(ino, File { opens: 0, lock: Status::Granted(session.id), busy: true });
        drop(state);
        let other = session.request_mapping_lock(ino);
        self.mount.with_current(|now| {
            let mut state = locks.lock();
            let granted = other == Ok(None) && now.id == session.id;
            if granted && let Some(file) = state.files.get_mut(&ino) {
                file.opens = 1;
            }
            locks.settle(&mut state, ino, granted.then_some(Status::Granted(session.id)));
            if let Ok(Some(other)) = other
                && state.reported.len() < MAPPING_REFUSALS_KEPT_MAX
                && state.reported.insert(ino)
            {
                tracing::warn!(
                    %ino, session = other.0,
                    "is open for reading and writing on another mount: shared writable mappings of it fail here"
                );
            }
        });
        match other? {
            None if self.session() != session.id => Err(Errno::EIO.into()),
            None => Ok(true),
            Some(_) => Ok(false),
        }
    }

    /// The last close(2) of a file that was opened by [`open_mappable`](Self::open_mappable) or
    /// [`create_open`](Self::create_open).
    pub fn close_mappable(&self, wait: Wait, ino: InodeId) -> Reply<()> {
        let session = self.current();
        let locks = &session.shared.mapping_locks;
        let mut state = locks.lock();
        if wait == Wait::Allowed {
            locks.wait_for(&mut state, ino);
        }
        let Some(file) = state.files.get_mut(&ino) else { return Ok(()) };
        let is_last = file.opens == 1;
        let is_known = file.lock == Status::Granted(session.id);
        if file.busy || is_last && is_known && wait == Wait::Never {
            return Err(Failure::WouldBlock);
        }
        if !is_last {
            file.opens -= 1;
            return Ok(());
        }
        if is_known {
            file.busy = true;
            drop(state);
            let owners = vec![LockOwner { session: session.id, owner: OWNER }];
            let tells = Tells::Released(vec![(ino, LockSpace::Mapping, OWNER)]);
            // If it fails, the session has ended, and the lock with it.
            let _ = session.ask_for_lock(tells, None, |_| LockOp::Release { ino, owners: owners.clone() });
            state = locks.lock();
        }
        locks.settle(&mut state, ino, None);
        Ok(())
    }

    /// Whether the mapping lock of a file was lost while programs have the file open.
    pub fn has_lost_mapping_lock(&self, ino: InodeId) -> bool {
        self.mount.with_current(|session| {
            let locks = &session.shared.mapping_locks;
            locks.some_lost.load(Ordering::Acquire)
                && locks.lock().files.get(&ino).is_some_and(|file| !file.lock.is_good())
        })
    }
}
