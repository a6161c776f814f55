//! Extended attributes of a path; of a symbolic link itself, not of its target.

use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Linux allows a value of 64 KiB, and names of 64 KiB in total.
const XATTR_BYTES_MAX: usize = 64 << 10;

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL.into())
}

/// The value of an attribute, if it is there.
pub fn get(path: &Path, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let (path, mut value) = (c_path(path)?, vec![0; XATTR_BYTES_MAX]);
    // SAFETY: both strings end with NUL, and `value` has the length that is passed.
    let length =
        unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    match Errno::result(length) {
        Ok(length) => {
            value.truncate(length as usize);
            Ok(Some(value))
        }
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The names of all attributes.
pub fn names(path: &Path) -> io::Result<Vec<CString>> {
    let (path, mut names) = (c_path(path)?, vec![0_u8; XATTR_BYTES_MAX]);
    // SAFETY: the path ends with NUL, and `names` has the length that is passed.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    match Errno::result(length) {
        Ok(length) => names.truncate(length as usize),
        Err(Errno::EOPNOTSUPP) => names.clear(),
        Err(errno) => return Err(errno.into()),
    }
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

/// Sets an attribute.
pub fn set(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: both strings end with NUL, and `value` has the length that is passed.
    let done =
        unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(done).map(drop)?;
    Ok(())
}

/// Removes an attribute, if it is there.
pub fn remove(path: &Path, name: &CStr) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: both strings end with NUL.
    match Errno::result(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) }) {
        Ok(_) | Err(Errno::ENODATA) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
