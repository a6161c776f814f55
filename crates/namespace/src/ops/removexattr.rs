//! Removes an extended attribute.

use super::{flags, names};
use crate::{Fault, Tree};
use shoal_types::{Errno, InodeId, Timestamp, XattrName};

/// See [`Op::RemoveXattr`](crate::Op::RemoveXattr).
pub fn apply<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    name: &XattrName,
    time: Timestamp,
) -> Result<(), Fault<T::Error>> {
    let mut inode = names::inode(tree, ino)?;
    flags::may_change_xattrs(&inode)?;
    if inode.xattrs == 0 || tree.xattr(ino, name)?.is_none() {
        return Err(Errno::ENODATA.into());
    }

    inode.xattrs = inode.xattrs.saturating_sub(1);
    inode.ctime = time;
    tree.remove_xattr(ino, name);
    tree.put_inode(ino, inode);
    Ok(())
}
