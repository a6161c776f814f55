//! System calls that change names, and open(2).

use super::state::{Dentry, Slot, State};
use super::walk::How;
use super::{Kernel, Pin, state, structure};
use shoal_channel::abi::{self, opcode};
use std::sync::Arc;
use zerocopy::IntoBytes;

const FILE_MODE: u32 = libc::S_IFREG | 0o644;
const DIR_MODE: u32 = 0o755;
const UMASK: u32 = 0o022;

/// What makes a new name.
enum Makes<'a> {
    Dir,
    Symlink(&'a [u8]),
    Link(u64),
}

/// Whether the call is made once more after this failure: a name to be made is looked up without a second
/// walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The path is walked once more after `ESTALE` (`retry_estale`).
    Again(i32),
    /// The call ends.
    Final(i32),
}

impl From<i32> for Failure {
    fn from(errno: i32) -> Failure {
        Failure::Again(errno)
    }
}

/// Makes a call, and once more after `ESTALE`.
pub fn retry_estale<T>(mut call: impl FnMut(bool) -> Result<T, Failure>) -> Result<T, i32> {
    match call(false) {
        Err(Failure::Again(libc::ESTALE)) => call(true).map_err(|failure| match failure {
            Failure::Again(errno) | Failure::Final(errno) => errno,
        }),
        Err(Failure::Again(errno) | Failure::Final(errno)) => Err(errno),
        Ok(done) => Ok(done),
    }
}

fn split(path: &[u8]) -> Result<(u8, &[u8]), i32> {
    path.split_last().map(|(last, parents)| (*last, parents)).ok_or(libc::EINVAL)
}

impl Kernel {
    /// mkdir(2).
    pub fn mkdir(self: &Arc<Kernel>, tid: u32, path: &[u8]) -> Result<(), i32> {
        retry_estale(|fresh| self.make(tid, path, fresh, Makes::Dir))
    }

    /// symlink(2).
    pub fn symlink(self: &Arc<Kernel>, tid: u32, path: &[u8], target: &[u8]) -> Result<(), i32> {
        retry_estale(|fresh| self.make(tid, path, fresh, Makes::Symlink(target)))
    }

    /// link(2).
    pub fn link(self: &Arc<Kernel>, tid: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        retry_estale(|fresh| {
            let old = self.find(tid, from, fresh)?;
            self.make(tid, to, fresh, Makes::Link(old.node()))
        })
    }

    /// `filename_create`, and what follows.
    fn make(self: &Arc<Kernel>, tid: u32, path: &[u8], fresh: bool, what: Makes<'_>) -> Result<(), Failure> {
        let (name, parents) = split(path)?;
        let parent = self.walk(tid, parents, fresh)?;
        let dir = parent.node();
        let _lock = self.lock(dir, true);
        let how = How { fresh: true, locked: true };
        if self.lookup(tid, dir, name, how).map_err(Failure::Final)?.is_some() {
            return Err(Failure::Final(libc::EEXIST));
        }
        self.may_change(tid, dir)?;
        let (slot, named) = ((dir, name), [name, 0]);
        match what {
            Makes::Dir => {
                let body = abi::MkdirIn { mode: DIR_MODE, umask: UMASK };
                self.create_entry(tid, opcode::MKDIR, slot, &[body.as_bytes(), &named])
            }
            Makes::Symlink(target) => self.create_entry(tid, opcode::SYMLINK, slot, &[&named, target, &[0]]),
            Makes::Link(old) => {
                let _old_lock = {
                    let is_dir = self.state.lock().inode(old).is_dir();
                    if is_dir {
                        return Err(Failure::Final(libc::EPERM));
                    }
                    self.lock(old, true)
                };
                if self.state.lock().inode(old).attr.nlink == 0 {
                    return Err(Failure::Final(libc::ENOENT));
                }
                let body = abi::LinkIn { oldnodeid: old };
                // Nothing is invalidated: the reply has all attributes (`fuse_link`).
                self.create_entry(tid, opcode::LINK, slot, &[body.as_bytes(), &named])
            }
        }
    }

    /// `create_new_entry`: the attributes of the reply are accepted in any case.
    fn create_entry(
        self: &Arc<Kernel>,
        tid: u32,
        opcode: u32,
        slot: Slot,
        body: &[&[u8]],
    ) -> Result<(), Failure> {
        let epoch = self.state.lock().epoch;
        let made = self.request(tid, opcode, slot.0, body, |state, reply| {
            let entry = structure::<abi::EntryOut>(reply?)?;
            state.d_drop(slot);
            let made = self.add(state, slot, &entry, (epoch, 0, 0));
            if made.is_ok() {
                state.dir_changed(slot.0);
            }
            made
        });
        made.map(drop).map_err(Failure::Again)
    }

