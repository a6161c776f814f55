//! Paths: `lookup_fast`, `lookup_slow`, `fuse_dentry_revalidate`, `fuse_lookup`.

use super::state::{Dentry, Slot, State};
use super::{Kernel, Pin, state, structure};
use shoal_channel::abi::{self, opcode};
use std::sync::Arc;

/// How a name is looked up.
#[derive(Clone, Copy, Default)]
pub struct How {
    /// Nothing cached is used: the second walk (`LOOKUP_REVAL`), a name that is about to be made
    /// (`LOOKUP_EXCL`), or the target of a rename (`LOOKUP_RENAME_TARGET`).
    pub fresh: bool,
    /// The caller holds the lock of the directory exclusively.
    pub locked: bool,
}

/// What the dcache says of a name.
enum Cached {
    Is(Option<u64>),
    Unknown,
    /// It has to be asked for: its node id.
    Ask(u64),
}

fn cached(state: &State, slot: Slot, how: How) -> Cached {
    match state.dentry(slot) {
        None => Cached::Unknown,
        Some(Dentry { node, epoch, expired }) => match node {
            _ if epoch < state.epoch => Cached::Unknown,
            Some(node) if expired || how.fresh => Cached::Ask(node),
            None if expired || how.fresh => Cached::Unknown,
            node => Cached::Is(node),
        },
    }
}

impl Kernel {
    /// Pins the root.
    pub(super) fn root(self: &Arc<Kernel>) -> Pin {
        Pin::new(self, &mut self.state.lock(), state::ROOT)
    }

    /// Looks a name up in a pinned directory. `None`: it is absent.
    pub(super) fn lookup(
        self: &Arc<Kernel>,
        tid: u32,
        dir: u64,
        name: u8,
        how: How,
    ) -> Result<Option<Pin>, i32> {
        let slot = (dir, name);
        loop {
            if let Some(found) = self.revalidate(tid, slot, how)? {
                return Ok(found);
            }
            let _shared = (!how.locked).then(|| self.lock(dir, false));
            if self.state.lock().inode(dir).dead {
                return Err(libc::ENOENT);
            }
            // `d_alloc_parallel`: one thread looks a name up.
            let is_mine = {
                let mut state = self.state.lock();
                state.dentry(slot).is_none() && state.in_lookup.insert(slot)
            };
            if !is_mine {
                self.wait_until(|state| (!state.in_lookup.contains(&slot)).then_some(()));
                continue;
            }
            return self.look_up(tid, slot);
        }
    }

    /// `d_revalidate` of a cached dentry. `None`: there is none any more.
    fn revalidate(self: &Arc<Kernel>, tid: u32, slot: Slot, how: How) -> Result<Option<Option<Pin>>, i32> {
        let mut state = self.state.lock();
        let node = match cached(&state, slot, how) {
            Cached::Is(node) => return Ok(Some(node.map(|node| Pin::new(self, &mut state, node)))),
            Cached::Unknown => {
                state.d_invalidate(slot);
                drop(state);
                self.send_forgets();
                return Ok(None);
            }
            Cached::Ask(node) => node,
        };
        let (pin, version) = (Pin::new(self, &mut state, node), state.attr_version);
        drop(state);
        let name = [slot.1, 0];
        let is_valid = self.request(tid, opcode::LOOKUP, slot.0, &[&name], |state, reply| {
            let is_valid = reply.and_then(structure::<abi::EntryOut>).is_ok_and(|entry| {
                tracing::debug!(dir = slot.0, name = %(slot.1 as char), node, now = entry.nodeid, "looks a name up again");
                if entry.nodeid != node {
                    if entry.nodeid != 0 {
                        state.forgets.push((entry.nodeid, 1));
                    }
                    return false;
                }
                if !state.iget(&entry, version, 0) {
                    return false;
                }
                if let Some(dentry) = state.dentries.get_mut(&slot).filter(|dentry| dentry.node == Some(node))
                {
                    dentry.expired = !state::is_kept(entry.entry_valid, entry.entry_valid_nsec);
                }
                true
            });
            if !is_valid && state.dentry(slot).is_some_and(|dentry| dentry.node == Some(node)) {
                state.d_invalidate(slot);
            }
            is_valid
        });
        Ok(is_valid.then_some(Some(pin)))
    }

