//! Removes a name of something that is not a directory.

use super::flags;
use super::names::{self, UnlinkTarget};
use crate::{Fault, Tree};
use shoal_types::{Errno, InodeId, Name, Timestamp};

/// See [`Op::Unlink`](crate::Op::Unlink).
pub fn apply<T: Tree>(
    tree: &mut T,
    parent: InodeId,
    name: &Name,
    time: Timestamp,
    keep: bool,
) -> Result<(), Fault<T::Error>> {
    let mut dir = names::directory(tree, parent)?;
    let (dentry, inode) = names::named(tree, parent, name)?;
    if inode.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    flags::may_unlink(&dir, &inode)?;
    let target = UnlinkTarget::read(tree, dentry.ino, inode, keep)?;

    names::count(&mut dir, -1, 0, time);
    tree.put_inode(parent, dir);
    tree.remove_dentry(parent, name);
    target.unlink(tree, time);
    Ok(())
}
