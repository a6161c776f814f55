//! Puts content at an offset, reserves room, or punches a hole.

use super::content::{self, Patch};
use super::{flags, privileges};
use crate::{Fault, Tree};
use shoal_types::limits::{BLOCK_BYTES_MAX, FILE_BYTES_MAX, INLINE_BYTES_MAX};
use shoal_types::{BlockId, BlockInfo, Errno, Extent, Inode, InodeId, Timestamp};

/// The operands of [`Op::Write`](crate::Op::Write), by their names there.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Write<'a> {
    pub offset: u64,
    pub len: u64,
    pub content: Option<&'a Extent>,
    pub size_min: u64,
    pub time: Timestamp,
    pub clear_setid: bool,
    pub declare: Option<(BlockId, BlockInfo)>,
}

/// See [`Op::Write`](crate::Op::Write). Bytes never lie behind the end of a file (`EINVAL`); reserved room
/// may.
pub fn apply<T: Tree>(tree: &mut T, ino: InodeId, write: &Write<'_>) -> Result<(), Fault<T::Error>> {
    let mut inode = content::file(tree, ino)?;
    match write.content {
        Some(Extent::Zero { .. }) => flags::may_reserve(&inode)?,
        Some(_) => flags::may_change_content(&inode, write.offset)?,
        None => flags::may_punch(&inode)?,
    }
    let end = check(write, &inode)?;
    let old = content::around(tree, ino, &inode, write.offset, end)?;
    let capability = write.clear_setid && privileges::clear(tree, ino, &mut inode)?;
    let patch = match write.content {
        Some(Extent::Zero { .. }) => content::reserve(&old, write.offset, end),
        Some(extent) => content::replace(old, write.offset, end, vec![(write.offset, extent.clone())]),
        None => content::replace(old, write.offset, end, Vec::new()),
    };
    finish(&mut inode, &patch, write.size_min, write.time);

    if let Some((id, info)) = write.declare {
        tree.declare_block(ino, id, info);
    }
    patch.write(tree, ino);
    if capability {
        privileges::drop_capability(tree, ino);
    }
    tree.put_inode(ino, inode);
    Ok(())
}

/// What every change of content does to the record.
pub(super) fn finish(inode: &mut Inode, patch: &Patch, size_min: u64, time: Timestamp) {
    patch.account(inode);
    inode.size = inode.size.max(size_min);
    inode.mtime = time;
    inode.ctime = time;
}

/// Refuses what no client in its right mind sends; answers with the end of the range.
fn check(write: &Write<'_>, inode: &Inode) -> Result<u64, Errno> {
    let end = write.offset.checked_add(write.len).ok_or(Errno::EFBIG)?;
    if end > FILE_BYTES_MAX || write.size_min > FILE_BYTES_MAX {
        return Err(Errno::EFBIG);
    }
    if write.len == 0 || write.content.is_some_and(|content| content.len() != write.len) {
        return Err(Errno::EINVAL);
    }
    let sound = match (write.content, write.declare) {
        (Some(Extent::Inline(bytes)), None) => bytes.len() <= INLINE_BYTES_MAX as usize,
        (Some(Extent::Block(block)), declare) => {
            let whole = declare.map_or(BLOCK_BYTES_MAX, |(_, info)| info.len);
            block.offset.checked_add(block.len).is_some_and(|end| end <= whole)
                && whole <= BLOCK_BYTES_MAX
                && declare.is_none_or(|(id, _)| id == block.id)
        }
        (None | Some(Extent::Zero { .. }), None) => return Ok(end),
        _ => false,
    };
    if !sound || end > inode.size.max(write.size_min) {
        return Err(Errno::EINVAL);
    }
    Ok(end)
}