    /// `fuse_lookup`: the name is stamped with the epoch of the request.
    fn look_up(self: &Arc<Kernel>, tid: u32, slot: Slot) -> Result<Option<Pin>, i32> {
        struct InLookup<'a>(&'a Kernel, Slot);
        impl Drop for InLookup<'_> {
            fn drop(&mut self) {
                self.0.state.lock().in_lookup.remove(&self.1);
                self.0.news.notify_all();
            }
        }
        let _looks = InLookup(self, slot);
        let (epoch, version, evicted) = {
            let state = self.state.lock();
            (state.epoch, state.attr_version, state.evict_ctr)
        };
        let name = [slot.1, 0];
        self.request(tid, opcode::LOOKUP, slot.0, &[&name], |state, reply| {
            let entry = match reply {
                Ok(reply) => structure::<abi::EntryOut>(reply)?,
                Err(libc::ENOENT) => return Ok(None),
                Err(errno) => return Err(errno),
            };
            let expired = !state::is_kept(entry.entry_valid, entry.entry_valid_nsec);
            if entry.nodeid == 0 {
                state.d_add(slot, Dentry { node: None, epoch, expired });
                return Ok(None);
            }
            self.add(state, slot, &entry, (epoch, version, evicted)).map(Some)
        })
    }

    /// `fuse_iget` and `d_splice_alias`, with the epoch and versions of the request.
    pub(super) fn add(
        self: &Arc<Kernel>,
        state: &mut State,
        slot: Slot,
        entry: &abi::EntryOut,
        (epoch, version, evicted): (u64, u64, u64),
    ) -> Result<Pin, i32> {
        if !state.iget(entry, version, evicted) {
            state.forgets.push((entry.nodeid, 1));
            return Err(libc::EIO);
        }
        // Without its drop: the state is locked.
        state.inode(entry.nodeid).pins += 1;
        let expired = !state::is_kept(entry.entry_valid, entry.entry_valid_nsec);
        let spliced = state.splice(slot, Dentry { node: Some(entry.nodeid), epoch, expired });
        state.inode(entry.nodeid).pins -= 1;
        tracing::debug!(dir = slot.0, name = %(slot.1 as char), node = entry.nodeid, ?spliced, "finds a name");
        match spliced {
            Ok(()) => Ok(Pin::new(self, state, entry.nodeid)),
            Err(errno) => {
                state.put(entry.nodeid);
                Err(errno)
            }
        }
    }

    /// Walks a path of names to a directory.
    fn walk_once(self: &Arc<Kernel>, tid: u32, names: &[u8], fresh: bool) -> Result<Pin, i32> {
        let mut at = self.root();
        self.permission(tid, at.node())?;
        for name in names {
            let next =
                self.lookup(tid, at.node(), *name, How { fresh, locked: false })?.ok_or(libc::ENOENT)?;
            let mode = self.state.lock().inode(next.node()).attr.mode & libc::S_IFMT;
            match mode {
                libc::S_IFDIR => at = next,
                // The simulated symlinks point at nothing.
                libc::S_IFLNK => return Err(libc::ENOENT),
                _ => return Err(libc::ENOTDIR),
            }
            self.permission(tid, at.node())?;
        }
        Ok(at)
    }

    /// Walks a path of names to a directory, once more after `ESTALE`.
    pub(super) fn walk(self: &Arc<Kernel>, tid: u32, names: &[u8], fresh: bool) -> Result<Pin, i32> {
        match self.walk_once(tid, names, fresh) {
            Err(libc::ESTALE) if !fresh => self.walk_once(tid, names, true),
            walked => walked,
        }
    }

    /// The last name of a path, without following it; once more after `ESTALE`.
    pub(super) fn find(self: &Arc<Kernel>, tid: u32, names: &[u8], fresh: bool) -> Result<Pin, i32> {
        let once = |fresh| {
            let Some((last, parents)) = names.split_last() else { return Ok(self.root()) };
            let dir = self.walk_once(tid, parents, fresh)?;
            self.lookup(tid, dir.node(), *last, How { fresh, locked: false })?.ok_or(libc::ENOENT)
        };
        match once(fresh) {
            Err(libc::ESTALE) if !fresh => once(true),
            found => found,
        }
    }
}
