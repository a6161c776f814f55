//! Calls that open and close files for reading and writing, which may be mapped shared and writable then.

use crate::client::Client;
use crate::core;
use crate::values::{Caller, Calling, Entry, Reply, Wait};
use bytes::Bytes;
use shoal_types::{Errno, InodeId};
use shoal_wire::OPS_VERSION_FLAGS;

/// A file to be created and opened: see [`Client::create_open`].
pub struct Creation<'a> {
    /// The user that creates it.
    pub caller: &'a Caller,
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

impl Client {
    /// open(2) with `O_CREAT` of a name for which the kernel has a negative dentry. The file gains a kernel
    /// reference.
    pub fn create_open(&self, calling: impl Into<Calling>, it: &Creation<'_>) -> Reply<Entry> {
        let (name, now, session) = (core::name(it.name)?, self.now(), self.current());
        session.change_names(calling.into(), [it.parent; 2], |core, by| {
            let made = match it.exclusive {
                true => core.create(it.caller, it.parent, &name, it.mode, 0, &Bytes::new(), now),
                false => core.create_or_find(by, it.caller, it.parent, &name, it.mode, now),
            }?;
            if it.mappable {
                session.mapping_locks.created(made.ino, session.context.id);
            }
            Ok(made)
        })
    }

    /// open(2) with `O_TMPFILE`: the file has no name, gains a kernel reference, and dies with the last one
    /// unless [`link`](Self::link) gives it a name. `mappable`: as in [`Creation`]. `EOPNOTSUPP` while there
    /// may be servers and mounts that know no such files.
    pub fn create_unnamed(
        &self,
        wait: Wait,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        mappable: bool,
    ) -> Reply<Entry> {
        if self.mount.ops_version() < OPS_VERSION_FLAGS {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let (now, session) = (self.now(), self.current());
        session.call(wait, |core| {
            let made = core.create_unnamed(caller, parent, mode, now)?;
            if mappable {
                session.mapping_locks.created(made.ino, session.context.id);
            }
            Ok(made)
        })
    }

    /// open(2) for reading and writing. Returns whether programs may map the file shared and writable; then
    /// [`close_mappable`](Self::close_mappable) must follow. Otherwise another client has it open for reading
    /// and writing.
    pub fn open_mappable(&self, wait: Wait, ino: InodeId) -> Reply<bool> {
        let session = self.current();
        let (locks, id) = (&session.mapping_locks, session.context.id);
        if let Some(mappable) = locks.begin_open(wait, ino, id)? {
            return Ok(mappable);
        }
        let holder = session.locks.request_mapping_lock(ino);
        self.mount.with_current(|now| locks.end_open(ino, id, holder, now.context.id == id));
        match holder? {
            None if self.session() != id => Err(Errno::EIO.into()),
            None => Ok(true),
            Some(_) => Ok(false),
        }
    }

    /// The last close(2) of a file that was opened by [`open_mappable`](Self::open_mappable) or
    /// [`create_open`](Self::create_open).
    pub fn close_mappable(&self, wait: Wait, ino: InodeId) -> Reply<()> {
        let session = self.current();
        if session.mapping_locks.begin_close(wait, ino, session.context.id)? {
            // If it fails, the session has ended, and the lock with it.
            let _ = session.locks.release_mapping_lock(ino);
            session.mapping_locks.end_close(ino);
        }
        Ok(())
    }

    /// Whether the mapping lock of a file was lost while programs have the file open.
    pub fn has_lost_mapping_lock(&self, ino: InodeId) -> bool {
        self.mount.with_current(|session| session.mapping_locks.has_lost(ino))
    }
}
