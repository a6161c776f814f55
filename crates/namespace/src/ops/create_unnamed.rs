//! Makes a file without a name.

use super::{create, flags, names};
use crate::{Fault, Tree, op::NewInode};
use shoal_types::{Errno, FileKind, Inode, InodeFlags, InodeId};

/// See [`Op::CreateUnnamed`](crate::Op::CreateUnnamed). `EINVAL` for another kind than a file with content.
///
/// The inode is its own cover from the beginning, like one with several names. So no right to the directory
/// is needed, and the cover stays the same when the file gets a name.
pub fn apply<T: Tree>(
    tree: &mut T,
    parent: InodeId,
    ino: InodeId,
    new: &NewInode,
) -> Result<(), Fault<T::Error>> {
    if new.kind != FileKind::Regular {
        return Err(Errno::EINVAL.into());
    }
    create::check(new)?;
    flags::may_create(&names::directory(tree, parent)?)?;

    let named = create::record(parent, new);
    tree.put_inode(ino, Inode { nlink: 0, multi_link: true, flags: InodeFlags::LINKABLE, ..named });
    for (name, value) in &new.xattrs {
        tree.put_xattr(ino, name, value.clone());
    }
    tree.hold(ino);
    Ok(())
}
