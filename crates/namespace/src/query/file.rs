//! Inodes, with what belongs to them.

use super::content::blocks;
use super::{FileRecord, LookupReply};
use crate::kv::{Flow, KvRead};
use crate::limits::{RECORD_CONTENT_BYTES_MAX, RECORD_EXTENTS_MAX};
use crate::records::InodeRecord;
use crate::stored::{TreeError, decode_extent, read, scan, split_xattr};
use crate::{Dentry, Fault, keys};
use bytes::Bytes;
use shoal_types::{Errno, Extent, FileKind, Inode, InodeId, Name, SessionId, XattrName};
use std::collections::BTreeMap;

/// What a name stands for, with contents as far as they are short. `ENOENT` if there is no such directory,
/// `ENOTDIR` if it is none.
pub fn lookup(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    name: &Name,
) -> Result<LookupReply, Fault<TreeError>> {
    Ok(match find(store, dir, name)? {
        Some((dentry, record)) => {
            LookupReply { found: Some((dentry, complete(store, dentry.ino, record, true)?)) }
        }
        None => LookupReply { found: None },
    })
}

/// The same without attributes and contents.
pub fn resolve(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    name: &Name,
) -> Result<Option<(InodeId, Inode)>, Fault<TreeError>> {
    Ok(find(store, dir, name)?.map(|(dentry, record)| (dentry.ino, record.inode)))
}

fn find(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    name: &Name,
) -> Result<Option<(Dentry, InodeRecord)>, Fault<TreeError>> {
    let Some(dentry) = read::<Dentry>(store, &keys::dentry(dir, name))? else {
        return match living(store, dir)? {
            None => Err(Errno::ENOENT.into()),
            Some(record) if !record.inode.is_dir() => Err(Errno::ENOTDIR.into()),
            Some(_) => Ok(None),
        };
    };
    let record = living(store, dentry.ino)?.ok_or_else(|| missing(dentry.ino))?;
    Ok(Some((dentry, record)))
}

/// An inode, with contents as far as they are inline. `ENOENT` if there is none.
pub fn inode(store: &(impl KvRead + ?Sized), ino: InodeId) -> Result<FileRecord, Fault<TreeError>> {
    match living(store, ino)? {
        Some(record) => Ok(complete(store, ino, record, true)?),
        None => Err(Errno::ENOENT.into()),
    }
}

/// An inode's record alone, without attributes and contents: one look-up.
pub fn record(store: &(impl KvRead + ?Sized), ino: InodeId) -> Result<Option<Inode>, TreeError> {
    Ok(living(store, ino)?.map(|record| record.inode))
}

/// The sessions that hold an inode, in the order of their numbers.
pub fn holders(store: &(impl KvRead + ?Sized), ino: InodeId) -> Result<Vec<SessionId>, TreeError> {
    Ok(living(store, ino)?.map(|record| record.holders().to_vec()).unwrap_or_default())
}

/// An inode that is not dead.
pub(super) fn living(store: &(impl KvRead + ?Sized), ino: InodeId) -> Result<Option<InodeRecord>, TreeError> {
    Ok(read::<InodeRecord>(store, &keys::inode(ino))?.filter(|record| !record.is_dead()))
}

/// A name without an inode behind it.
pub(super) fn missing(ino: InodeId) -> TreeError {
    TreeError::damaged(&keys::inode(ino), "a name refers to it, but it is not there")
}

/// Adds extended attributes and, if wanted and short, contents to a record.
pub(super) fn complete(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
    record: InodeRecord,
    contents: bool,
) -> Result<FileRecord, TreeError> {
    let xattrs = xattrs(store, ino, &record)?;
    let extents = if contents { few_extents(store, ino, &record)? } else { None };
    finish(store, ino, record, xattrs, extents)
}

/// All extents of a file, unless they are many or more of it is inline than comes along.
pub(super) fn few_extents(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
    record: &InodeRecord,
) -> Result<Option<Vec<(u64, Extent)>>, TreeError> {
    if record.inode.kind != FileKind::Regular || record.extents == 0 {
        Ok(Some(Vec::new()))
    } else if record.extents <= RECORD_EXTENTS_MAX {
        short_extents(store, ino)
    } else {
        Ok(None)
    }
}

/// The extents of files that have one each, where it ends where the file does: looked up together, which
/// takes a fraction of what one scan for each would. What is not found that way is left out.
pub(super) fn single_extents<'r>(
    store: &(impl KvRead + ?Sized),
    files: impl Iterator<Item = (InodeId, &'r InodeRecord)>,
) -> Result<BTreeMap<InodeId, (u64, Extent)>, TreeError> {
    let single = |(ino, record): (InodeId, &InodeRecord)| {
        let is_one = record.inode.kind == FileKind::Regular && record.extents == 1;
        is_one.then(|| (ino, keys::extent(ino, record.inode.size)))
    };
    let (numbers, keys): (Vec<InodeId>, Vec<Vec<u8>>) = files.filter_map(single).unzip();
    let mut found = BTreeMap::new();
    for ((ino, key), value) in numbers.into_iter().zip(&keys).zip(store.multi_get(&keys)?) {
        if let Some(value) = value {
            found.insert(ino, decode_extent(key, &value)?);
        }
    }
    Ok(found)
}

/// All extended attributes of an inode.
pub(super) fn xattrs(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
    record: &InodeRecord,
) -> Result<Vec<(XattrName, Bytes)>, TreeError> {
    let mut xattrs = Vec::new();
    if record.inode.xattrs > 0 {
        scan(store, &keys::xattrs_range(ino), |key, value| {
            let (name, value) = split_xattr(key, value)?;
            xattrs.push((name, value.to_vec().into()));
            Ok(Flow::Continue(()))
        })?;
    }
    Ok(xattrs)
}

/// Adds the blocks that the extents name.
pub(super) fn finish(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
    record: InodeRecord,
    xattrs: Vec<(XattrName, Bytes)>,
    extents: Option<Vec<(u64, Extent)>>,
) -> Result<FileRecord, TreeError> {
    let named = extents.iter().flatten().filter_map(|(_, extent)| match extent {
        Extent::Block(block) => Some(block.id),
        _ => None,
    });
    let blocks = blocks(store, named.collect())?;
    Ok(FileRecord { ino, inode: record.inode, xattrs, extents, blocks })
}

/// All extents of a file, unless more of it is inline than comes along.
fn short_extents(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
) -> Result<Option<Vec<(u64, Extent)>>, TreeError> {
    let (mut found, mut inline) = (Vec::new(), 0);
    scan(store, &keys::extents_range(ino, 0), |key, value| {
        let (offset, extent) = decode_extent(key, value)?;
        inline += inline_bytes(&extent);
        found.push((offset, extent));
        Ok(if inline > RECORD_CONTENT_BYTES_MAX { Flow::Break(()) } else { Flow::Continue(()) })
    })?;
    Ok((inline <= RECORD_CONTENT_BYTES_MAX).then_some(found))
}

/// What of an extent is in itself, in bytes.
pub(super) fn inline_bytes(extent: &Extent) -> u64 {
    if let Extent::Inline(bytes) = extent { bytes.len() as u64 } else { 0 }
}
