//! The volume itself, and the background work of its metadata group.

use super::{Outcome, extents_digest};
use crate::keys::{LAYOUT_OLDEST, Singleton};
use crate::kv::{KvRead, WriteBatch};
use crate::kv_tree::KvTree;
use crate::limits::COLLECT_BLOCKS_MAX;
use crate::query::counters;
use crate::records::{self, BlockRecord, Counters, InodeRecord, VolumeOptions, VolumeRecord};
use crate::stored::{TreeError, read};
use crate::{Fault, Tree, keys, ops, query};
use bytes::Bytes;
use shoal_types::GROUP_BRICKS_MAX;
use shoal_types::limits::{BLOCK_BYTES_MAX, INLINE_BYTES_MAX};
use shoal_types::{
    BlockId, BlockInfo, Errno, FileKind, Inode, InodeFlags, InodeId, SessionId, Timestamp, mode,
};

pub(super) type Applied = Result<(WriteBatch, Outcome), TreeError>;

pub(super) fn refuse(errno: Errno) -> Applied {
    Ok((WriteBatch::default(), Outcome::refused(errno)))
}

pub(super) fn put_counters(batch: &mut WriteBatch, counters: &Counters) {
    batch.changes.insert(keys::singleton(Singleton::Counters), Some(records::encode(counters)));
}

pub(super) fn format(
    store: &(impl KvRead + ?Sized),
    id: u128,
    (uid, gid, perm): (u32, u32, u32),
    time: Timestamp,
    options: VolumeOptions,
) -> Applied {
    let key = keys::singleton(Singleton::Volume);
    if store.get(&key)?.is_some() {
        return refuse(Errno::EEXIST);
    }
    if !is_sensible(&options) {
        return refuse(Errno::EINVAL);
    }
    let root = Inode {
        kind: FileKind::Directory,
        perm: perm & mode::ALL,
        flags: InodeFlags::default(),
        uid,
        gid,
        nlink: 2,
        rdev: 0,
        size: 0,
        allocated: 0,
        entries: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        generation: 0,
        parent: InodeId::ROOT,
        multi_link: false,
        xattrs: 0,
        target: Bytes::new(),
    };
    let counters = Counters {
        used_bytes: 0,
        inodes: 1,
        next_inode: InodeId::FIRST_FREE,
        next_session: SessionId(SessionId::SERVER.0 + 1),
        next_server_block: 1,
    };
    let mut batch = WriteBatch::default();
    let mut put = |key, value| batch.changes.insert(key, Some(value));
    put(keys::singleton(Singleton::Layout), records::encode(&LAYOUT_OLDEST));
    put(key, records::encode(&VolumeRecord { id, created: time, options }));
    put(keys::inode(InodeId::ROOT), records::encode(&InodeRecord::new(root)));
    put_counters(&mut batch, &counters);
    Ok((batch, Outcome::Done))
}

fn is_sensible(options: &VolumeOptions) -> bool {
    options.inline_bytes <= INLINE_BYTES_MAX && usize::from(options.replica) <= GROUP_BRICKS_MAX
}

pub(super) fn set_options(store: &(impl KvRead + ?Sized), options: VolumeOptions) -> Applied {
    let key = keys::singleton(Singleton::Volume);
    let Some(volume) = read::<VolumeRecord>(store, &key)? else {
        return Err(TreeError::damaged(&key, "it is not there"));
    };
    if !is_sensible(&options) {
        return refuse(Errno::EINVAL);
    }
    // How many copies blocks should have is part of what is recorded about each.
    if options.replica != volume.options.replica && !query::blocks(store, None, 1)?.is_empty() {
        return refuse(Errno::EBUSY);
    }
    let mut batch = WriteBatch::default();
    batch.changes.insert(key, Some(records::encode(&VolumeRecord { options, ..volume })));
    Ok((batch, Outcome::Done))
}

pub(super) fn grant_blocks(store: &(impl KvRead + ?Sized), count: u64) -> Applied {
    let mut counters = counters(store)?;
    let first = counters.next_server_block;
    let count = count.min(u64::MAX - first);
    counters.next_server_block = first + count;
    let mut batch = WriteBatch::default();
    put_counters(&mut batch, &counters);
    Ok((batch, Outcome::Blocks { first, count }))
}

pub(super) fn collected(store: &(impl KvRead + ?Sized), blocks: &[BlockId]) -> Applied {
    if blocks.len() > COLLECT_BLOCKS_MAX {
        return refuse(Errno::E2BIG);
    }
    let mut batch = WriteBatch::default();
    for id in blocks {
        let key = keys::block(*id);
        if read::<BlockRecord>(store, &key)?.is_some_and(|block| block.refs == 0) {
            batch.changes.insert(key, None);
            batch.changes.insert(keys::garbage(*id), None);
        }
    }
    Ok((batch, Outcome::Done))
}

pub(super) fn reap<S: KvRead + ?Sized>(store: &S, ino: InodeId, extents_max: u32) -> Applied {
    let mut tree = KvTree::new(store, SessionId::SERVER);
    let more = tree.reap(ino, extents_max.max(1) as usize)?;
    Ok((tree.finish()?, Outcome::Reaped { more }))
}

pub(super) fn compact<S: KvRead + ?Sized>(
    store: &S,
    (ino, offset): (InodeId, u64),
    digest: u128,
    block: BlockId,
    info: BlockInfo,
) -> Applied {
    let mut tree = KvTree::new(store, SessionId::SERVER);
    let is_sound = (1..=BLOCK_BYTES_MAX).contains(&info.len) && block.session == SessionId::SERVER;
    let end = match offset.checked_add(u64::from(info.len)) {
        Some(end) if is_sound => end,
        _ => return refuse(Errno::EINVAL),
    };
    if tree.is_block_known(block)? {
        return refuse(Errno::EEXIST);
    }
    let found = unfault(match tree.inode(ino) {
        Ok(Some(_)) => tree.extents(ino, offset, end),
        Ok(None) => Ok(Vec::new()),
        Err(fault) => Err(fault),
    })?;
    let same = match found {
        Ok(found) if extents_digest(&found) == digest => {
            unfault(ops::compact::apply(&mut tree, ino, offset, &found, block, info))?.is_ok()
        }
        _ => false,
    };
    if !same {
        tree.declare_block(ino, block, info);
    }
    Ok((tree.finish()?, Outcome::Compacted { done: same }))
}

pub(super) fn rest_from_compaction<S: KvRead + ?Sized>(store: &S, ino: InodeId) -> Applied {
    let mut tree = KvTree::new(store, SessionId::SERVER);
    tree.rest_from_compaction(ino)?;
    Ok((tree.finish()?, Outcome::Done))
}

/// Tells apart what goes into an outcome and what stops the server.
fn unfault<T>(result: Result<T, Fault<TreeError>>) -> Result<Result<T, Errno>, TreeError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Fault::Errno(errno)) => Ok(Err(errno)),
        Err(Fault::Tree(error)) => Err(error),
    }
}
