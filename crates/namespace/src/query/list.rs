//! Listings of directories.
//!
//! Names are read in the order of their cookies, inodes in the order of their numbers: what was created together
//! lies together, however the hashes of the names have scattered it.

use super::file::{complete, living, may_come_along, missing};
use super::{DirEntry, ListReply, Prefetch};
use crate::kv::{Flow, KvRead};
use crate::kv_tree::{TreeError, scan};
use crate::limits::LIST_CHUNK_NAMES;
use crate::records::{self, InodeRecord};
use crate::{Dentry, Fault, keys};
use shoal_types::{Cookie, Errno, InodeId, Name};
use std::collections::BTreeMap;

/// What an entry takes of a reply beside names, attributes and contents, in bytes: about what it is encoded as.
const ENTRY_BYTES: usize = 32;
/// What an inode's record takes, in bytes.
const INODE_BYTES: usize = 96;

/// The names of a directory behind a cookie, until about `bytes_max` of reply; at least those of one cookie. `ENOENT` if there is
/// no such directory, `ENOTDIR` if it is none.
pub fn list(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    after: Cookie,
    prefetch: Prefetch,
    bytes_max: usize,
) -> Result<ListReply, Fault<TreeError>> {
    match living(store, dir)? {
        None => return Err(Errno::ENOENT.into()),
        Some(record) if !record.inode.is_dir() => return Err(Errno::ENOTDIR.into()),
        Some(_) => {}
    }
    let mut reply = ListReply::default();
    let (mut after, mut room) = (after, bytes_max);
    loop {
        let (names, end) = names(store, dir, after, LIST_CHUNK_NAMES)?;
        let Some((last, _)) = names.last() else {
            reply.end = true;
            return Ok(reply);
        };
        after = last.cookie();
        let complete = fill(store, names, prefetch, &mut room, &mut reply)?;
        if !complete || room == 0 {
            reply.end = complete && end;
            return Ok(reply);
        }
        if end {
            reply.end = true;
            return Ok(reply);
        }
    }
}

type Names = Vec<(Name, Dentry)>;

/// Reads at least one and about `count` names; those of one cookie are not torn apart. Also whether the directory ends there.
fn names(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    after: Cookie,
    count: usize,
) -> Result<(Names, bool), TreeError> {
    let mut names: Names = Vec::new();
    let mut end = true;
    scan(store, &keys::dentries_range(dir, after), |key, value| {
        let Some(keys::Key::Dentry(_, name)) = keys::Key::decode(key) else {
            return Err(TreeError::damaged(key, "not the key of a name"));
        };
        if names.len() >= count && names.last().is_some_and(|(last, _)| last.cookie() != name.cookie()) {
            end = false;
            return Ok(Flow::Break(()));
        }
        let dentry = records::decode(value).map_err(|error| TreeError::damaged(key, error))?;
        names.push((name, dentry));
        Ok(Flow::Continue(()))
    })?;
    Ok((names, end))
}

/// Adds entries for names until the room is used up; answers whether all of them found room.
fn fill(
    store: &(impl KvRead + ?Sized),
    names: Names,
    prefetch: Prefetch,
    room: &mut usize,
    reply: &mut ListReply,
) -> Result<bool, TreeError> {
    let mut inodes = if prefetch == Prefetch::Names { BTreeMap::new() } else { inodes(store, &names)? };
    let contents = prefetch == Prefetch::Contents;
    let first = reply.entries.len();
    let mut all = true;
    let mut chosen = Vec::new();
    for (name, dentry) in names {
        let before = reply.entries.last().map(|entry| entry.name.cookie());
        if *room == 0 && before.is_some_and(|before| before != name.cookie()) {
            all = false;
            break;
        }
        let mut bytes = ENTRY_BYTES + name.as_bytes().len();
        if prefetch != Prefetch::Names {
            // Another name of the same file may have taken the record along already.
            let record = match inodes.get(&dentry.ino) {
                Some(record) => record,
                None => return Err(missing(dentry.ino)),
            };
            bytes += INODE_BYTES + record.inode.target.len();
            if contents && may_come_along(record) {
                bytes += record.inode.allocated as usize;
            }
            chosen.push(dentry.ino);
        }
        *room = room.saturating_sub(bytes);
        reply.entries.push(DirEntry { name, dentry, record: None });
    }
    chosen.sort_unstable();
    chosen.dedup();
    let mut files = BTreeMap::new();
    for ino in chosen {
        if let Some(record) = inodes.remove(&ino) {
            let file = complete(store, ino, record, contents)?;
            // How long these are is known only now: too late for this chunk, in time for the next.
            let bytes: usize =
                file.xattrs.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum();
            *room = room.saturating_sub(bytes);
            files.insert(ino, file);
        }
    }
    for entry in reply.entries.iter_mut().skip(first) {
        entry.record = files.get(&entry.dentry.ino).cloned();
    }
    Ok(all)
}

/// The records behind names, read in the order of their numbers.
fn inodes(
    store: &(impl KvRead + ?Sized),
    names: &Names,
) -> Result<BTreeMap<InodeId, InodeRecord>, TreeError> {
    let mut numbers: Vec<InodeId> = names.iter().map(|(_, dentry)| dentry.ino).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let keys: Vec<Vec<u8>> = numbers.iter().map(|ino| keys::inode(*ino)).collect();
    let mut found = BTreeMap::new();
    for ((ino, key), value) in numbers.into_iter().zip(&keys).zip(store.multi_get(&keys)?) {
        let value = value.ok_or_else(|| missing(ino))?;
        let record: InodeRecord = records::decode(&value).map_err(|error| TreeError::damaged(key, error))?;
        if record.is_dead() {
            return Err(missing(ino));
        }
        found.insert(ino, record);
    }
    Ok(found)
}
