//! Listings of directories.
//!
//! Names are read in the order of their cookies, inodes in the order of their numbers: what was created
//! together lies together, however the hashes of the names have scattered it.
//!
//! A walk through a tree asks for several directories at once, each of which comes whole.

use super::content::EXTENT_BYTES;
use super::file::{few_extents, finish, inline_bytes, living, missing, single_extents, xattrs};
use super::{DirEntry, ListReply, Prefetch, WalkReply};
use crate::kv::{Flow, KvRead};
use crate::limits::{LIST_CHUNK_NAMES, RECORD_CONTENT_BYTES_MAX};
use crate::records::{self, InodeRecord};
use crate::stored::{TreeError, scan};
use crate::{Dentry, Fault, keys};
use bytes::Bytes;
use shoal_types::limits::INLINE_BYTES_DEFAULT;
use shoal_types::{Cookie, Errno, FileKind, InodeId, Name, XattrName};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What an entry takes of a reply beside names, attributes and contents, in bytes: about what it is encoded
/// as.
const ENTRY_BYTES: usize = 32;
/// What an inode's record takes, in bytes.
const INODE_BYTES: usize = 96;

/// The names of a directory behind a cookie, until about `bytes_max` of reply; at least those of one cookie.
/// `ENOENT` if there is no such directory, `ENOTDIR` if it is none.
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

/// Directories in this order, each whole, until about `bytes_target` of reply; one that is begun before that
/// may take up to `bytes_max` altogether, or does not come along.
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

/// Reads at least one and about `count` names; those of one cookie are not torn apart. Also whether the
/// directory ends there.
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

/// The first name of an inode in a directory. Reads no more than `left` names, and subtracts those that it
/// has read; `None` if the name is not among them.
pub fn name_of(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    ino: InodeId,
    left: &mut usize,
) -> Result<Option<Name>, TreeError> {
    let mut found = None;
    scan(store, &keys::dentries_range(dir, Cookie::START), |key, value| {
        if *left == 0 {
            return Ok(Flow::Break(()));
        }
        *left -= 1;
        let Some(keys::Key::Dentry(_, name)) = keys::Key::decode(key) else {
            return Err(TreeError::damaged(key, "not the key of a name"));
        };
        let dentry: Dentry = records::decode(value).map_err(|error| TreeError::damaged(key, error))?;
        if dentry.ino != ino {
            return Ok(Flow::Continue(()));
        }
        found = Some(name);
        Ok(Flow::Break(()))
    })?;
    Ok(found)
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
    let (mut chosen, mut attributes) = (Vec::new(), BTreeMap::new());
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
            if record.inode.xattrs > 0 {
                // How long they are is known when they are read. The next name may have to wait: they may be
                // longer than all the rest.
                let found: &mut Vec<(XattrName, Bytes)> = match attributes.entry(dentry.ino) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(free) => free.insert(xattrs(store, dentry.ino, record)?),
                };
                bytes += found.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum::<usize>();
            }
            chosen.push(dentry.ino);
        }
        *room = room.saturating_sub(bytes);
        reply.entries.push(DirEntry { name, dentry, record: None });
    }
    chosen.sort_unstable();
    let is_counted = |record: &InodeRecord| record.inode.allocated <= INLINE_BYTES_DEFAULT.into();
    let mut single = match contents {
        true => {
            let different = chosen.chunk_by(|one, other| one == other).filter_map(|same| same.first());
            let records = different.filter_map(|ino| Some((*ino, inodes.get(ino)?)));
            single_extents(store, records.filter(|(_, record)| is_counted(record)))?
        }
        false => BTreeMap::new(),
    };
    let mut files = BTreeMap::new();
    for same in chosen.chunk_by(|one, other| one == other) {
        if let Some(ino) = same.first()
            && let Some(record) = inodes.remove(ino)
        {
            let (ino, counted) = (*ino, is_counted(&record));
            // How long the rest is is known only now: too late for this chunk, in time for the next. But
            // content must not pile up, least of all that of a file with many names, each of which takes it
            // along.
            let is_one = same.len() == 1 || *room / same.len() >= RECORD_CONTENT_BYTES_MAX as usize;
            let fits = counted || is_one && (*room > 0 || (first == 0 && files.is_empty()));
            let extents = match single.remove(&ino) {
                Some(extent) => Some(vec![extent]),
                None if contents && fits => few_extents(store, ino, &record)?,
                None => None,
            };
            let mut bytes = 0;
            for (_, extent) in extents.iter().flatten() {
                bytes += EXTENT_BYTES + if counted { 0 } else { inline_bytes(extent) };
            }
            *room = room.saturating_sub(bytes as usize * same.len());
            let xattrs = attributes.remove(&ino).unwrap_or_default();
            files.insert(ino, finish(store, ino, record, xattrs, extents)?);
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
