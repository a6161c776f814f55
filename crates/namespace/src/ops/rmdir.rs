//! Removes an empty directory.

use super::flags;
use super::names::{self, UnlinkTarget};
use crate::{Fault, Tree};
use shoal_types::{Errno, InodeId, Name, Timestamp};

/// See [`Op::Rmdir`](crate::Op::Rmdir).
pub fn apply<T: Tree>(
    tree: &mut T,
    parent: InodeId,
    name: &Name,
    time: Timestamp,
    keep: bool,
) -> Result<(), Fault<T::Error>> {
    let mut dir = names::directory(tree, parent)?;
    let (dentry, inode) = names::named(tree, parent, name)?;
    if !inode.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    flags::may_unlink(&dir, &inode)?;
    if inode.entries > 0 {
        return Err(Errno::ENOTEMPTY.into());
    }
    let target = UnlinkTarget::read(tree, dentry.ino, inode, keep)?;

    names::count(&mut dir, -1, -1, time);
    tree.put_inode(parent, dir);
    tree.remove_dentry(parent, name);
    target.unlink(tree, time);
    Ok(())
}
