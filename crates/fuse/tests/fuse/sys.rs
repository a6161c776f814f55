//! System calls that the standard library lacks.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL")
}

/// The errno that a call failed with; 0 if it did not fail.
pub fn errno<T>(outcome: io::Result<T>) -> i32 {
    outcome.err().map_or(0, |error| error.raw_os_error().expect("an errno"))
}

fn check(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

pub fn mknod(path: &Path, mode: u32, rdev: u64) -> io::Result<()> {
    check(unsafe { libc::mknod(c(path).as_ptr(), mode, rdev) }).map(drop)
}

pub fn renameat2(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let at = libc::AT_FDCWD;
    check(unsafe { libc::renameat2(at, c(from).as_ptr(), at, c(to).as_ptr(), flags) }).map(drop)
}

pub fn utimens(path: &Path, atime: (i64, i64), mtime: (i64, i64)) -> io::Result<()> {
    let times = [atime, mtime].map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    check(unsafe { libc::utimensat(libc::AT_FDCWD, c(path).as_ptr(), times.as_ptr(), flags) }).map(drop)
}

pub fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> io::Result<()> {
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) }).map(drop)
}

pub fn lseek(file: &File, offset: i64, whence: i32) -> io::Result<i64> {
    check(unsafe { libc::lseek(file.as_raw_fd(), offset, whence) })
}

pub fn copy_file_range(from: &File, mut at: i64, to: &File, mut to_at: i64, len: usize) -> io::Result<i64> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    check(unsafe { libc::copy_file_range(from, &mut at, to, &mut to_at, len, 0) } as i64)
}

pub fn setxattr(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<()> {
    let name = CString::new(name).expect("no NUL");
    let (data, len) = (value.as_ptr().cast(), value.len());
    check(unsafe { libc::lsetxattr(c(path).as_ptr(), name.as_ptr(), data, len, flags) }).map(drop)
}

/// With `room` bytes of buffer; 0 asks for the size.
pub fn getxattr(path: &Path, name: &str, room: usize) -> io::Result<(usize, Vec<u8>)> {
    let name = CString::new(name).expect("no NUL");
    let mut value = vec![0u8; room];
    let data = value.as_mut_ptr().cast();
    let len = check(unsafe { libc::lgetxattr(c(path).as_ptr(), name.as_ptr(), data, room) } as i64)? as usize;
    value.truncate(len);
    Ok((len, value))
}

pub fn removexattr(path: &Path, name: &str) -> io::Result<()> {
    let name = CString::new(name).expect("no NUL");
    check(unsafe { libc::lremovexattr(c(path).as_ptr(), name.as_ptr()) }).map(drop)
}

/// With `room` bytes of buffer; 0 asks for the size.
pub fn listxattr(path: &Path, room: usize) -> io::Result<(usize, Vec<u8>)> {
    let mut list = vec![0u8; room];
    let len = check(unsafe { libc::llistxattr(c(path).as_ptr(), list.as_mut_ptr().cast(), room) } as i64)?;
    list.truncate(len as usize);
    Ok((len as usize, list))
}

pub fn ioctl(file: &File, request: u64) -> io::Result<()> {
    let mut room = [0u64; 64];
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, room.as_mut_ptr()) }).map(drop)
}

/// A whole file in memory.
pub struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    pub fn new(file: &File, len: usize, flags: i32) -> io::Result<Map> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Map { at: at.cast(), len }) }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }

    pub fn sync(&self) -> io::Result<()> {
        check(unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) }).map(drop)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A file handle, as an NFS server keeps it.
#[repr(C)]
pub struct Handle {
    len: u32,
    kind: i32,
    bytes: [u8; 128],
}

unsafe extern "C" {
    fn name_to_handle_at(
        dir: i32,
        path: *const libc::c_char,
        handle: *mut Handle,
        mount: *mut i32,
        flags: i32,
    ) -> i32;
    fn open_by_handle_at(mount: i32, handle: *const Handle, flags: i32) -> i32;
}

impl Handle {
    pub fn of(path: &Path) -> io::Result<Handle> {
        let (mut handle, mut mount) = (Handle { len: 128, kind: 0, bytes: [0; 128] }, 0);
        check(unsafe { name_to_handle_at(libc::AT_FDCWD, c(path).as_ptr(), &mut handle, &mut mount, 0) })?;
        Ok(handle)
    }

    pub fn open(&self, mount: &Path) -> io::Result<File> {
        let mount = File::open(mount)?;
        let fd = check(unsafe { open_by_handle_at(mount.as_raw_fd(), self, libc::O_RDONLY) })?;
        Ok(unsafe { File::from_raw_fd(fd as i32) })
    }
}

pub fn getdents(dir: &File, page: &mut [u8]) -> io::Result<usize> {
    let (fd, len) = (dir.as_raw_fd(), page.len());
    check(unsafe { libc::syscall(libc::SYS_getdents64, fd, page.as_mut_ptr(), len) }).map(|len| len as usize)
}

/// A context of asynchronous I/O (io_setup(2)).
pub struct Aio(libc::c_ulong);

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved2: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

impl Aio {
    /// `IOCB_CMD_PWRITE`
    const PWRITE: u16 = 1;

    pub fn new() -> Aio {
        let mut context = 0;
        check(unsafe { libc::syscall(libc::SYS_io_setup, 1, &mut context) }).expect("io_setup");
        Aio(context)
    }

    /// Submits one write and waits until it is complete. Bytes written, or a negative errno.
    pub fn write_at(&self, file: &File, data: &[u8], offset: i64) -> io::Result<i64> {
        let mut iocb = Iocb {
            opcode: Aio::PWRITE,
            fildes: file.as_raw_fd() as u32,
            buf: data.as_ptr() as u64,
            nbytes: data.len() as u64,
            offset,
            ..Iocb::default()
        };
        let (mut submitted, mut event) = ([&mut iocb as *mut Iocb], IoEvent::default());
        check(unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, submitted.as_mut_ptr()) })?;
        let no_limit = std::ptr::null_mut::<libc::timespec>();
        check(unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &mut event, no_limit) })?;
        Ok(event.res)
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
