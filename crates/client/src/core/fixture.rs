//! A core that has all it needs, for tests.

use super::Core;
use crate::values::Caller;
use bytes::Bytes;
use shoal_types::{Cookie, FileKind, Inode, InodeFlags, InodeId, Name, SessionId, Timestamp};
use shoal_wire::FileRecord;

/// A core that knows an empty root, and may change it.
pub(super) fn core() -> Core {
    let mut core = Core::new(SessionId(1), 4096, 1 << 20);
    (core.room, core.inodes) = (1 << 20, 100..200);
    let now = Timestamp::default();
    let inode = Inode {
        kind: FileKind::Directory,
        perm: 0o755,
        flags: InodeFlags::default(),
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size: 0,
        allocated: 0,
        entries: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        generation: 1,
        parent: InodeId::ROOT,
        multi_link: false,
        xattrs: 0,
        target: Bytes::new(),
    };
    let ticket = core.ticket();
    core.install_exclusive(ticket, &[InodeId::ROOT]);
    core.install_inode(ticket, record(InodeId::ROOT, inode));
    let version = core.version(InodeId::ROOT);
    core.install_end(ticket, InodeId::ROOT, version, Some(Cookie::START));
    core
}

/// The record of an inode without xattrs and content.
pub(super) fn record(ino: InodeId, inode: Inode) -> FileRecord {
    FileRecord { ino, inode, xattrs: Vec::new(), extents: None, blocks: Vec::new() }
}

pub(super) fn make_directory(core: &mut Core, name: &Name) -> InodeId {
    let (caller, mode) = (Caller { uid: 0, gid: 0, umask: 0 }, FileKind::Directory.mode_bits() | 0o755);
    let made = core.create(&caller, InodeId::ROOT, name, mode, 0, &Bytes::new(), Timestamp::default());
    let ino = made.expect("nothing is needed").ino;
    core.forget(ino, 1);
    ino
}

pub(super) fn make_file(core: &mut Core, dir: InodeId, name: &Name) -> InodeId {
    let caller = Caller { uid: 0, gid: 0, umask: 0 };
    let made = core.create(&caller, dir, name, 0o100644, 0, &Bytes::new(), Timestamp::default());
    made.expect("nothing is needed").ino
}

pub(super) fn commit(core: &mut Core) {
    let seq = core.seal();
    while core.journal.take_sealed().is_some() {}
    core.committed(seq);
}
