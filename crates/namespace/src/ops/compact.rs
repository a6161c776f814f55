//! Puts one block in the place of many extents.

use super::content;
use crate::{Fault, Tree};
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_types::{BlockId, BlockInfo, BlockRef, Errno, Extent, FileKind, InodeId};

/// See [`Op::Compact`](crate::Op::Compact). The extents must follow each other without a gap (`EINVAL`): a
/// hole stays a hole. A file that has gone or changed meanwhile is no error.
pub fn apply<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    offset: u64,
    expected: &[(u64, Extent)],
    block: BlockId,
    info: BlockInfo,
) -> Result<(), Fault<T::Error>> {
    let end = offset.checked_add(u64::from(info.len)).ok_or(Errno::EINVAL)?;
    if info.len > BLOCK_BYTES_MAX || !is_gapless(expected, offset, end) {
        return Err(Errno::EINVAL.into());
    }
    let found = match tree.inode(ino)? {
        // Room reserved behind the end of the file must not become bytes.
        Some(inode) if inode.kind == FileKind::Regular && end <= inode.size => {
            tree.extents(ino, offset, end)?
        }
        _ => Vec::new(),
    };

    tree.declare_block(ino, block, info);
    if found == expected {
        let merged = Extent::Block(BlockRef { id: block, offset: 0, len: info.len });
        content::replace(found, offset, end, vec![(offset, merged)]).write(tree, ino);
    }
    Ok(())
}

fn is_gapless(extents: &[(u64, Extent)], start: u64, end: u64) -> bool {
    let mut at = start;
    for (offset, extent) in extents {
        if *offset != at || extent.is_empty() {
            return false;
        }
        match at.checked_add(extent.len()) {
            Some(next) => at = next,
            None => return false,
        }
    }
    at == end && !extents.is_empty()
}
