//! Makes a range of one file share the content of another's.

use super::{content, flags, privileges, write};
use crate::{Fault, Tree};
use shoal_types::limits::FILE_BYTES_MAX;
use shoal_types::{Errno, InodeId, Timestamp};

/// See [`Op::CloneRange`](crate::Op::CloneRange). Inline bytes are copied, blocks are shared.
pub fn apply<T: Tree>(
    tree: &mut T,
    (src, src_offset): (InodeId, u64),
    (dst, dst_offset): (InodeId, u64),
    len: u64,
    time: Timestamp,
    clear_setid: bool,
) -> Result<(), Fault<T::Error>> {
    let source = content::file(tree, src)?;
    let mut inode = content::file(tree, dst)?;
    flags::may_change_content(&inode, dst_offset)?;
    let src_end = src_offset.checked_add(len).filter(|end| *end <= source.size).ok_or(Errno::EINVAL)?;
    let dst_end = dst_offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
    if len == 0 || (src == dst && src_offset < dst_end && dst_offset < src_end) {
        return Err(Errno::EINVAL.into());
    }
    let mut pieces = Vec::new();
    let shared = if source.allocated == 0 { Vec::new() } else { tree.extents(src, src_offset, src_end)? };
    for (offset, extent) in shared {
        let start = offset.max(src_offset);
        let end = (offset + extent.len()).min(src_end);
        pieces.push((dst_offset + (start - src_offset), extent.slice(start - offset, end - start)));
    }
    let old = content::around(tree, dst, &inode, dst_offset, dst_end)?;
    let capability = clear_setid && privileges::clear(tree, dst, &mut inode)?;
    let patch = content::replace(old, dst_offset, dst_end, pieces);
    write::finish(&mut inode, &patch, dst_end, time);

    patch.write(tree, dst);
    if capability {
        privileges::drop_capability(tree, dst);
    }
    tree.put_inode(dst, inode);
    Ok(())
}
