//! Converts between the kernel's types and those of Shoal: numbers, attributes, times, errors.

use crate::limits::STAT_BLOCK_BYTES;
use shoal_channel::{Attr, NodeId, SetTime, Time};
use shoal_client::{Failure, Fallocate};
use shoal_types::{Errno, Inode, InodeId, Timestamp};

pub(crate) fn node(ino: InodeId) -> NodeId {
    NodeId(ino.0)
}

/// The attributes as in stat(2).
pub(crate) fn attributes(ino: InodeId, inode: &Inode) -> Attr {
    let time = |Timestamp { secs, nanos }| Time { secs, nanos };
    Attr {
        ino: ino.0,
        size: inode.shown_size(),
        blocks: inode.blocks(),
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        btime: time(inode.btime),
        mode: inode.kind.mode_bits() | inode.perm & shoal_types::mode::ALL,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        blksize: STAT_BLOCK_BYTES,
    }
}

/// A time from utimensat(2).
pub(crate) fn timestamp(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::At(Time { secs, nanos }) => Timestamp { secs, nanos },
    }
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
    use shoal_types::{FileKind, InodeFlags};

    #[test]
    fn a_time_before_1970_is_kept() {
        let now = Timestamp { secs: 5, nanos: 0 };
        let before = SetTime::At(Time { secs: -5, nanos: 300_000_000 });
        assert_eq!(timestamp(before, now), Timestamp { secs: -5, nanos: 300_000_000 });
        assert_eq!(timestamp(SetTime::Now, now), now);
    }

    #[test]
    fn device_numbers_and_set_id_bits_survive() {
        let inode = Inode {
            kind: FileKind::CharDevice,
            perm: 0o6755,
            flags: InodeFlags::default(),
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
        let attr = attributes(InodeId(9), &inode);
        assert_eq!((attr.ino, attr.mode, attr.rdev), (9, libc::S_IFCHR | 0o6755, 0x0103));
        assert_eq!(attr.mtime, Time { secs: 1, nanos: 2 });
    }
}
