//! Changes attributes, the length of the content among them.

use super::content::{self, Patch};
use super::{flags, names, privileges};
use crate::{Fault, SetAttr, Tree};
use shoal_types::limits::FILE_BYTES_MAX;
use shoal_types::{Errno, FileKind, Inode, InodeId, mode};

/// See [`Op::SetAttr`](crate::Op::SetAttr). Permission bits that are given win over set-id bits that are
/// lost.
pub fn apply<T: Tree>(tree: &mut T, ino: InodeId, set: &SetAttr) -> Result<(), Fault<T::Error>> {
    let mut inode = names::inode(tree, ino)?;
    flags::may_set(&inode, set)?;
    let cut = match set.size {
        Some(size) => resize(tree, ino, &mut inode, size)?,
        None => Patch::default(),
    };
    let capability = set.clear_setid && privileges::clear(tree, ino, &mut inode)?;
    if let Some(perm) = set.perm {
        inode.perm = perm & mode::ALL;
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    inode.atime = set.atime.unwrap_or(inode.atime);
    inode.mtime = set.mtime.unwrap_or(inode.mtime);
    inode.ctime = set.ctime.unwrap_or(inode.ctime);

    cut.write(tree, ino);
    if capability {
        privileges::drop_capability(tree, ino);
    }
    tree.put_inode(ino, inode);
    Ok(())
}

/// Cuts off what lies behind the new end, room reserved there included.
fn resize<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    inode: &mut Inode,
    size: u64,
) -> Result<Patch, Fault<T::Error>> {
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    if size > FILE_BYTES_MAX {
        return Err(Errno::EFBIG.into());
    }
    let mut cut = Patch::default();
    if size <= inode.size {
        cut =
            content::replace(content::around(tree, ino, inode, size, u64::MAX)?, size, u64::MAX, Vec::new());
        cut.account(inode);
    }
    inode.size = size;
    Ok(cut)
}
