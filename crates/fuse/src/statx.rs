//! statx(2), which can show what the kernel has cached without a request.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The empty path: the file itself.
const ITSELF: &CStr = c"";

/// Attributes of an open file. `sync`: `AT_STATX_FORCE_SYNC` or `AT_STATX_DONT_SYNC`.
pub(crate) fn of_file(file: BorrowedFd<'_>, sync: i32, mask: u32) -> io::Result<libc::statx> {
    statx(file.as_raw_fd(), ITSELF, libc::AT_EMPTY_PATH | sync, mask)
}

/// Cached attributes of the file that an absolute path leads to. Sends no request if the kernel knows every
/// step of the path, as with links of `/proc`.
pub(crate) fn known(path: &CStr) -> io::Result<libc::statx> {
    statx(libc::AT_FDCWD, path, libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT, libc::STATX_INO)
}

fn statx(at: i32, path: &CStr, flags: i32, mask: u32) -> io::Result<libc::statx> {
    let mut seen = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the call reads a path that ends with a zero, and writes a whole structure to where it is
    // pointed to.
    unsafe {
        match libc::statx(at, path.as_ptr(), flags, mask, seen.as_mut_ptr()) {
            0 => Ok(seen.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The number of the device that a file is on, as `MAJOR:MINOR`.
pub(crate) fn device(seen: &libc::statx) -> String {
    format!("{}:{}", seen.stx_dev_major, seen.stx_dev_minor)
}
