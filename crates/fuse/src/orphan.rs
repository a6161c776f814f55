//! Ends the connection of a mount whose process was killed (`docs/KERNEL_CACHE.md`, hazard 19).
//!
//! The kernel aborts a connection when its last file is closed, and the files of a process are closed when
//! its last thread has ended. A thread in `INVAL_ENTRY` may be waiting for the directory's inode lock
//! ([`invalidate`](crate::invalidate)). A program that holds the lock may have sent its request after the
//! process died, and no process will read it. Then neither ends, so another process has to abort the
//! connection.

use crate::{FSTYPE, mountinfo};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::Mode;
use std::io;
use std::path::Path;

/// Aborts the connection of a mount whose process is gone: waiting calls fail with `ECONNABORTED`, or
/// with `ECANCELED` over io_uring.
///
/// The mount stays and answers only `ENOTCONN`, so that programs do not write to the directory below it by
/// mistake. `device` is the [number of the mount](crate::Mounted::device); if another file system is at the
/// mount point by now, nothing is done. Returns whether the mount was there.
pub fn release(mountpoint: &Path, device: &str) -> io::Result<bool> {
    let is_there = || {
        let entry = mountinfo::at(mountpoint)?;
        io::Result::Ok(entry.is_some_and(|entry| entry.fstype == FSTYPE && entry.device == device))
    };
    if !is_there()? {
        return Ok(false);
    }
    // The open descriptor keeps the file system mounted. With `O_PATH` the open sends no request to the dead
    // process.
    let _open = open(mountpoint, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    if !is_there()? {
        return Ok(false);
    }
    match umount2(mountpoint, MntFlags::MNT_FORCE) {
        Ok(()) | Err(Errno::EBUSY) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
