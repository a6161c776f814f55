//! Sharing the disk space of a block with a file of the same file system that has the same bytes: an old
//! brick, say, from which it was copied.
//!
//! The kernel compares the bytes, under the locks of both files, before it shares their extents
//! (ioctl_fideduperange(2)). So nothing changes that can be read, and nothing has to be trusted. XFS with
//! `reflink=1` and Btrfs can do it. A later write to the other file gives that file extents of its own.

use crate::layout::Layout;
use crate::limits::{ALIGN_BYTES, HEADER_BYTES};
use nix::errno::Errno;
use shoal_types::BlockId;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;

/// `FIDEDUPERANGE` of `linux/fs.h`: `_IOWR(0x94, 54, struct file_dedupe_range)`.
const FIDEDUPERANGE: libc::Ioctl = 0xc018_9436_u32 as libc::Ioctl;
/// `FILE_DEDUPE_RANGE_DIFFERS`.
const DIFFERS: i32 = 1;

/// `struct file_dedupe_range` with its one `struct file_dedupe_range_info` behind it.
#[repr(C)]
#[derive(Default)]
struct DedupeRange {
    src_offset: u64,
    src_length: u64,
    dest_count: u16,
    reserved1: u16,
    reserved2: u32,
    dest_fd: i64,
    dest_offset: u64,
    bytes_deduped: u64,
    status: i32,
    reserved: u32,
}

/// What became of a part of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// So many bytes are in the same place on the disk. A rest of less than a page is not.
    Shared(u64),
    /// The two do not have the same bytes, or are not at the same offset within a page.
    Differs,
    /// The brick does not have the block.
    Absent,
}

/// Has `len` bytes of a block, from `within` on, share the extents of those of `file` from `at` on. Whether a
/// server uses the brick at the same time makes no difference.
///
/// # Errors
/// `EXDEV`: brick and file are on different file systems. `EOPNOTSUPP`: theirs cannot share.
pub fn share(brick: &Path, id: BlockId, within: u32, len: u32, file: &File, at: u64) -> io::Result<Sharing> {
    let page = ALIGN_BYTES as u64;
    let mut to = HEADER_BYTES as u64 + u64::from(within);
    if at % page != to % page {
        return Ok(Sharing::Differs);
    }
    let block = match File::open(Layout::new(brick).block(id)) {
        Ok(block) => block,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Sharing::Absent),
        Err(error) => return Err(error),
    };
    // Pages that are partly of something else are left as they are.
    let skipped = to.next_multiple_of(page) - to;
    let (mut from, mut left) = (at + skipped, u64::from(len).saturating_sub(skipped) / page * page);
    to += skipped;
    let mut shared = 0;
    while left > 0 {
        let mut range = DedupeRange {
            src_offset: from,
            src_length: left,
            dest_count: 1,
            dest_fd: block.as_raw_fd().into(),
            dest_offset: to,
            ..DedupeRange::default()
        };
        // SAFETY: the structure is as long as its `dest_count` says, and lives through the call.
        Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), FIDEDUPERANGE, &raw mut range) })?;
        match range.status {
            0 if range.bytes_deduped > 0 => {}
            0 | DIFFERS => return Ok(Sharing::Differs),
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
        let done = range.bytes_deduped.min(left);
        (from, to, left, shared) = (from + done, to + done, left - done, shared + done);
    }
    Ok(Sharing::Shared(shared))
}
