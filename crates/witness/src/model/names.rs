//! Calls that create and remove names.

use super::{Actor, Body, Errno, Handle, Id, Inode, State};
use crate::ops::{Op, Outcome, Path, Word};
use std::collections::BTreeMap;

/// A success returns the new state.
pub(super) type Changed = Result<(Outcome, Option<State>), Errno>;

fn done(state: State) -> Changed {
    Ok((Outcome::Done, Some(state)))
}

fn last(path: &Path) -> Result<u8, Errno> {
    path.split_last().map(|(name, _)| name).ok_or(libc::EBUSY)
}

/// Nothing can be created in a directory that was removed.
pub(super) fn alive(state: &State, dir: Id) -> Result<(), Errno> {
    match state.inode(dir) {
        Some(inode) if inode.names > 0 => Ok(()),
        _ => Err(libc::ENOENT),
    }
}

pub(super) fn open(state: &State, who: Actor, op: &Op, dir: Id) -> Changed {
    let Op::Open { path, create, exclusive, append, slot } = op else { return Err(libc::EINVAL) };
    let name = last(path)?;
    let mut after = state.clone();
    let id = match state.lookup(dir, name)? {
        None if !create => return Err(libc::ENOENT),
        None => {
            alive(state, dir)?;
            after.add(who.makes, Body::File(Vec::new()), who.ino);
            after.set_name(dir, name, Some(who.makes));
            who.makes
        }
        Some(_) if *create && *exclusive => return Err(libc::EEXIST),
        Some(id) => id,
    };
    let mut ino = match after.inode(id).ok_or(libc::ENOENT)? {
        Inode { body: Body::Dir { .. }, .. } => return Err(libc::EISDIR),
        Inode { body: Body::Symlink(_), .. } => return Err(libc::ELOOP),
        Inode { body: Body::File(_), ino, .. } => *ino,
    };
    if ino.is_none() {
        after.alter(id, |inode| inode.ino = who.ino);
        ino = who.ino;
    }
    after.hold(who.worker, *slot, Handle { id, append: *append });
    Ok((Outcome::Opened { ino }, Some(after)))
}

fn make(state: &State, who: Actor, path: &Path, body: Body, dir: Id) -> Changed {
    let name = last(path)?;
    if state.lookup(dir, name)?.is_some() {
        return Err(libc::EEXIST);
    }
    alive(state, dir)?;
    let mut after = state.clone();
    after.add(who.makes, body, None);
    after.set_name(dir, name, Some(who.makes));
    done(after)
}

pub(super) fn mkdir(state: &State, who: Actor, path: &Path, dir: Id) -> Changed {
    make(state, who, path, Body::Dir { names: BTreeMap::new(), parent: dir }, dir)
}

pub(super) fn symlink(state: &State, who: Actor, path: &Path, target: Word, dir: Id) -> Changed {
    make(state, who, path, Body::Symlink(target), dir)
}

pub(super) fn unlink(state: &State, path: &Path, dir: Id) -> Changed {
    let name = last(path)?;
    let id = state.lookup(dir, name)?.ok_or(libc::ENOENT)?;
    if state.is_dir(id) {
        return Err(libc::EISDIR);
    }
    let mut after = state.clone();
    after.set_name(dir, name, None);
    drop_name(&mut after, id);
    done(after)
}

pub(super) fn rmdir(state: &State, path: &Path, dir: Id) -> Changed {
    let name = last(path)?;
    let id = state.lookup(dir, name)?.ok_or(libc::ENOENT)?;
    match state.names(id) {
        Err(_) => return Err(libc::ENOTDIR),
        Ok(names) if !names.is_empty() => return Err(libc::ENOTEMPTY),
        Ok(_) => (),
    }
    let mut after = state.clone();
    after.set_name(dir, name, None);
    drop_name(&mut after, id);
    done(after)
}

/// `inode` is what the old name led to, `dir` where the new one goes.
pub(super) fn link(state: &State, to: &Path, inode: Id, dir: Id) -> Changed {
    let name = last(to)?;
    if state.lookup(dir, name)?.is_some() {
        return Err(libc::EEXIST);
    }
    alive(state, dir)?;
    if state.is_dir(inode) {
        return Err(libc::EPERM);
    }
    alive(state, inode)?;
    let mut after = state.clone();
    after.set_name(dir, name, Some(inode));
    after.alter(inode, |inode| inode.names += 1);
    done(after)
}

/// Removes one name of an inode.
pub(super) fn drop_name(state: &mut State, id: Id) {
    state.alter(id, |inode| inode.names = inode.names.saturating_sub(1));
}
