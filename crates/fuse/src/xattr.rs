//! Extended attributes: what the kernel leaves to the server.

use bytes::Bytes;
use shoal_client::{Client, Reply, Wait};
use shoal_namespace::{SetAttr, XattrSet};
use shoal_types::{Errno, InodeId, XattrName, mode};
use std::ffi::CStr;

/// An ACL beyond the permission bits.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The capabilities of an executable file. The kernel requests it before it writes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// An attribute that no file has. A thread of the mount tries to set it, which revokes a write permit: see
/// `invalidate::write_gate`.
pub(crate) const ASK: &CStr = c"security.shoal.ask";
/// Names with this prefix are visible only with `CAP_SYS_ADMIN`.
const TRUSTED: &[u8] = b"trusted.";

/// The flags of setxattr(2).
pub(crate) fn how(flags: i32) -> Result<XattrSet, Errno> {
    match flags {
        0 => Ok(XattrSet::Any),
        libc::XATTR_CREATE => Ok(XattrSet::Create),
        libc::XATTR_REPLACE => Ok(XattrSet::Replace),
        _ => Err(Errno::EINVAL),
    }
}

/// The names as listxattr(2) returns them to a user.
pub(crate) fn joined(names: &[XattrName], uid: u32) -> Bytes {
    let mut list = Vec::new();
    for name in names.iter().map(XattrName::as_bytes) {
        if uid == 0 || !name.starts_with(TRUSTED) {
            list.extend_from_slice(name);
            list.push(0);
        }
    }
    list.into()
}

/// Clears the set-group-id bit after an ACL was set by a caller that is neither root nor in the file's group,
/// as chmod(2) does. The kernel says which callers these are.
pub(crate) fn drop_setgid(client: &Client, wait: Wait, ino: InodeId) -> Reply<()> {
    let inode = client.getattr(wait, ino)?;
    if inode.perm & mode::SETGID != 0 {
        let perm = Some(inode.perm & !mode::SETGID);
        client.setattr(wait, ino, SetAttr { perm, ..SetAttr::default() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_names_are_shown_to_root_only() {
        let names =
            ["user.a", "trusted.b", "security.c"].map(|name| XattrName::try_from(name).expect("a name"));
        assert_eq!(joined(&names, 0), &b"user.a\0trusted.b\0security.c\0"[..]);
        assert_eq!(joined(&names, 1000), &b"user.a\0security.c\0"[..]);
        assert!(joined(&[], 0).is_empty());
    }

    #[test]
    fn contradicting_flags_are_refused() {
        assert_eq!(how(libc::XATTR_CREATE | libc::XATTR_REPLACE), Err(Errno::EINVAL));
        assert_eq!(how(libc::XATTR_REPLACE), Ok(XattrSet::Replace));
    }
}
