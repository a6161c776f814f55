//! Gives a file another name.

use super::{flags, names};
use crate::{Dentry, Fault, Tree};
use shoal_types::limits::LINKS_MAX;
use shoal_types::{Errno, InodeFlags, InodeId, Name, Timestamp};

/// See [`Op::Link`](crate::Op::Link). A file that has lost its last name never gets one again (`ENOENT`),
/// unlike one that has had none yet. A directory never gets a second one (`EPERM`).
pub fn apply<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    parent: InodeId,
    name: &Name,
    time: Timestamp,
) -> Result<(), Fault<T::Error>> {
    let mut dir = names::directory(tree, parent)?;
    if tree.dentry(parent, name)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    let mut inode = names::inode(tree, ino)?;
    if inode.is_dir() {
        return Err(Errno::EPERM.into());
    }
    flags::may_create(&dir)?;
    flags::may_link(&inode)?;
    if inode.nlink == 0 && !inode.flags.intersects(InodeFlags::LINKABLE) {
        return Err(Errno::ENOENT.into());
    }
    if inode.nlink >= LINKS_MAX {
        return Err(Errno::EMLINK.into());
    }

    names::count(&mut dir, 1, 0, time);
    if inode.nlink == 0 {
        inode.parent = parent;
    }
    inode.flags = inode.flags.only(InodeFlags::ALL);
    inode.nlink += 1;
    inode.multi_link = true;
    inode.ctime = time;
    tree.put_dentry(parent, name, Dentry { ino, kind: inode.kind });
    tree.put_inode(parent, dir);
    tree.put_inode(ino, inode);
    Ok(())
}
