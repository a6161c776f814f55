//! What a file loses when a caller without `CAP_FSETID` changes its content or owner.

use crate::{Fault, Tree};
use bytes::Bytes;
use shoal_types::{Inode, InodeId, XattrName, mode};

/// The attribute that holds a file's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Takes set-user-id, and set-group-id of a file that its group may execute, off the record. Answers whether
/// the file also has capabilities, which the caller then removes with [`drop_capability`] among its writes.
/// Directories lose nothing: there the bits mean something else.
pub(super) fn clear<T: Tree>(tree: &mut T, ino: InodeId, inode: &mut Inode) -> Result<bool, Fault<T::Error>> {
    if inode.is_dir() {
        return Ok(false);
    }
    let mut lost = mode::SETUID;
    if inode.perm & mode::GROUP_EXEC != 0 {
        lost |= mode::SETGID;
    }
    inode.perm &= !lost;
    if inode.xattrs == 0 || tree.xattr(ino, &capability())?.is_none() {
        return Ok(false);
    }
    inode.xattrs = inode.xattrs.saturating_sub(1);
    Ok(true)
}

/// Removes the capabilities that [`clear`] found.
pub(super) fn drop_capability<T: Tree>(tree: &mut T, ino: InodeId) {
    tree.remove_xattr(ino, &capability());
}

fn capability() -> XattrName {
    XattrName::new(Bytes::from_static(CAPABILITY)).expect("a valid name")
}
