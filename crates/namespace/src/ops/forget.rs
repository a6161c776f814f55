//! Lets go of an inode.

use crate::{Fault, Tree};
use shoal_types::InodeId;

/// See [`Op::Forget`](crate::Op::Forget).
pub fn apply<T: Tree>(tree: &mut T, ino: InodeId) -> Result<(), Fault<T::Error>> {
    let Some(inode) = tree.inode(ino)? else { return Ok(()) };
    let held_elsewhere = tree.is_held_elsewhere(ino)?;

    tree.release(ino);
    if inode.nlink == 0 && !held_elsewhere {
        tree.destroy_inode(ino, &inode);
    }
    Ok(())
}
