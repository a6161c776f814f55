//! What inode flags forbid: the rules of the kernel's `inode_permission`, `may_delete`, `notify_change`,
//! `xattr_permission` and `vfs_fallocate`, which hold for root, too.
//!
//! The kernel does not apply them to a FUSE file system: it does not know the flags.

use crate::SetAttr;
use shoal_types::{Errno, Inode, InodeFlags};

/// Refuses with `EPERM` what one of these flags forbids.
fn unless(inode: &Inode, flags: InodeFlags) -> Result<(), Errno> {
    if inode.flags.intersects(flags) { Err(Errno::EPERM) } else { Ok(()) }
}

/// A name may be put into a directory: not if it is immutable.
pub fn may_create(dir: &Inode) -> Result<(), Errno> {
    unless(dir, InodeFlags::IMMUTABLE)
}

/// A name may be taken out of a directory and off an inode: not if either is immutable or append-only.
pub fn may_unlink(dir: &Inode, inode: &Inode) -> Result<(), Errno> {
    unless(dir, InodeFlags::PRIVILEGED)?;
    unless(inode, InodeFlags::PRIVILEGED)
}

/// An inode may get another name.
pub fn may_link(inode: &Inode) -> Result<(), Errno> {
    unless(inode, InodeFlags::PRIVILEGED)
}

/// Extended attributes may be changed.
pub fn may_change_xattrs(inode: &Inode) -> Result<(), Errno> {
    unless(inode, InodeFlags::PRIVILEGED)
}

/// Attributes may be changed. Of an append-only inode only the times, to the present: this is what `touch`
/// does, and what a change of content or of names brings with it.
pub fn may_set(inode: &Inode, set: &SetAttr) -> Result<(), Errno> {
    unless(inode, InodeFlags::IMMUTABLE)?;
    let to_the_present = |time| time == set.ctime;
    let touches = (set.atime.is_none() || to_the_present(set.atime))
        && (set.mtime.is_none() || to_the_present(set.mtime));
    match set.perm.is_none() && set.uid.is_none() && set.gid.is_none() && set.size.is_none() && touches {
        true => Ok(()),
        false => unless(inode, InodeFlags::APPEND),
    }
}

/// Content may be changed from an offset on: of an append-only file only behind its end.
pub fn may_change_content(inode: &Inode, offset: u64) -> Result<(), Errno> {
    unless(inode, if offset < inode.size { InodeFlags::PRIVILEGED } else { InodeFlags::IMMUTABLE })
}

/// Room may be reserved, which changes no content.
pub fn may_reserve(inode: &Inode) -> Result<(), Errno> {
    unless(inode, InodeFlags::IMMUTABLE)
}

/// A hole may be punched.
pub fn may_punch(inode: &Inode) -> Result<(), Errno> {
    unless(inode, InodeFlags::PRIVILEGED)
}

/// A file may be opened for writing: an append-only one for appending alone.
pub fn may_open_for_writing(inode: &Inode, appends: bool) -> Result<(), Errno> {
    unless(inode, if appends { InodeFlags::IMMUTABLE } else { InodeFlags::PRIVILEGED })
}
