//! System calls that the standard library does not have, with errno as the error.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Result of a system call; the error prints as a symbol and can be compared with `libc::E...`.
pub type Sys<T> = Result<T, Errno>;

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", nix::errno::Errno::from_raw(self.0))
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(0))
    }
}

fn last() -> Errno {
    Error::last_os_error().into()
}

fn check(result: i64) -> Sys<u64> {
    u64::try_from(result).map_err(|_| last())
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL in it")
}

fn c_str(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).expect("a name has no NUL in it")
}

// SAFETY, for every block below: strings end with NUL and live through the call; buffers are passed with
// their own length; file descriptors are borrowed from their owners.

/// open(2).
pub fn open(path: &Path, flags: i32, mode: u32) -> Sys<OwnedFd> {
    let fd = check(i64::from(unsafe { libc::open(c(path).as_ptr(), flags | libc::O_CLOEXEC, mode) }))?;
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// openat(2).
pub fn open_at(dir: &OwnedFd, path: &Path, flags: i32, mode: u32) -> Sys<OwnedFd> {
    let path = c(path);
    let fd = unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    let fd = check(i64::from(fd))?;
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// mkdirat(2).
pub fn mkdir_at(dir: &OwnedFd, path: &Path) -> Sys<()> {
    check(i64::from(unsafe { libc::mkdirat(dir.as_raw_fd(), c(path).as_ptr(), 0o755) })).map(drop)
}

/// The inode number of an open file.
pub fn inode(fd: &OwnedFd) -> u64 {
    nix::sys::stat::fstat(fd).expect("what is open has attributes").st_ino
}

/// pwrite(2), once.
pub fn pwrite(fd: &OwnedFd, data: &[u8], offset: u64) -> Sys<u64> {
    check(unsafe { libc::pwrite(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), offset as i64) } as i64)
}

/// pread(2), once.
pub fn pread(fd: &OwnedFd, len: usize, offset: u64) -> Sys<Vec<u8>> {
    let mut data = vec![0; len];
    let got =
        check(unsafe { libc::pread(fd.as_raw_fd(), data.as_mut_ptr().cast(), len, offset as i64) } as i64)?;
    data.truncate(got as usize);
    Ok(data)
}

/// write(2), once, at the file position.
pub fn write(fd: &OwnedFd, data: &[u8]) -> Sys<u64> {
    check(unsafe { libc::write(fd.as_raw_fd(), data.as_ptr().cast(), data.len()) } as i64)
}

/// fallocate(2).
pub fn fallocate(fd: &OwnedFd, mode: i32, offset: u64, len: u64) -> Sys<()> {
    check(i64::from(unsafe { libc::fallocate(fd.as_raw_fd(), mode, offset as i64, len as i64) })).map(drop)
}

/// copy_file_range(2), once.
pub fn copy_file_range(
    src: &OwnedFd,
    src_offset: u64,
    dst: &OwnedFd,
    dst_offset: u64,
    len: usize,
) -> Sys<u64> {
    let (mut from, mut to) = (src_offset as i64, dst_offset as i64);
    check(
        unsafe { libc::copy_file_range(src.as_raw_fd(), &mut from, dst.as_raw_fd(), &mut to, len, 0) } as i64
    )
}

/// lseek(2).
pub fn lseek(fd: &OwnedFd, offset: u64, whence: i32) -> Sys<u64> {
    check(unsafe { libc::lseek(fd.as_raw_fd(), offset as i64, whence) })
}

/// fsync(2).
pub fn fsync(fd: &OwnedFd) -> Sys<()> {
    check(i64::from(unsafe { libc::fsync(fd.as_raw_fd()) })).map(drop)
}

/// ftruncate(2).
pub fn ftruncate(fd: &OwnedFd, len: u64) -> Sys<()> {
    check(i64::from(unsafe { libc::ftruncate(fd.as_raw_fd(), len as i64) })).map(drop)
}

/// truncate(2).
pub fn truncate(path: &Path, len: u64) -> Sys<()> {
    check(i64::from(unsafe { libc::truncate(c(path).as_ptr(), len as i64) })).map(drop)
}

/// mknod(2).
pub fn mknod(path: &Path, mode: u32, device: u64) -> Sys<()> {
    check(i64::from(unsafe { libc::mknod(c(path).as_ptr(), mode, device) })).map(drop)
}

/// mkdir(2).
pub fn mkdir(path: &Path, mode: u32) -> Sys<()> {
    check(i64::from(unsafe { libc::mkdir(c(path).as_ptr(), mode) })).map(drop)
}

/// renameat2(2).
pub fn rename(from: &Path, to: &Path, flags: u32) -> Sys<()> {
    let (from, to) = (c(from), c(to));
    check(unsafe {
        libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    })
    .map(drop)
}

/// chmod(2).
pub fn chmod(path: &Path, mode: u32) -> Sys<()> {
    check(i64::from(unsafe { libc::chmod(c(path).as_ptr(), mode) })).map(drop)
}

/// lchown(2); `u32::MAX` leaves one alone.
pub fn lchown(path: &Path, uid: u32, gid: u32) -> Sys<()> {
    check(i64::from(unsafe { libc::lchown(c(path).as_ptr(), uid, gid) })).map(drop)
}

/// utimensat(2) without following symlinks; nanoseconds may be `UTIME_NOW` or `UTIME_OMIT`.
pub fn utimens(path: &Path, atime: (i64, i64), mtime: (i64, i64)) -> Sys<()> {
    let time = |(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec };
    let times = [time(atime), time(mtime)];
    let result = unsafe {
        libc::utimensat(libc::AT_FDCWD, c(path).as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
    };
    check(i64::from(result)).map(drop)
}

/// lsetxattr(2).
pub fn setxattr(path: &Path, name: &OsStr, value: &[u8], flags: i32) -> Sys<()> {
    let (path, name) = (c(path), c_str(name));
    let result =
        unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) };
    check(i64::from(result)).map(drop)
}