    /// unlink(2).
    pub fn unlink(self: &Arc<Kernel>, tid: u32, path: &[u8]) -> Result<(), i32> {
        retry_estale(|fresh| self.remove(tid, path, fresh, false))
    }

    /// rmdir(2).
    pub fn rmdir(self: &Arc<Kernel>, tid: u32, path: &[u8]) -> Result<(), i32> {
        retry_estale(|fresh| self.remove(tid, path, fresh, true))
    }

    fn remove(self: &Arc<Kernel>, tid: u32, path: &[u8], fresh: bool, is_rmdir: bool) -> Result<(), Failure> {
        let (name, parents) = split(path)?;
        let parent = self.walk(tid, parents, fresh)?;
        let (dir, slot) = (parent.node(), (parent.node(), name));
        let _lock = self.lock(dir, true);
        let victim = self.lookup(tid, dir, name, How { fresh, locked: true })?.ok_or(libc::ENOENT)?;
        self.may_change(tid, dir)?;
        let node = victim.node();
        match (self.state.lock().inode(node).is_dir(), is_rmdir) {
            (true, false) => return Err(Failure::Final(libc::EISDIR)),
            (false, true) => return Err(Failure::Final(libc::ENOTDIR)),
            _ => {}
        }
        let _victim_lock = self.lock(node, true);
        let opcode = if is_rmdir { opcode::RMDIR } else { opcode::UNLINK };
        self.request(tid, opcode, dir, &[&[name, 0]], |state, reply| match reply {
            Ok(_) => {
                state.dir_changed(dir);
                state.entry_unlinked(node);
                if is_rmdir {
                    state.shrink(node);
                    state.inode(node).dead = true;
                }
                if is_at(state, slot, node) {
                    state.d_drop(slot);
                }
                Ok(())
            }
            Err(errno) => {
                if errno == libc::ENOENT && is_at(state, slot, node) {
                    state.d_invalidate(slot);
                }
                Err(Failure::Again(errno))
            }
        })
    }

    /// renameat2(2).
    pub fn rename(self: &Arc<Kernel>, tid: u32, from: &[u8], to: &[u8], flags: u32) -> Result<(), i32> {
        retry_estale(|fresh| self.rename_once(tid, from, to, flags, fresh))
    }

    fn rename_once(
        self: &Arc<Kernel>,
        tid: u32,
        from: &[u8],
        to: &[u8],
        flags: u32,
        fresh: bool,
    ) -> Result<(), Failure> {
        let ((from_name, from), (to_name, to)) = (split(from)?, split(to)?);
        let (from, to) = (self.walk(tid, from, fresh)?, self.walk(tid, to, fresh)?);
        let (from_slot, to_slot) = ((from.node(), from_name), (to.node(), to_name));
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let _rename = (from.node() != to.node()).then(|| self.lock_rename());
        let _dirs = self.lock_all(vec![from.node(), to.node()]);
        let how = How { fresh, locked: true };
        let moved = self.lookup(tid, from.node(), from_name, how)?.ok_or(libc::ENOENT)?;
        let target = self.lookup(tid, to.node(), to_name, How { fresh: true, locked: true })?;
        if target.is_some() && flags & libc::RENAME_NOREPLACE != 0 {
            return Err(Failure::Final(libc::EEXIST));
        }
        if target.is_none() && exchange {
            return Err(Failure::Final(libc::ENOENT));
        }
        let moved = moved.node();
        let replaced = target.as_ref().map(Pin::node);
        {
            let state = self.state.lock();
            if state.is_above(moved, to.node()) {
                return Err(Failure::Final(libc::EINVAL));
            }
            if replaced.is_some_and(|replaced| state.is_above(replaced, from.node())) {
                return Err(Failure::Final(if exchange { libc::EINVAL } else { libc::ENOTEMPTY }));
            }
        }
        // `vfs_rename`: two names of one inode stay as they are.
        if replaced == Some(moved) {
            return Ok(());
        }
        self.may_change(tid, from.node())?;
        self.may_change(tid, to.node())?;
        if !exchange && let Some(replaced) = replaced {
            let mut state = self.state.lock();
            match (state.inode(moved).is_dir(), state.inode(replaced).is_dir()) {
                (true, false) => return Err(Failure::Final(libc::ENOTDIR)),
                (false, true) => return Err(Failure::Final(libc::EISDIR)),
                _ => {}
            }
        }
        let _inodes = self.lock_all([Some(moved), replaced].into_iter().flatten().collect());
        let head = abi::Rename2In { newdir: to.node(), flags, padding: 0 };
        let body: [&[u8]; 3] = [head.as_bytes(), &[from_name, 0], &[to_name, 0]];
        self.request(tid, opcode::RENAME2, from.node(), &body, |state, reply| {
            if let Err(errno) = reply {
                if errno == libc::ENOENT {
                    state.d_invalidate(from_slot);
                    state.d_invalidate(to_slot);
                }
                return Err(Failure::Again(errno));
            }
            state.inode(moved).invalid |= state::TIMES;
            state.dir_changed(from_slot.0);
            state.dir_changed(to_slot.0);
            if let Some(replaced) = replaced {
                if exchange {
                    state.inode(replaced).invalid |= state::TIMES;
                } else {
                    state.entry_unlinked(replaced);
                    if state.inode(replaced).is_dir() {
                        state.shrink(replaced);
                        state.inode(replaced).dead = true;
                    }
                }
            }
            if is_at(state, from_slot, moved) {
                state.d_move(from_slot, to_slot, exchange);
            } else {
                // An unhashed dentry is moved and hashed.
                state.d_drop(to_slot);
                let epoch = state.epoch;
                state.d_add(to_slot, Dentry { node: Some(moved), epoch, expired: true });
            }
            Ok(())
        })
    }

