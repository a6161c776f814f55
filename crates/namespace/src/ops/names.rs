//! What the operations on names share.

use crate::{Dentry, Fault, Tree, limits::ANCESTORS_MAX};
use shoal_types::{Errno, Inode, InodeId, Name, Timestamp};

/// A directory that names can be put into and taken out of. `ENOENT` if it is gone or removed, `ENOTDIR` if
/// it is none.
pub(super) fn directory<T: Tree>(tree: &mut T, ino: InodeId) -> Result<Inode, Fault<T::Error>> {
    let inode = tree.inode(ino)?.ok_or(Errno::ENOENT)?;
    if !inode.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    if inode.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    Ok(inode)
}

/// An inode that a session refers to by number. `ENOENT` if it is gone.
pub(super) fn inode<T: Tree>(tree: &mut T, ino: InodeId) -> Result<Inode, Fault<T::Error>> {
    Ok(tree.inode(ino)?.ok_or(Errno::ENOENT)?)
}

/// What a name stands for, and its inode. `ENOENT` if there is no such name.
pub(super) fn named<T: Tree>(
    tree: &mut T,
    dir: InodeId,
    name: &Name,
) -> Result<(Dentry, Inode), Fault<T::Error>> {
    let dentry = tree.dentry(dir, name)?.ok_or(Errno::ENOENT)?;
    Ok((dentry, behind(tree, dentry)?))
}

/// The inode behind a directory entry.
pub(super) fn behind<T: Tree>(tree: &mut T, dentry: Dentry) -> Result<Inode, Fault<T::Error>> {
    Ok(tree.inode(dentry.ino)?.ok_or(Errno::EIO)?)
}

/// Counts a directory's names (`entries`) and sub-directories (`nlink`) and notes the time of the change.
pub(super) fn count(dir: &mut Inode, entries: i64, nlink: i32, time: Timestamp) {
    dir.entries = dir.entries.saturating_add_signed(entries);
    dir.nlink = dir.nlink.saturating_add_signed(nlink);
    dir.mtime = time;
    dir.ctime = time;
}

/// An inode that is about to lose a name.
pub(super) struct UnlinkTarget {
    ino: InodeId,
    inode: Inode,
    keep: bool,
    held_elsewhere: bool,
}

impl UnlinkTarget {
    /// Reads what its fate depends on. `keep`: the session that acts still refers to it.
    pub(super) fn read<T: Tree>(
        tree: &mut T,
        ino: InodeId,
        inode: Inode,
        keep: bool,
    ) -> Result<UnlinkTarget, Fault<T::Error>> {
        Ok(UnlinkTarget { ino, inode, keep, held_elsewhere: tree.is_held_elsewhere(ino)? })
    }

    /// Takes the name off. Without another name the inode dies, unless a session holds it. A directory has
    /// but one name.
    pub(super) fn unlink<T: Tree>(self, tree: &mut T, time: Timestamp) {
        let UnlinkTarget { ino, mut inode, keep, held_elsewhere } = self;
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        inode.ctime = time;
        if inode.nlink > 0 {
            return tree.put_inode(ino, inode);
        }
        if !keep && !held_elsewhere {
            return tree.destroy_inode(ino, &inode);
        }
        tree.put_inode(ino, inode);
        if keep {
            tree.hold(ino);
        } else {
            tree.release(ino);
        }
    }
}

/// Whether `dir` is `top` or lies below it.
pub(super) fn is_within<T: Tree>(
    tree: &mut T,
    mut dir: InodeId,
    top: InodeId,
) -> Result<bool, Fault<T::Error>> {
    for _ in 0..ANCESTORS_MAX {
        if dir == top {
            return Ok(true);
        }
        if dir == InodeId::ROOT {
            return Ok(false);
        }
        dir = tree.inode(dir)?.ok_or(Errno::EIO)?.parent;
    }
    Err(Errno::ELOOP.into())
}