/// lgetxattr(2) with a buffer that is large enough for anything.
pub fn getxattr(path: &Path, name: &OsStr) -> Sys<Vec<u8>> {
    let (path, name) = (c(path), c_str(name));
    let mut value = vec![0; 64 << 10];
    let got =
        unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(check(got as i64)? as usize);
    Ok(value)
}

/// lremovexattr(2).
pub fn removexattr(path: &Path, name: &OsStr) -> Sys<()> {
    let (path, name) = (c(path), c_str(name));
    check(i64::from(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })).map(drop)
}

/// llistxattr(2), sorted.
pub fn listxattr(path: &Path) -> Sys<Vec<OsString>> {
    let mut list = vec![0u8; 64 << 10];
    let got = unsafe { libc::llistxattr(c(path).as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    list.truncate(check(got as i64)? as usize);
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<OsString> = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
    names.sort();
    Ok(names)
}

/// All extended attributes of a file.
pub fn xattrs(path: &Path) -> std::io::Result<BTreeMap<OsString, Vec<u8>>> {
    let io = |errno: Errno| Error::from_raw_os_error(errno.0);
    let names = listxattr(path).map_err(io)?;
    names.into_iter().map(|name| Ok((name.clone(), getxattr(path, &name).map_err(io)?))).collect()
}

/// Bytes in use on the file system that a path is on.
pub fn used_bytes(path: &Path) -> u64 {
    let stat = nix::sys::statvfs::statvfs(path).expect("a mounted file system tells its size");
    (stat.blocks() - stat.blocks_free()) * stat.fragment_size()
}

/// Runs a closure with another user's credentials, in this thread only: the C library's calls would change
/// the whole process.
pub fn as_user<T>(uid: u32, gid: u32, work: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: these calls take integers and change the credentials of the calling thread, which
                // ends below.
                let become_user = unsafe {
                    libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                        && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
                        && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
                };
                assert!(become_user, "cannot act as user {uid}: {:?}", last());
                work()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
