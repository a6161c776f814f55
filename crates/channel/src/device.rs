//! `/dev/fuse`: one request per read(2), one reply per writev(2).

use crate::abi::OutHeader;
use crate::reply::ReplyPath;
use crate::types::Unique;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use zerocopy::IntoBytes;

/// `FUSE_DEV_IOC_CLONE`: attaches an open `/dev/fuse` to an existing connection.
const DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;

/// Opens another descriptor of the connection that `device` belongs to. Requests are read from each of them
/// independently, and notifications may be written to any.
pub fn clone_device(device: &File) -> io::Result<File> {
    let clone = open_device()?;
    let fd = device.as_raw_fd() as u32;
    // SAFETY: the request reads four bytes from where it is pointed to.
    match unsafe { libc::ioctl(clone.as_raw_fd(), DEV_IOC_CLONE, &raw const fd) } {
        0 => Ok(clone),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens `/dev/fuse`: a connection that mount(2) has yet to attach to a mount point.
pub fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse")
}

/// An open `/dev/fuse` of a mount.
pub(crate) struct Device(pub File);

impl Device {
    /// Waits for a request. `None`: the connection has ended.
    pub(crate) fn receive<'b>(&self, buffer: &'b mut [u64]) -> io::Result<Option<&'b [u8]>> {
        let buffer = buffer.as_mut_bytes();
        loop {
            match (&self.0).read(buffer) {
                Ok(len) => return Ok(Some(&buffer[..len])),
                // ENOENT: the request was interrupted before it could be read.
                Err(why) if matches!(why.raw_os_error(), Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)) => {
                }
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                Err(why) => return Err(why),
            }
        }
    }
}

impl ReplyPath for Device {
    fn reply(&self, unique: Unique, error: i32, data: &[IoSlice<'_>]) -> io::Result<()> {
        let len = size_of::<OutHeader>() + data.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: len as u32, error, unique: unique.0 };
        // Most replies have one part.
        match data {
            [] => (&self.0).write(header.as_bytes())?,
            [part] => (&self.0).write_vectored(&[IoSlice::new(header.as_bytes()), IoSlice::new(part)])?,
            parts => {
                let mut all = Vec::with_capacity(parts.len() + 1);
                all.push(IoSlice::new(header.as_bytes()));
                all.extend(parts.iter().map(|part| IoSlice::new(part)));
                (&self.0).write_vectored(&all)?
            }
        };
        Ok(())
    }
}
