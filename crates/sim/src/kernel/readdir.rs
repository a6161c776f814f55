//! Listing a directory: `fuse_readdir`, with `READDIRPLUS` and the cached listing.

use super::names::{Failure, retry_estale};
use super::state::{Dentry, Inode, Listing, State};
use super::{Kernel, state};
use shoal_channel::abi::{self, opcode};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a buffer of getdents(2): a few dozen names.
const BUFFER_BYTES: u32 = 4096;

/// A name with the offset after it, inode number and type.
pub type Listed = (u64, u8, u64, u32);

fn mtime(inode: &Inode) -> (u64, u32) {
    (inode.attr.mtime, inode.attr.mtimensec)
}

impl Kernel {
    /// Opens a directory, lists all of it, and closes it.
    pub fn list(self: &Arc<Kernel>, tid: u32, path: &[u8]) -> Result<Vec<Listed>, i32> {
        let dir = retry_estale(|fresh| {
            let dir = self.find(tid, path, fresh)?;
            let mode = self.state.lock().inode(dir.node()).attr.mode & libc::S_IFMT;
            match mode {
                libc::S_IFDIR => {}
                libc::S_IFLNK => return Err(Failure::Final(libc::ENOENT)),
                _ => return Err(Failure::Final(libc::ENOTDIR)),
            }
            self.permission(tid, dir.node())?;
            Ok(dir)
        })?;
        let (mut listed, mut offset) = (Vec::new(), 0);
        loop {
            // `iterate_dir`.
            let _shared = self.lock(dir.node(), false);
            // glibc takes `ENOENT` of getdents(2) for the end.
            if self.state.lock().inode(dir.node()).dead {
                return Ok(listed);
            }
            if let Some(mut cached) = self.cached_listing(dir.node(), offset) {
                listed.append(&mut cached);
                return Ok(listed);
            }
            let mut part = match self.readdirplus(tid, dir.node(), offset) {
                Err(libc::ENOENT) => return Ok(listed),
                part => part?,
            };
            let Some(last) = part.last() else { return Ok(listed) };
            offset = last.0;
            part.retain(|one| one.1 != b'.');
            listed.append(&mut part);
        }
    }

    /// `fuse_readdir_cached`: what is cached from an offset on.
    fn cached_listing(&self, dir: u64, offset: u64) -> Option<Vec<Listed>> {
        let mut state = self.state.lock();
        let inode = state.inode(dir);
        let (mtime, iversion) = (mtime(inode), inode.iversion);
        let is_new = inode.listing.as_ref().is_none_or(|listing| {
            listing.is_lost && listing.cached
                || offset == 0 && listing.cached && (listing.mtime, listing.iversion) != (mtime, iversion)
        });
        if is_new {
            inode.listing = Some(Listing { mtime, iversion, ..Listing::default() });
        }
        let listing = inode.listing.as_mut()?;
        if offset == 0 && !listing.cached && listing.names.is_empty() {
            (listing.mtime, listing.iversion) = (mtime, iversion);
        }
        listing
            .cached
            .then(|| listing.names.iter().filter(|one| one.0 > offset && one.1 != b'.').copied().collect())
    }

    /// `fuse_readdir_uncached`: a part of the listing, with `.` for both of `.` and `..`.
    fn readdirplus(self: &Arc<Kernel>, tid: u32, dir: u64, offset: u64) -> Result<Vec<Listed>, i32> {
        let (version, evicted) = {
            let state = self.state.lock();
            (state.attr_version, state.evict_ctr)
        };
        let body = abi::ReadIn { offset, size: BUFFER_BYTES, ..Default::default() };
        self.request(tid, opcode::READDIRPLUS, dir, &[body.as_bytes()], |state, reply| {
            let (mut rest, mut part) = (reply?, Vec::new());
            while let Ok((record, names)) = abi::Direntplus::read_from_prefix(rest) {
                let len = record.dirent.namelen as usize;
                let name = names.get(..len).ok_or(libc::EIO)?;
                let letter = if let [letter] = name { *letter } else { b'.' };
                let one = (record.dirent.off, letter, record.dirent.ino, record.dirent.kind);
                if letter != b'.' && record.entry_out.nodeid != 0 {
                    self.link_listed(state, (dir, letter), &record.entry_out, (version, evicted));
                }
                // `fuse_add_dirent_to_cache`: at the end only, and not where pages were lost.
                let listing = &mut state.inode(dir).listing;
                if let Some(listing) = listing
                    && !listing.is_lost
                    && listing.names.last().map_or(0, |last| last.0)
                        == if part.is_empty() { offset } else { last(&part) }
                {
                    listing.names.push(one);
                }
                part.push(one);
                rest = names.get(len.next_multiple_of(abi::DIRENT_ALIGN)..).unwrap_or_default();
            }
            // `fuse_readdir_cache_end`.
            if part.is_empty()
                && let Some(listing) = &mut state.inode(dir).listing
                && listing.names.last().map_or(0, |last| last.0) == offset
            {
                listing.cached = true;
            }
            Ok(part)
        })
    }

    /// `fuse_direntplus_link`: the name is stamped with the epoch of this moment.
    fn link_listed(
        self: &Arc<Kernel>,
        state: &mut State,
        slot: (u64, u8),
        entry: &abi::EntryOut,
        (version, evicted): (u64, u64),
    ) {
        let epoch = state.epoch;
        let expired = !state::is_kept(entry.entry_valid, entry.entry_valid_nsec);
        let dentry = Dentry { node: Some(entry.nodeid), epoch, expired };
        if state.dentry(slot).is_some_and(|known| known.node == Some(entry.nodeid)) {
            if state.iget(entry, version, 0) {
                state.dentries.insert(slot, dentry);
                return;
            }
        } else {
            state.d_invalidate(slot);
            // Another thread is looking the name up.
            if !state.in_lookup.contains(&slot) && state.iget(entry, version, evicted) {
                state.inode(entry.nodeid).pins += 1;
                let spliced = state.splice(slot, dentry);
                state.inode(entry.nodeid).pins -= 1;
                if spliced.is_err() {
                    state.inode(entry.nodeid).nlookup -= 1;
                    state.forgets.push((entry.nodeid, 1));
                    state.put(entry.nodeid);
                }
                return;
            }
        }
        state.forgets.push((entry.nodeid, 1));
    }
}

fn last(part: &[Listed]) -> u64 {
    part.last().map_or(0, |last| last.0)
}
