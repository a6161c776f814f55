//! What a killed process leaves behind.
//!
//! The kernel ends a conversation when the last file that belongs to it is closed, and a process's files are closed when the last of
//! its threads has ended. A thread that has a name dropped may be waiting for the directory's lock ([`stale`](crate::stale)), and the
//! lock may be held by a program whose request was sent after the process had died, and which nobody will ever read: then neither
//! goes on. Somebody else has to end the conversation.

use crate::{FSTYPE, mountinfo};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::Mode;
use std::io;
use std::path::Path;

/// Lets everybody go who waits for a mount whose process is gone: their calls fail with `ECONNABORTED`. The mount stays, and answers
/// nothing but `ENOTCONN`, so that nobody writes to the directory below it by mistake. `device` is the
/// [number of the mount](crate::Mounted::device); if something else is at the mount point by now, nothing is done. Answers whether it was there.
pub fn release(mountpoint: &Path, device: &str) -> io::Result<bool> {
    let is_there = || {
        let entry = mountinfo::at(mountpoint)?;
        io::Result::Ok(entry.is_some_and(|entry| entry.fstype == FSTYPE && entry.device == device))
    };
    if !is_there()? {
        return Ok(false);
    }
    // Whoever has it open keeps it mounted. Opened as a path, the process behind it is not asked.
    let _open = open(mountpoint, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    if !is_there()? {
        return Ok(false);
    }
    match umount2(mountpoint, MntFlags::MNT_FORCE) {
        Ok(()) | Err(Errno::EBUSY) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
