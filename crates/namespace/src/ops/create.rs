//! Makes a file of any kind and its first name.

use super::{flags, names};
use crate::{Dentry, Fault, Tree, op::NewInode};
use shoal_types::limits::{SUBDIRS_MAX, SYMLINK_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use shoal_types::{Errno, FileKind, Inode, InodeFlags, InodeId, Name, mode};

/// See [`Op::Create`](crate::Op::Create). That the number is fresh is for the caller to see to: a client's
/// own tree cannot tell a fresh number from one it has not heard of.
pub fn apply<T: Tree>(
    tree: &mut T,
    parent: InodeId,
    name: &Name,
    ino: InodeId,
    new: &NewInode,
) -> Result<(), Fault<T::Error>> {
    check(new)?;
    let mut dir = names::directory(tree, parent)?;
    if tree.dentry(parent, name)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    flags::may_create(&dir)?;
    let is_dir = new.kind == FileKind::Directory;
    if is_dir && dir.nlink >= SUBDIRS_MAX {
        return Err(Errno::EMLINK.into());
    }

    names::count(&mut dir, 1, i32::from(is_dir), new.time);
    tree.put_inode(parent, dir);
    tree.put_inode(ino, record(parent, new));
    for (name, value) in &new.xattrs {
        tree.put_xattr(ino, name, value.clone());
    }
    tree.put_dentry(parent, name, Dentry { ino, kind: new.kind });
    Ok(())
}

pub(super) fn check(new: &NewInode) -> Result<(), Errno> {
    if new.kind == FileKind::Symlink {
        if new.target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if new.target.len() > SYMLINK_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if new.target.contains(&0) {
            return Err(Errno::EINVAL);
        }
    } else if !new.target.is_empty() {
        return Err(Errno::EINVAL);
    }
    let mut bytes = 0;
    for (index, (name, value)) in new.xattrs.iter().enumerate() {
        if index > 0 && new.xattrs[index - 1].0 >= *name {
            return Err(Errno::EINVAL);
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        bytes += name.as_bytes().len() + value.len();
    }
    if bytes > XATTR_TOTAL_BYTES_MAX { Err(Errno::ENOSPC) } else { Ok(()) }
}

/// The record a new inode begins with.
pub(super) fn record(parent: InodeId, new: &NewInode) -> Inode {
    let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
    Inode {
        kind: new.kind,
        perm: new.perm & mode::ALL,
        flags: InodeFlags::default(),
        uid: new.uid,
        gid: new.gid,
        nlink: if new.kind == FileKind::Directory { 2 } else { 1 },
        rdev: if is_device { new.rdev } else { 0 },
        size: new.target.len() as u64,
        allocated: 0,
        entries: 0,
        atime: new.time,
        mtime: new.time,
        ctime: new.time,
        btime: new.time,
        generation: new.generation,
        parent,
        multi_link: false,
        xattrs: new.xattrs.len() as u32,
        target: new.target.clone(),
    }
}
