//! Sets an extended attribute.

use super::{flags, names};
use crate::{Fault, Tree, XattrSet};
use bytes::Bytes;
use shoal_types::limits::{XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use shoal_types::{Errno, InodeId, Timestamp, XattrName};

/// See [`Op::SetXattr`](crate::Op::SetXattr). `E2BIG` for a value that is too large, `ENOSPC` where all
/// attributes together become so.
pub fn apply<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    name: &XattrName,
    value: &Bytes,
    how: XattrSet,
    time: Timestamp,
) -> Result<(), Fault<T::Error>> {
    let mut inode = names::inode(tree, ino)?;
    flags::may_change_xattrs(&inode)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Errno::E2BIG.into());
    }
    let others = if inode.xattrs == 0 { Vec::new() } else { tree.xattr_sizes(ino)? };
    let exists = others.iter().any(|(other, _)| other == name);
    match how {
        XattrSet::Create if exists => return Err(Errno::EEXIST.into()),
        XattrSet::Replace if !exists => return Err(Errno::ENODATA.into()),
        _ => {}
    }
    let bytes: usize = others
        .iter()
        .filter(|(other, _)| other != name)
        .map(|(other, size)| other.as_bytes().len() + size)
        .sum();
    if bytes + name.as_bytes().len() + value.len() > XATTR_TOTAL_BYTES_MAX {
        return Err(Errno::ENOSPC.into());
    }

    inode.xattrs += u32::from(!exists);
    inode.ctime = time;
    tree.put_xattr(ino, name, value.clone());
    tree.put_inode(ino, inode);
    Ok(())
}
