//! The requests of the kernel, one method each: decode, call the client, encode. Threads that wait are in
//! `dispatch`.

use crate::affinity;
use crate::answer;
use crate::dispatch::Dispatcher;
use crate::encode::{fallocate_mode, node};
use crate::handle;
use crate::invalidate::{Holds, Write};
use crate::kernel;
use crate::limits::STAT_BLOCK_BYTES;
use crate::locks;
use crate::nodeid_alias::Found;
use crate::prime::Primer;
use crate::setattr::Wanted;
use crate::stats::{Op, Timer};
use crate::xattr::{self, Setter};
use fuser::{FileHandle, INodeNo, LockOwner, OpenFlags, Request, TimeOrNow, WriteFlags};
use shoal_client::{Caller, Client, Creation, Entry, Looked, Seek, Wait};
use shoal_namespace::RenameFlags;
use shoal_types::limits::NAME_BYTES_MAX;
use shoal_types::{Errno, FileKind, InodeId, Statfs};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// The file system as the kernel sees it.
pub(crate) struct Filesystem {
    pub server: Dispatcher,
    pub primer: Primer,
}

fn caller(req: &Request, umask: u32) -> Caller {
    Caller { uid: req.uid(), gid: req.gid(), umask }
}

impl Filesystem {
    /// The inode that a request is about.
    fn about(&self, ino: INodeNo) -> InodeId {
        let ino = self.server.inode(ino);
        self.server.invalidator().is_asked_about(ino);
        ino
    }

    fn make(
        &self,
        op: Op,
        (caller, tid): (Caller, u32),
        parent: INodeNo,
        name: &OsStr,
        (mode, rdev): (u32, u32),
        reply: fuser::ReplyEntry,
    ) {
        affinity::met(tid, 0);
        let parent = self.server.inode(parent);
        self.server.change(
            op.of(parent),
            Holds::names(parent, tid),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.create(wait, &caller, parent, name, mode, rdev),
            answer::entry,
        );
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _req: &Request, config: &mut fuser::KernelConfig) -> io::Result<()> {
        kernel::negotiate(config, self.server.shared().locks.are_ours())
    }

    fn destroy(&mut self) {
        self.server.drain();
    }

