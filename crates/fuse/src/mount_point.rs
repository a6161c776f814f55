//! The mount point, as threads of the mount process use it: they open files by handle, and make the kernel
//! send requests for them.

use crate::statx;
use crate::xattr::ASK;
use shoal_types::InodeId;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Type of a file handle with inode number and generation (`FILEID_INO64_GEN`, `linux/exportfs.h`).
const INO64_GEN: i32 = 0x81;
/// `struct file_handle` of open_by_handle_at(2).
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    node: [u32; 2],
    generation: u32,
}

/// The number on all architectures of Rust, except for those that are no longer made.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    /// 0 means up to the end.
    len: u64,
}

/// `struct cachestat`: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Found {
    cached: u64,
    changed: u64,
    being_written: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Numbers of pages of the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DirtyPages {
    /// Pages to be written back.
    pub changed: u64,
    /// Pages that are being written back.
    pub being_written: u64,
}

/// A file of the mount that a thread of the mount process has open.
pub trait OpenFile: Send {
    /// Makes the kernel send GETATTR, as statx(2) with `AT_STATX_FORCE_SYNC` does.
    fn refresh(&self) -> io::Result<()>;
    /// The size that the kernel has cached, as statx(2) with `AT_STATX_DONT_SYNC` returns it.
    fn cached_size(&self) -> io::Result<u64>;
    /// lseek(2) to the end, which takes the inode lock.
    fn seek_end(&self) -> io::Result<u64>;
    /// Sets a `security.` attribute that the mount refuses: the kernel takes the inode lock and clears
    /// `S_NOSEC`.
    fn clear_s_nosec(&self) -> io::Result<()>;
    /// cachestat(2) of a range; `len` 0 means up to the end.
    fn dirty_pages(&self, offset: i64, len: i64) -> io::Result<DirtyPages>;
}

impl OpenFile for OwnedFd {
    fn refresh(&self) -> io::Result<()> {
        statx::of_file(self.as_fd(), libc::AT_STATX_FORCE_SYNC, libc::STATX_SIZE).map(drop)
    }

    fn cached_size(&self) -> io::Result<u64> {
        Ok(statx::of_file(self.as_fd(), libc::AT_STATX_DONT_SYNC, libc::STATX_SIZE)?.stx_size)
    }

    fn seek_end(&self) -> io::Result<u64> {
        // SAFETY: the call touches no memory.
        let end = unsafe { libc::lseek(self.as_raw_fd(), 0, libc::SEEK_END) };
        u64::try_from(end).map_err(|_| io::Error::last_os_error())
    }

    fn clear_s_nosec(&self) -> io::Result<()> {
        // An `O_PATH` descriptor refuses fsetxattr(2), but its path in `/proc` can be used.
        let path =
            CString::new(format!("/proc/thread-self/fd/{}", self.as_raw_fd())).map_err(io::Error::other)?;
        // SAFETY: the call reads a path and a name that end with a zero, and nothing of the value.
        let set = unsafe { libc::setxattr(path.as_ptr(), ASK.as_ptr(), std::ptr::null(), 0, 0) };
        match (set, io::Error::last_os_error()) {
            // This mount refuses to set the attribute, with this error.
            (-1, error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            (-1, error) => Err(error),
            _ => Err(io::Error::other("it was set")),
        }
    }

    fn dirty_pages(&self, offset: i64, len: i64) -> io::Result<DirtyPages> {
        let (range, mut found) = (Range { offset: offset as u64, len: len as u64 }, Found::default());
        // SAFETY: the call reads and writes whole structures where it is pointed to.
        match unsafe { libc::syscall(SYS_CACHESTAT, self.as_raw_fd(), &raw const range, &raw mut found, 0) } {
            0 => Ok(DirtyPages { changed: found.changed, being_written: found.being_written }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The mount, as threads of the mount process reach it.
#[derive(Debug)]
pub(crate) struct MountPoint {
    mountpoint: PathBuf,
    /// As `MAJOR:MINOR`.
    device: String,
}

impl MountPoint {
    pub(crate) fn new(mountpoint: PathBuf, device: String) -> MountPoint {
        MountPoint { mountpoint, device }
    }

    /// Opens a file by its inode number. Fails if the mount is not at its mount point, or the kernel does not
    /// know the file.
    pub(crate) fn open(&self, ino: InodeId, generation: u64, flags: i32) -> io::Result<OwnedFd> {
        let root = self.root()?;
        let handle = Handle {
            bytes: (size_of::<Handle>() - std::mem::offset_of!(Handle, node)) as u32,
            kind: INO64_GEN,
            node: [(ino.0 >> 32) as u32, ino.0 as u32],
            generation: generation as u32,
        };
        let flags = flags | libc::O_CLOEXEC;
        // SAFETY: the call reads a handle of the length that it states, and returns a descriptor that has no
        // other owner.
        unsafe {
            match libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), &raw const handle, flags) {
                fd @ 0.. => Ok(OwnedFd::from_raw_fd(fd as i32)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// The root directory. It is open for moments only: an open file prevents unmount.
    fn root(&self) -> io::Result<File> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let root = OpenOptions::new().read(true).custom_flags(flags).open(&self.mountpoint)?;
        let seen = statx::of_file(root.as_fd(), libc::AT_STATX_DONT_SYNC, 0)?;
        match statx::device(&seen) == self.device {
            true => Ok(root),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
