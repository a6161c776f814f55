//! Sets inode flags.

use super::names;
use crate::{Fault, Tree};
use shoal_types::{Errno, FileKind, InodeFlags, InodeId, Timestamp};

/// See [`Op::SetFlags`](crate::Op::SetFlags). `EOPNOTSUPP` for a flag that there is not, and for an inode
/// that is neither a file with content nor a directory.
pub fn apply<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    flags: InodeFlags,
    time: Timestamp,
) -> Result<(), Fault<T::Error>> {
    let mut inode = names::inode(tree, ino)?;
    let known = flags.0 & !InodeFlags::ALL.0 == 0;
    if !known || !matches!(inode.kind, FileKind::Regular | FileKind::Directory) {
        return Err(Errno::EOPNOTSUPP.into());
    }

    inode.flags = InodeFlags(flags.0 | inode.flags.only(InodeFlags::LINKABLE).0);
    inode.ctime = time;
    tree.put_inode(ino, inode);
    Ok(())
}