    // --- names ---

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: fuser::ReplyEntry) {
        affinity::met(req.pid(), 0);
        let (place, tid) = (parent, req.pid());
        let parent = self.server.inode(parent);
        if self.primer.is_meant(place, name.as_bytes()) {
            self.server.note(Timer::start(Op::Lookup.unnamed()));
            return self.primer.answer(reply);
        }
        let shared = self.server.shared();
        let asking = shared.invalidator.asks(tid);
        shared.invalidator.looks_at_names(tid, parent);
        let looking = shared.clone();
        let by_number = name == OsStr::new(".");
        let upwards = name == OsStr::new("..");
        self.server.look(
            Op::Lookup.of(parent),
            |client| Holds::of_looks(tid, &client.looks_again(tid, parent, name.as_bytes())),
            reply,
            name.as_bytes(),
            move |client, wait, name| {
                looking.invalidator.wait_for_size(client, wait, client.find(wait, tid, parent, name)?)
            },
            move |reply, found| {
                let may_keep =
                    |Entry { ino, inode }: &Entry| shared.invalidator.may_keep(asking, *ino, inode);
                let node = |&Looked { ref entry, moved_from, may_be_in, is_above, again }: &Looked| {
                    match entry.inode.kind {
                        // The kernel connects a directory that it opens by handle to its root.
                        _ if upwards && shared.nodes.is_root(entry.ino) => INodeNo::ROOT,
                        // A lookup by number: the kernel has kept the node id.
                        FileKind::Directory if !by_number => {
                            let (ino, is_last) = (entry.ino, is_above || again);
                            let found = Found { ino, node: place, moved_from, may_be_in, is_last };
                            shared.nodes.found(tid, found, |dir| shared.invalidator.may_be_locked(tid, dir))
                        }
                        _ if by_number => shared.nodes.by_number(entry.ino),
                        _ => node(entry.ino),
                    }
                };
                answer::found(reply, found, may_keep, node);
            },
        );
    }

    /// Counted per inode: the kernel sends many FORGETs in one message, which `fuser` takes apart.
    fn forget(&self, _req: &Request, node: INodeNo, nlookup: u64) {
        let (timer, ino) = (Timer::start(Op::Forget.unnamed()), self.server.inode(node));
        // The root of the mount is referred to until the mount ends.
        if !Primer::is_own(ino) && node != INodeNo::ROOT {
            let client = self.server.client();
            client.forget(ino, nlookup);
            self.server.shared().nodes.forgotten(node, nlookup, || client.refers(ino));
        }
        self.server.note(timer);
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: fuser::ReplyEntry,
    ) {
        self.make(Op::Mknod, (caller(req, umask), req.pid()), parent, name, (mode, rdev), reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: fuser::ReplyEntry,
    ) {
        self.make(Op::Mkdir, (caller(req, umask), req.pid()), parent, name, (mode | libc::S_IFDIR, 0), reply);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: fuser::ReplyCreate,
    ) {
        affinity::met(req.pid(), 0);
        let (caller, by, parent) = (caller(req, umask), req.pid(), self.server.inode(parent));
        let exclusive = flags & libc::O_EXCL != 0;
        let handle = self.server.shared().locks.handle(flags, true);
        let mappable = handle::is_mappable(handle);
        self.server.change(
            Op::Create.of(parent),
            Holds::names(parent, by),
            reply,
            name.as_bytes(),
            move |client, wait, name| {
                let (caller, mode) = (&caller, mode | libc::S_IFREG);
                client.create_open(wait, &Creation { caller, by, parent, name, mode, exclusive, mappable })
            },
            move |reply, made| answer::created(reply, handle, made),
        );
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: fuser::ReplyEntry,
    ) {
        let (caller, parent) = (caller(req, 0), self.server.inode(parent));
        let name = link_name.as_bytes().to_vec();
        self.server.change(
            Op::Symlink.of(parent),
            Holds::names(parent, req.pid()),
            reply,
            target.as_os_str().as_bytes(),
            move |client, wait, target| client.symlink(wait, &caller, parent, &name, target),
            answer::entry,
        );
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: fuser::ReplyEntry,
    ) {
        let (ino, parent) = (self.about(ino), self.server.inode(newparent));
        self.server.change(
            Op::Link.of(parent),
            Holds::names(parent, req.pid()),
            reply,
            newname.as_bytes(),
            move |client, wait, name| client.link(wait, ino, parent, name),
            answer::entry_once,
        );
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: fuser::ReplyEmpty) {
        affinity::met(req.pid(), 0);
        let parent = self.server.inode(parent);
        self.server.change(
            Op::Unlink.of(parent),
            Holds::names(parent, req.pid()),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.unlink(wait, parent, name),
            answer::empty,
        );
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: fuser::ReplyEmpty) {
        affinity::met(req.pid(), 0);
        let (parent, by) = (self.server.inode(parent), req.pid());
        self.server.change(
            Op::Rmdir.of(parent),
            Holds::names(parent, by),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.rmdir(wait, by, parent, name),
            answer::empty,
        );
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: fuser::RenameFlags,
        reply: fuser::ReplyEmpty,
    ) {
        let known = fuser::RenameFlags::RENAME_NOREPLACE | fuser::RenameFlags::RENAME_EXCHANGE;
        if !known.contains(flags) {
            return self.server.refuse(Op::Rename, reply, Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
        };
        let (from, to) = (self.server.inode(parent), self.server.inode(newparent));
        // The kernel skips a rename of a name to itself, unless it knows the two as different aliases; it
        // would then mark one of them dead. After `ESTALE` it looks both up again.
        if from == to && name == newname && !flags.exchange {
            return self.server.refuse(Op::Rename, reply, Errno::ESTALE);
        }
        let (from_name, by) = (name.as_bytes().to_vec(), req.pid());
        self.server.change(
            Op::Rename.of(from),
            Holds::Names { dirs: [from, to], by },
            reply,
            newname.as_bytes(),
            move |client, wait, to_name| client.rename(wait, by, from, &from_name, to, to_name, flags),
            answer::empty,
        );
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: fuser::ReplyData) {
        let ino = self.about(ino);
        self.server.serve(
            Op::Readlink.of(ino),
            reply,
            &(),
            move |client, wait, ()| client.readlink(wait, ino),
            |reply, target| answer::parts(reply, target.map(|target| vec![target])),
        );
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: fuser::ReplyDirectory,
    ) {
        self.server.list(Op::Readdir, reply, req.pid(), self.about(ino), offset);
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: fuser::ReplyDirectoryPlus,
    ) {
        self.server.list(Op::Readdirplus, reply, req.pid(), self.about(ino), offset);
    }

    // --- attributes ---

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: fuser::ReplyAttr) {
        affinity::met(req.pid(), 0);
        let (ino, tid) = (self.about(ino), req.pid());
        let invalidator = self.server.invalidator();
        // Only read(2) and lseek(2) name an open file in GETATTR: they want the size.
        let is_look = invalidator.is_look(tid, ino, fh.is_some());
        if fh.is_some() && !is_look && invalidator.was_dropped(ino) {
            return self.server.show_size(reply, ino, tid);
        }
        self.server.show_attributes(reply, ino, tid, is_look);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: fuser::ReplyAttr,
    ) {
        affinity::met(req.pid(), 0);
        let (ino, tid) = (self.about(ino), req.pid());
        let (shared, invalidator) = (self.server.shared(), self.server.invalidator().clone());
        let set =
            Wanted { mode, uid, gid, size, atime, mtime }.resolve(req.uid(), self.server.client().now());
        self.server.change(
            Op::Setattr.of(ino),
            Holds::Dir(ino),
            reply,
            &(),
            move |_, wait, ()| Ok((shared.setattr(wait, ino, set)?, wait == Wait::Allowed)),
            move |reply, done| match done {
                Ok((inode, waited)) => {
                    invalidator.attributes_asked(ino, tid, false).answer_change(reply, inode, waited);
                }
                Err(why) => answer::Fail::fail(reply, why),
            },
        );
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: fuser::ReplyStatfs) {
        self.server.serve(
            Op::Statfs.unnamed(),
            reply,
            &(),
            |client, wait, ()| client.statfs(wait),
            |reply, room| match room {
                Ok(Statfs { total_bytes, free_bytes, inodes, free_inodes }) => {
                    let block = u64::from(STAT_BLOCK_BYTES);
                    let (total, free) = (total_bytes / block, free_bytes / block);
                    let files = inodes.saturating_add(free_inodes);
                    let unit = STAT_BLOCK_BYTES;
                    reply.statfs(total, free, free, files, free_inodes, unit, NAME_BYTES_MAX as u32, unit);
                }
                Err(why) => answer::Fail::fail(reply, why),
            },
        );
    }

    // --- content ---

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: fuser::ReplyData,
    ) {
        affinity::met(req.pid(), size as usize);
        if self.server.bars(ino, fh) {
            return self.server.refuse(Op::Read, reply, Errno::EIO);
        }
        let (ino, shared) = (self.about(ino), self.server.shared());
        let fills = handle::flags(fh, flags) & libc::O_DIRECT == 0;
        let reading = self.server.invalidator().is_read(ino, offset, size, req.pid(), fills);
        self.server.serve(
            Op::Read.of(ino),
            reply,
            &(),
            move |_, wait, ()| shared.read(wait, ino, offset, size),
            move |reply, parts| {
                answer::parts(reply, parts);
                drop(reading);
            },
        );
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: fuser::ReplyWrite,
    ) {
        affinity::met(req.pid(), data.len());
        if self.server.bars(ino, fh) {
            return self.server.refuse(Op::Write, reply, Errno::EIO);
        }
        let (ino, flags) = (self.about(ino), handle::flags(fh, flags));
        let clear_setid = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let len = data.len() as u32;
        let write = Write { ino, offset, len: u64::from(len) };
        if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            return self.server.write_back(write, data, reply);
        }
        let (tid, shared, invalidator) = (req.pid(), self.server.shared(), self.server.invalidator().clone());
        // A direct write locks no page.
        let holds = if flags & libc::O_DIRECT != 0 { Holds::Nothing } else { Holds::Pages(write) };
        self.server.change(
            Op::Write.of(ino),
            holds,
            reply,
            data,
            move |_, wait, data| shared.write(wait, write, data, flags, clear_setid),
            move |reply, done| {
                answer::written(reply, len, done);
                invalidator.is_taken_in(ino, tid);
                if holds == Holds::Nothing {
                    // The dispatcher ends a change that holds pages.
                    invalidator.is_done(Holds::Pages(write));
                }
            },
        );
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: fuser::ReplyEmpty,
    ) {
        let Some(what) = fallocate_mode(mode) else {
            return self.server.refuse(Op::Fallocate, reply, Errno::EOPNOTSUPP);
        };
        let (ino, tid, shared) = (self.about(ino), req.pid(), self.server.shared());
        let invalidator = shared.invalidator.clone();
        self.server.change(
            Op::Fallocate.of(ino),
            Holds::Dir(ino),
            reply,
            &(),
            move |_, wait, ()| shared.fallocate(wait, ino, offset, length, what),
            move |reply, done| {
                invalidator.answer_unheard(reply, ino, done);
                invalidator.is_taken_in(ino, tid);
            },
        );
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: fuser::CopyFileRangeFlags,
        reply: fuser::ReplyWrite,
    ) {
        if !flags.is_empty() {
            return self.server.refuse(Op::CopyFileRange, reply, Errno::EINVAL);
        }
        let (src, dst, tid) = (self.about(ino_in), self.about(ino_out), req.pid());
        let (shared, invalidator) = (self.server.shared(), self.server.invalidator().clone());
        // The reply has 32 bits for the length.
        let len = len.min(u64::from(u32::MAX - (STAT_BLOCK_BYTES - 1)));
        self.server.change(
            Op::CopyFileRange.of(dst),
            Holds::Dir(dst),
            reply,
            &(),
            move |_, wait, ()| shared.copy_file_range(wait, src, offset_in, dst, offset_out, len),
            move |reply, copied| {
                answer::copied(reply, copied);
                invalidator.is_taken_in(dst, tid);
            },
        );
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: fuser::ReplyLseek,
    ) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return self.server.refuse(Op::Lseek, reply, Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return self.server.refuse(Op::Lseek, reply, Errno::ENXIO);
        };
        let ino = self.about(ino);
        self.server.serve(
            Op::Lseek.of(ino),
            reply,
            &(),
            move |client, wait, ()| client.lseek(wait, ino, offset, what),
            |reply, offset| match offset.and_then(|o| i64::try_from(o).map_err(|_| Errno::EOVERFLOW)) {
                Ok(offset) => reply.offset(offset),
                Err(why) => answer::Fail::fail(reply, why),
            },
        );
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: fuser::ReplyEmpty,
    ) {
        let (ino, invalidator) = (self.about(ino), self.server.shared().invalidator.clone());
        let call = move |client: &Client| {
            invalidator.wait_for_pages(ino);
            client.fsync(ino)
        };
        self.server.serve_slow(Op::Fsync.of(ino), Holds::Nothing, reply, call, answer::empty);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: fuser::ReplyEmpty,
    ) {
        let ino = self.about(ino);
        self.server.serve_slow(
            Op::Fsyncdir.of(ino),
            Holds::Dir(ino),
            reply,
            move |client| client.fsync(ino),
            answer::empty,
        );
    }

    // --- extended attributes ---

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: fuser::ReplyXattr) {
        affinity::met(req.pid(), 0);
        let ino = self.about(ino);
        if size == 0 && name.as_bytes() == xattr::CAPABILITY {
            return self.server.acquire_write_permit(ino, req.pid(), reply);
        }
        self.server.serve(
            Op::Getxattr.of(ino),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.getxattr(wait, ino, name),
            move |reply, value| answer::sized(reply, size, value),
        );
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: fuser::ReplyXattr) {
        let (ino, uid) = (self.about(ino), req.uid());
        self.server.serve(
            Op::Listxattr.of(ino),
            reply,
            &(),
            move |client, wait, ()| client.listxattr(wait, ino),
            move |reply, names| answer::sized(reply, size, names.map(|names| xattr::joined(&names, uid))),
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: fuser::ReplyEmpty,
    ) {
        if name.as_bytes() == xattr::ASK.to_bytes() {
            return self.server.refuse(Op::Setxattr, reply, kernel::EBUSY);
        }
        let how = match xattr::how(flags) {
            Ok(how) => how,
            Err(why) => return self.server.refuse(Op::Setxattr, reply, why),
        };
        let (ino, invalidator) = (self.about(ino), self.server.shared().invalidator.clone());
        let who = Setter { uid: req.uid(), gid: req.gid(), pid: req.pid() };
        let name = name.as_bytes().to_vec();
        self.server.change(
            Op::Setxattr.of(ino),
            Holds::Dir(ino),
            reply,
            value,
            move |client, wait, value| {
                client.setxattr(wait, ino, &name, value, how)?;
                if name == xattr::ACL_ACCESS { xattr::drop_setgid(client, wait, ino, who) } else { Ok(()) }
            },
            // An ACL is a mode as well.
            move |reply, done| invalidator.answer_unheard(reply, ino, done),
        );
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: fuser::ReplyEmpty) {
        let (ino, invalidator) = (self.about(ino), self.server.shared().invalidator.clone());
        self.server.change(
            Op::Removexattr.of(ino),
            Holds::Dir(ino),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.removexattr(wait, ino, name),
            move |reply, done| invalidator.answer_unheard(reply, ino, done),
        );
    }

    // --- calls that the kernel handles by itself after a refusal ---

    /// After the first refusal the kernel opens files without a message, keeps their cache, and sends no
    /// RELEASE. Not refused where the mount keeps the locks, which end with RELEASE.
    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: fuser::ReplyOpen) {
        self.server.open(ino, flags, reply);
    }

    /// After the first refusal the kernel opens directories without a message, and caches their listings.
    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: fuser::ReplyOpen) {
        self.server.refuse(Op::Opendir, reply, Errno::ENOSYS);
    }

    /// close(2) waits only for locks to be released, and only where the mount keeps them: errors of earlier
    /// writes are reported by fsync.
    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        reply: fuser::ReplyEmpty,
    ) {
        self.server.flush(ino, lock_owner, reply);
    }

    /// Where open(2) is refused, the kernel sends RELEASE only for a file created before that refusal.
    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: fuser::ReplyEmpty,
    ) {
        self.server.release(ino, fh, reply);
    }

    // --- locks, where the mount keeps them ---

    fn getlk(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: fuser::ReplyLock,
    ) {
        self.server.test_lock(&locks::Wanted { ino, fh, owner, start, end, typ, pid, flock: false }, reply);
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        flock: bool,
        reply: fuser::ReplyEmpty,
    ) {
        let wanted = locks::Wanted { ino, fh, owner, start, end, typ, pid, flock };
        self.server.set_lock(&wanted, sleep.then(|| req.unique()), reply);
    }

    fn interrupt(&self, _req: &Request, unique: fuser::RequestId) {
        self.server.interrupt(unique);
    }

    /// `default_permissions`: the kernel checks them.
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: fuser::AccessFlags, reply: fuser::ReplyEmpty) {
        self.server.refuse(Op::Access, reply, Errno::ENOSYS);
    }

    /// Files are always ready.
    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: fuser::PollNotifier,
        _events: fuser::PollEvents,
        _flags: fuser::PollFlags,
        reply: fuser::ReplyPoll,
    ) {
        self.server.refuse(Op::Poll, reply, Errno::ENOSYS);
    }

    /// There is no block device underneath.
    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: fuser::ReplyBmap) {
        self.server.refuse(Op::Bmap, reply, Errno::ENOSYS);
    }

    /// No ioctl is known.
    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: fuser::IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: fuser::ReplyIoctl,
    ) {
        self.server.refuse(Op::Ioctl, reply, kernel::ENOTTY);
    }
}
