//! Listings of directories.
//!
//! Names are read in the order of their cookies, inodes in the order of their numbers: what was created together
//! lies together, however the hashes of the names have scattered it.
//!
//! Whoever walks through a tree asks for several directories at once, each of which comes whole.

use super::file::{complete, complete_with, inline_bytes, living, missing, single_extents};
use super::{DirEntry, ListReply, Prefetch, WalkReply};
use crate::kv::{Flow, KvRead};
use crate::kv_tree::{TreeError, scan};
use crate::limits::LIST_CHUNK_NAMES;
use crate::records::{self, InodeRecord};
use crate::{Dentry, Fault, keys};
use shoal_types::limits::INLINE_BYTES_DEFAULT;
use shoal_types::{Cookie, Errno, FileKind, InodeId, Name};
use std::collections::BTreeMap;

/// What an entry takes of a reply beside names, attributes and contents, in bytes: about what it is encoded as.
const ENTRY_BYTES: usize = 32;
/// What an inode's record takes, in bytes.
const INODE_BYTES: usize = 96;
/// What an extent takes beside what is inline of it, in bytes.
const EXTENT_BYTES: usize = 40;

/// The names of a directory behind a cookie, until about `bytes_max` of reply; at least those of one cookie. `ENOENT` if there is
/// no such directory, `ENOTDIR` if it is none.
pub fn list(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    after: Cookie,
    prefetch: Prefetch,
    bytes_max: usize,
) -> Result<ListReply, Fault<TreeError>> {
    list_into(store, dir, after, prefetch, &mut { bytes_max })
}

/// The same, with what room is left.
fn list_into(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    after: Cookie,
    prefetch: Prefetch,
    room: &mut usize,
) -> Result<ListReply, Fault<TreeError>> {
    match living(store, dir)? {
        None => return Err(Errno::ENOENT.into()),
        Some(record) if !record.inode.is_dir() => return Err(Errno::ENOTDIR.into()),
        Some(_) => {}
    }
    let mut reply = ListReply::default();
    let mut after = after;
    loop {
        let (names, end) = names(store, dir, after, LIST_CHUNK_NAMES)?;
        let Some((last, _)) = names.last() else {
            reply.end = true;
            return Ok(reply);
        };
        after = last.cookie();
        let complete = fill(store, names, prefetch, room, &mut reply)?;
        if !complete || *room == 0 {
            reply.end = complete && end;
            return Ok(reply);
        }
        if end {
            reply.end = true;
            return Ok(reply);
        }
    }
}

/// Directories in this order, each whole, until about `bytes_target` of reply; one that is begun before that may take up to `bytes_max`
/// altogether, or does not come along.
pub fn walk(
    store: &(impl KvRead + ?Sized),
    dirs: &[InodeId],
    prefetch: Prefetch,
    bytes_target: usize,
    bytes_max: usize,
) -> Result<WalkReply, TreeError> {
    let mut reply = WalkReply::default();
    let mut room = bytes_max;
    for dir in dirs {
        let used = bytes_max - room;
        if used > 0 && used >= bytes_target {
            break;
        }
        let entries = match list_into(store, *dir, Cookie::START, prefetch, &mut room) {
            Ok(listed) if listed.end => Some(listed.entries),
            // There is more room when it is asked for again.
            Ok(_) if used > 0 => break,
            Ok(_) | Err(Fault::Errno(_)) => None,
            Err(Fault::Tree(error)) => return Err(error),
        };
        if entries.is_none() {
            room = bytes_max - used;
        }
        reply.dirs.push((*dir, entries));
    }
    Ok(reply)
}

/// Directories in a directory behind a cookie, at most `count_max` of them.
pub fn subdirectories(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    after: Cookie,
    count_max: usize,
) -> Result<Vec<InodeId>, TreeError> {
    let mut found = Vec::new();
    scan(store, &keys::dentries_range(dir, after), |key, value| {
        if found.len() >= count_max {
            return Ok(Flow::Break(()));
        }
        let dentry: Dentry = records::decode(value).map_err(|error| TreeError::damaged(key, error))?;
        if dentry.kind == FileKind::Directory {
            found.push(dentry.ino);
        }
        Ok(Flow::Continue(()))
    })?;
    Ok(found)
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
            if contents && record.inode.allocated <= INLINE_BYTES_DEFAULT.into() {
                bytes += record.inode.allocated as usize;
            }
            chosen.push(dentry.ino);
        }
        *room = room.saturating_sub(bytes);
        reply.entries.push(DirEntry { name, dentry, record: None });
    }
    chosen.sort_unstable();
    chosen.dedup();
    let is_counted = |record: &InodeRecord| record.inode.allocated <= INLINE_BYTES_DEFAULT.into();
    let mut single = match contents {
        true => {
            let records = chosen.iter().filter_map(|ino| Some((*ino, inodes.get(ino)?)));
            single_extents(store, records.filter(|(_, record)| is_counted(record)))?
        }
        false => BTreeMap::new(),
    };
    let mut files = BTreeMap::new();
    for ino in chosen {
        if let Some(record) = inodes.remove(&ino) {
            let counted = is_counted(&record);
            // How long the rest is is known only now: too late for this chunk, in time for the next. But content must not pile up.
            let fits = counted || *room > 0 || (first == 0 && files.is_empty());
            let file = match single.remove(&ino) {
                Some(extent) => complete_with(store, ino, record, vec![extent])?,
                None => complete(store, ino, record, contents && fits)?,
            };
            let mut bytes: usize =
                file.xattrs.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum();
            for (_, extent) in file.extents.iter().flatten() {
                bytes += EXTENT_BYTES + if counted { 0 } else { inline_bytes(extent) as usize };
            }
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