    /// open(2) with `O_RDWR | O_NOFOLLOW`.
    pub fn open(
        self: &Arc<Kernel>,
        tid: u32,
        path: &[u8],
        create: bool,
        exclusive: bool,
    ) -> Result<Pin, i32> {
        let Some((name, parents)) = path.split_last() else { return Err(libc::EISDIR) };
        retry_estale(|fresh| {
            let dir = self.walk(tid, parents, fresh)?;
            let (found, is_new) = match create {
                true => self.open_or_create(tid, dir.node(), *name, exclusive, fresh)?,
                false => (self.lookup(tid, dir.node(), *name, How { fresh, locked: false })?, false),
            };
            let file = found.ok_or(Failure::Final(libc::ENOENT))?;
            let mode = self.state.lock().inode(file.node()).attr.mode & libc::S_IFMT;
            match mode {
                _ if create && exclusive && !is_new => Err(Failure::Final(libc::EEXIST)),
                libc::S_IFDIR => Err(Failure::Final(libc::EISDIR)),
                libc::S_IFLNK => Err(Failure::Final(libc::ELOOP)),
                _ => {
                    if !is_new {
                        self.permission(tid, file.node())?;
                    }
                    Ok(file)
                }
            }
        })
    }

    /// `lookup_open` with `O_CREAT`. Whether it was created.
    fn open_or_create(
        self: &Arc<Kernel>,
        tid: u32,
        dir: u64,
        name: u8,
        exclusive: bool,
        fresh: bool,
    ) -> Result<(Option<Pin>, bool), Failure> {
        let slot = (dir, name);
        // A cached positive name is opened without the lock.
        let is_positive = {
            let state = self.state.lock();
            state.dentry(slot).is_some_and(|dentry| dentry.node.is_some())
        };
        if !exclusive && is_positive {
            let found = self.lookup(tid, dir, name, How { fresh, locked: false })?;
            if found.is_some() {
                return Ok((found, false));
            }
        }
        let _lock = self.lock(dir, true);
        let found = self.lookup(tid, dir, name, How { fresh: fresh || exclusive, locked: true })?;
        if found.is_some() {
            return Ok((found, false));
        }
        self.may_change(tid, dir)?;
        let epoch = self.state.lock().epoch;
        let flags = libc::O_RDWR | libc::O_CREAT | if exclusive { libc::O_EXCL } else { 0 };
        let body = abi::CreateIn { flags: flags as u32, mode: FILE_MODE, umask: UMASK, open_flags: 0 };
        let made =
            self.request(tid, opcode::CREATE, dir, &[body.as_bytes(), &[name, 0]], |state, reply| {
                let made = reply.and_then(structure::<abi::CreateOut>).and_then(|out| {
                    state.d_drop(slot);
                    self.add(state, slot, &out.entry, (epoch, 0, 0))
                });
                match &made {
                    Ok(_) => state.dir_changed(dir),
                    Err(libc::EEXIST) => state.d_invalidate(slot),
                    Err(_) => {}
                }
                made
            })?;
        Ok((Some(made), true))
    }

    /// `may_create` and `may_delete`.
    fn may_change(self: &Arc<Kernel>, tid: u32, dir: u64) -> Result<(), Failure> {
        if self.state.lock().inode(dir).dead {
            return Err(Failure::Final(libc::ENOENT));
        }
        Ok(self.permission(tid, dir)?)
    }
}

fn is_at(state: &State, slot: Slot, node: u64) -> bool {
    state.dentry(slot).is_some_and(|dentry| dentry.node == Some(node))
}
