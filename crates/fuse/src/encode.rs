//! Converts between the kernel's types and those of Shoal: numbers, attributes, times, errors.

use crate::limits::STAT_BLOCK_BYTES;
use fuser::{FileAttr, FileType, Generation, INodeNo, TimeOrNow};
use shoal_client::{Failure, Fallocate};
use shoal_types::{Errno, FileKind, Inode, InodeId, Timestamp};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn node(ino: InodeId) -> INodeNo {
    INodeNo(ino.0)
}

pub(crate) fn generation(inode: &Inode) -> Generation {
    Generation(inode.generation)
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// What stat(2) shows.
pub(crate) fn file_attr(ino: InodeId, inode: &Inode) -> FileAttr {
    FileAttr {
        ino: node(ino),
        size: inode.shown_size(),
        blocks: inode.blocks(),
        atime: inode.atime.into(),
        mtime: inode.mtime.into(),
        ctime: inode.ctime.into(),
        crtime: inode.btime.into(),
        kind: file_type(inode.kind),
        perm: (inode.perm & shoal_types::mode::ALL) as u16,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        blksize: STAT_BLOCK_BYTES,
        flags: 0,
    }
}

/// The answer to a lookup that found nothing: inode number 0, which the kernel caches like any other answer.
pub(crate) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: STAT_BLOCK_BYTES,
        flags: 0,
    }
}

/// A time from utimensat(2).
pub(crate) fn timestamp(time: TimeOrNow, now: Timestamp) -> Timestamp {
    match time {
        TimeOrNow::Now => now,
        TimeOrNow::SpecificTime(time) => exact(time),
    }
}

/// `fuser` reads a time before 1970 as seconds *and* nanoseconds before 1970, while the kernel counts
/// nanoseconds forward from a negative second. This takes the two apart again.
fn exact(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => time.into(),
        Err(before) => {
            let before = before.duration();
            let secs = 0i64.saturating_sub_unsigned(before.as_secs());
            Timestamp { secs, nanos: before.subsec_nanos() }
        }
    }
}

pub(crate) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

/// The outcome of a call that was allowed to wait.
pub(crate) fn settled<T>(outcome: Result<T, Failure>) -> Result<T, Errno> {
    outcome.map_err(|failure| match failure {
        Failure::Errno(errno) => errno,
        Failure::WouldBlock => {
            tracing::error!("a call that may wait refused to");
            Errno::EIO
        }
    })
}

/// `None`: a mode that is not supported (collapse, insert, unshare).
pub(crate) fn fallocate_mode(mode: i32) -> Option<Fallocate> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Some(Fallocate::Allocate { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Some(Fallocate::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Some(Fallocate::ZeroRange { keep_size }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_time_before_1970_is_what_the_kernel_meant() {
        // utimensat(-5 s, 300 ms), that is 4.7 s before 1970, as fuser hands it over.
        let from_fuser = UNIX_EPOCH - Duration::new(5, 300_000_000);
        let meant = Timestamp { secs: -5, nanos: 300_000_000 };
        assert_eq!(timestamp(TimeOrNow::SpecificTime(from_fuser), meant), meant);
        let after = UNIX_EPOCH + Duration::new(5, 300_000_000);
        assert_eq!(
            timestamp(TimeOrNow::SpecificTime(after), meant),
            Timestamp { secs: 5, nanos: 300_000_000 }
        );
        assert_eq!(timestamp(TimeOrNow::Now, meant), meant);
    }

    #[test]
    fn device_numbers_and_set_id_bits_survive() {
        let inode = Inode {
            kind: FileKind::CharDevice,
            perm: 0o6755,
            uid: 1,
            gid: 2,
            nlink: 1,
            rdev: 0x0103,
            size: 0,
            allocated: 0,
            entries: 0,
            atime: Timestamp::default(),
            mtime: Timestamp { secs: 1, nanos: 2 },
            ctime: Timestamp::default(),
            btime: Timestamp::default(),
            generation: 7,
            parent: InodeId::ROOT,
            multi_link: false,
            xattrs: 0,
            target: Default::default(),
        };
        let attr = file_attr(InodeId(9), &inode);
        assert_eq!((attr.ino, attr.perm, attr.rdev), (INodeNo(9), 0o6755, 0x0103));
        assert_eq!(attr.mtime, UNIX_EPOCH + Duration::new(1, 2));
    }
}
