//! Lets go of an unlinked inode.

use super::names;
use crate::{Fault, Tree};
use shoal_types::{Errno, InodeId};

/// See [`Op::Forget`](crate::Op::Forget). `ENOENT` if the session holds no such orphan.
pub fn apply<T: Tree>(tree: &mut T, ino: InodeId) -> Result<(), Fault<T::Error>> {
    if !tree.is_orphan(ino)? {
        return Err(Errno::ENOENT.into());
    }
    let inode = names::inode(tree, ino)?;

    tree.remove_orphan(ino);
    tree.destroy_inode(ino, &inode);
    Ok(())
}
