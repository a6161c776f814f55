//! Moves a name, replaces one, or swaps two.

use super::flags;
use super::names::{self, UnlinkTarget, is_within};
use crate::{Dentry, Fault, RenameFlags, Tree};
use shoal_types::limits::SUBDIRS_MAX;
use shoal_types::{Errno, Inode, InodeId, Name, Timestamp};

/// A name in a directory.
type Place<'a> = (InodeId, &'a Name);

/// See [`Op::Rename`](crate::Op::Rename).
pub fn apply<T: Tree>(
    tree: &mut T,
    from: Place<'_>,
    to: Place<'_>,
    flags: RenameFlags,
    time: Timestamp,
    keep: bool,
) -> Result<(), Fault<T::Error>> {
    if flags.no_replace && flags.exchange {
        return Err(Errno::EINVAL.into());
    }
    let dirs = Dirs::read(tree, from.0, to.0)?;
    let (moved, inode) = names::named(tree, from.0, from.1)?;
    let target = tree.dentry(to.0, to.1)?;
    match target {
        Some(_) if flags.no_replace => return Err(Errno::EEXIST.into()),
        None if flags.exchange => return Err(Errno::ENOENT.into()),
        Some(target) if target.ino == moved.ino => return Ok(()),
        _ => {}
    }
    flags::may_unlink(&dirs.from.1, &inode)?;
    flags::may_create(dirs.to())?;
    if inode.is_dir() && from.0 != to.0 && is_within(tree, to.0, moved.ino)? {
        return Err(Errno::EINVAL.into());
    }
    match target {
        Some(target) if flags.exchange => exchange(tree, dirs, (from, moved, inode), (to, target), time),
        _ => replace(tree, dirs, (from, moved, inode), (to, target), time, keep),
    }
}

fn replace<T: Tree>(
    tree: &mut T,
    mut dirs: Dirs,
    (from, moved, mut inode): (Place<'_>, Dentry, Inode),
    (to, target): (Place<'_>, Option<Dentry>),
    time: Timestamp,
    keep: bool,
) -> Result<(), Fault<T::Error>> {
    let mut replaced = None;
    let mut replaced_dir = false;
    if let Some(dentry) = target {
        let target = names::behind(tree, dentry)?;
        flags::may_unlink(dirs.to(), &target)?;
        replaced_dir = target.is_dir();
        match (inode.is_dir(), target.is_dir()) {
            (true, false) => return Err(Errno::ENOTDIR.into()),
            // Whatever is moved: the directory that it is in is not empty.
            (false, true) if is_within(tree, from.0, dentry.ino)? => {
                return Err(Errno::ENOTEMPTY.into());
            }
            (false, true) => return Err(Errno::EISDIR.into()),
            (true, true) if target.entries > 0 => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        replaced = Some(UnlinkTarget::read(tree, dentry.ino, target, keep)?);
    }
    dirs.count_from(-1, -i32::from(inode.is_dir()), time);
    let nlink = i32::from(inode.is_dir()) - i32::from(replaced_dir);
    dirs.count_to(1 - i64::from(replaced.is_some()), nlink, time)?;
    set_parent(&mut inode, to.0, time);

    dirs.write(tree);
    tree.remove_dentry(from.0, from.1);
    tree.put_dentry(to.0, to.1, moved);
    tree.put_inode(moved.ino, inode);
    if let Some(replaced) = replaced {
        replaced.unlink(tree, time);
    }
    Ok(())
}

fn exchange<T: Tree>(
    tree: &mut T,
    mut dirs: Dirs,
    (from, moved, mut inode): (Place<'_>, Dentry, Inode),
    (to, target): (Place<'_>, Dentry),
    time: Timestamp,
) -> Result<(), Fault<T::Error>> {
    let mut other = names::behind(tree, target)?;
    flags::may_unlink(dirs.to(), &other)?;
    if other.is_dir() && from.0 != to.0 && is_within(tree, from.0, target.ino)? {
        return Err(Errno::EINVAL.into());
    }
    let gain = i32::from(inode.is_dir()) - i32::from(other.is_dir());
    dirs.count_from(0, -gain, time);
    dirs.count_to(0, gain, time)?;
    set_parent(&mut inode, to.0, time);
    set_parent(&mut other, from.0, time);

    dirs.write(tree);
    tree.put_dentry(from.0, from.1, target);
    tree.put_dentry(to.0, to.1, moved);
    tree.put_inode(moved.ino, inode);
    tree.put_inode(target.ino, other);
    Ok(())
}

/// Sets the parent of an inode that has moved. One that has had several names keeps its first parent, which
/// is not its cover any more.
fn set_parent(inode: &mut Inode, dir: InodeId, time: Timestamp) {
    inode.ctime = time;
    if inode.is_dir() || !inode.multi_link {
        inode.parent = dir;
    }
}

/// The directories of both names, which may be one.
struct Dirs {
    from: (InodeId, Inode),
    /// `None`: the same.
    to: Option<(InodeId, Inode)>,
}

impl Dirs {
    fn read<T: Tree>(tree: &mut T, from: InodeId, to: InodeId) -> Result<Dirs, Fault<T::Error>> {
        Ok(Dirs {
            from: (from, names::directory(tree, from)?),
            to: if to == from { None } else { Some((to, names::directory(tree, to)?)) },
        })
    }

    fn to(&self) -> &Inode {
        self.to.as_ref().map_or(&self.from.1, |(_, dir)| dir)
    }

    fn count_from(&mut self, entries: i64, nlink: i32, time: Timestamp) {
        names::count(&mut self.from.1, entries, nlink, time);
    }

    fn count_to(&mut self, entries: i64, nlink: i32, time: Timestamp) -> Result<(), Errno> {
        let dir = self.to.as_mut().map_or(&mut self.from.1, |(_, dir)| dir);
        if nlink > 0 && dir.nlink >= SUBDIRS_MAX {
            return Err(Errno::EMLINK);
        }
        names::count(dir, entries, nlink, time);
        Ok(())
    }

    fn write<T: Tree>(self, tree: &mut T) {
        tree.put_inode(self.from.0, self.from.1);
        if let Some((ino, dir)) = self.to {
            tree.put_inode(ino, dir);
        }
    }
}
