//! Inodes, with what belongs to them.

use super::{FileRecord, LookupReply};
use crate::kv::{Flow, KvRead};
use crate::kv_tree::{TreeError, decode_extent, read, scan, split_xattr};
use crate::limits::{RECORD_CONTENT_BYTES_MAX, RECORD_EXTENTS_MAX};
use crate::records::InodeRecord;
use crate::{Dentry, Fault, keys};
use shoal_types::{Errno, Extent, FileKind, Inode, InodeId, Name, SessionId};

/// What a name stands for, with contents as far as they are inline. `ENOENT` if there is no such directory, `ENOTDIR` if it is none.
pub fn lookup(
    store: &(impl KvRead + ?Sized),
    dir: InodeId,
    name: &Name,
) -> Result<LookupReply, Fault<TreeError>> {
    let Some(dentry) = read::<Dentry>(store, &keys::dentry(dir, name))? else {
        return match living(store, dir)? {
            None => Err(Errno::ENOENT.into()),
            Some(record) if !record.inode.is_dir() => Err(Errno::ENOTDIR.into()),
            Some(_) => Ok(LookupReply { found: None }),
        };
    };
    let Some(record) = living(store, dentry.ino)? else {
        return Err(missing(dentry.ino).into());
    };
    Ok(LookupReply { found: Some((dentry, complete(store, dentry.ino, record, true)?)) })
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

/// Whether the content may be short enough to come along.
pub(super) fn may_come_along(record: &InodeRecord) -> bool {
    record.inode.allocated <= RECORD_CONTENT_BYTES_MAX && record.extents <= RECORD_EXTENTS_MAX
}

/// Adds extended attributes and, if wanted and short, contents to a record.
pub(super) fn complete(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
    record: InodeRecord,
    contents: bool,
) -> Result<FileRecord, TreeError> {
    let mut xattrs = Vec::new();
    if record.inode.xattrs > 0 {
        scan(store, &keys::xattrs_range(ino), |key, value| {
            let (name, value) = split_xattr(key, value)?;
            xattrs.push((name, value.to_vec().into()));
            Ok(Flow::Continue(()))
        })?;
    }
    let extents = match contents {
        true if record.inode.kind != FileKind::Regular || record.extents == 0 => Some(Vec::new()),
        true if may_come_along(&record) => inline_extents(store, ino)?,
        _ => None,
    };
    Ok(FileRecord { ino, inode: record.inode, xattrs, extents })
}

/// All extents of a file, unless one of them is in a block.
fn inline_extents(
    store: &(impl KvRead + ?Sized),
    ino: InodeId,
) -> Result<Option<Vec<(u64, Extent)>>, TreeError> {
    let mut extents = Some(Vec::new());
    scan(store, &keys::extents_range(ino, 0), |key, value| {
        let (offset, extent) = decode_extent(key, value)?;
        match (&mut extents, extent) {
            (_, Extent::Block(_)) | (None, _) => {
                extents = None;
                Ok(Flow::Break(()))
            }
            (Some(found), extent) => {
                found.push((offset, extent));
                Ok(Flow::Continue(()))
            }
        }
    })?;
    Ok(extents)
}
