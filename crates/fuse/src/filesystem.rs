//! The requests of the kernel, one method each: decode, call the client, encode. Threads that wait are in
//! `dispatch`.

use crate::affinity;
use crate::answer;
use crate::dispatch::Dispatcher;
use crate::encode::{fallocate_mode, node};
use crate::handle;
use crate::invalidate::{self, Holds};
use crate::kernel;
use crate::limits::STAT_BLOCK_BYTES;
use crate::nodeid_alias::Found;
use crate::prime::Primer;
use crate::setattr;
use crate::stats::{Op, Timer};
use crate::xattr;
use shoal_channel::{
    CopyFileRange, FileHandle, LockOwner, LockRequest, Make, NodeId, Offer, Read, Refused, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, SetXattr, Settings, Unique,
    WriteFlags,
};
use shoal_client::{Caller, Client, Creation, Entry, Looked, Seek, Wait};
use shoal_namespace::RenameFlags;
use shoal_types::limits::NAME_BYTES_MAX;
use shoal_types::{Errno, FileKind, InodeId, Statfs};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

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
    fn about(&self, ino: NodeId) -> InodeId {
        let ino = self.server.inode(ino);
        self.server.invalidator().is_asked_about(ino);
        ino
    }

    fn make(&self, op: Op, req: &Request, make: Make<'_>, reply: ReplyEntry) {
        affinity::met(req.pid(), 0);
        let (caller, parent) = (caller(req, make.umask), self.server.inode(req.node()));
        let Make { mode, rdev, .. } = make;
        self.server.change(
            op.of(parent).by(req.pid()),
            Holds::names(parent, req.pid()),
            reply,
            make.name.as_bytes(),
            move |client, wait, name| client.create(wait, &caller, parent, name, mode, rdev),
            answer::entry,
        );
    }
}

impl shoal_channel::Filesystem for Filesystem {
    fn init(&mut self, offer: &Offer) -> io::Result<Settings> {
        kernel::negotiate(offer, self.server.shared().locks.are_ours())
    }

    fn destroy(&mut self) {
        self.server.drain();
    }

    // --- names ---

    fn lookup(&self, req: &Request, name: &OsStr, reply: ReplyEntry) {
        affinity::met(req.pid(), 0);
        let (place, tid) = (req.node(), req.pid());
        let parent = self.server.inode(place);
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
            Op::Lookup.of(parent).by(req.pid()),
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
                        _ if upwards && shared.nodes.is_root(entry.ino) => NodeId::ROOT,
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

    /// Counted per inode: the kernel sends many FORGETs in one message.
    fn forget(&self, node: NodeId, nlookup: u64) {
        let (timer, ino) = (Timer::start(Op::Forget.unnamed()), self.server.inode(node));
        // The root of the mount is referred to until the mount ends.
        if !Primer::is_own(ino) && node != NodeId::ROOT {
            let client = self.server.client();
            client.forget(ino, nlookup);
            self.server.shared().nodes.forgotten(node, nlookup, || client.refers(ino));
        }
        self.server.note(timer);
    }

    fn mknod(&self, req: &Request, make: Make<'_>, reply: ReplyEntry) {
        self.make(Op::Mknod, req, make, reply);
    }

    fn mkdir(&self, req: &Request, make: Make<'_>, reply: ReplyEntry) {
        self.make(Op::Mkdir, req, make, reply);
    }

    fn create(&self, req: &Request, make: Make<'_>, reply: ReplyCreate) {
        affinity::met(req.pid(), 0);
        let Make { name, mode, umask, flags, .. } = make;
        let (caller, by, parent) = (caller(req, umask), req.pid(), self.server.inode(req.node()));
        let exclusive = flags & libc::O_EXCL != 0;
        let handle = self.server.shared().locks.handle(flags, true);
        let mappable = handle::is_mappable(handle);
        self.server.change(
            Op::Create.of(parent).by(req.pid()),
            Holds::names(parent, by),
            reply,
            name.as_bytes(),
            move |client, wait, name| {
                let caller = &caller;
                client.create_open(wait, &Creation { caller, by, parent, name, mode, exclusive, mappable })
            },
            move |reply, made| answer::created(reply, handle, made),
        );
    }

    fn symlink(&self, req: &Request, name: &OsStr, target: &OsStr, reply: ReplyEntry) {
        let (caller, parent) = (caller(req, 0), self.server.inode(req.node()));
        let name = name.as_bytes().to_vec();
        self.server.change(
            Op::Symlink.of(parent).by(req.pid()),
            Holds::names(parent, req.pid()),
            reply,
            target.as_bytes(),
            move |client, wait, target| client.symlink(wait, &caller, parent, &name, target),
            answer::entry,
        );
    }

    fn link(&self, req: &Request, node: NodeId, name: &OsStr, reply: ReplyEntry) {
        let (ino, parent) = (self.about(node), self.server.inode(req.node()));
        self.server.change(
            Op::Link.of(parent).by(req.pid()),
            Holds::names(parent, req.pid()),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.link(wait, ino, parent, name),
            answer::entry_once,
        );
    }

    fn unlink(&self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        affinity::met(req.pid(), 0);
        let parent = self.server.inode(req.node());
        self.server.change(
            Op::Unlink.of(parent).by(req.pid()),
            Holds::names(parent, req.pid()),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.unlink(wait, parent, name),
            answer::empty,
        );
    }

    fn rmdir(&self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        affinity::met(req.pid(), 0);
        let (parent, by) = (self.server.inode(req.node()), req.pid());
        self.server.change(
            Op::Rmdir.of(parent).by(req.pid()),
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
        name: &OsStr,
        new_dir: NodeId,
        new_name: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return self.server.refuse(Op::Rename, reply, Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags & libc::RENAME_NOREPLACE != 0,
            exchange: flags & libc::RENAME_EXCHANGE != 0,
        };
        let (from, to) = (self.server.inode(req.node()), self.server.inode(new_dir));
        // The kernel skips a rename of a name to itself, unless it knows the two as different aliases; it
        // would then mark one of them dead. After `ESTALE` it looks both up again.
        if from == to && name == new_name && !flags.exchange {
            return self.server.refuse(Op::Rename, reply, Errno::ESTALE);
        }
        let (from_name, by) = (name.as_bytes().to_vec(), req.pid());
        self.server.change(
            Op::Rename.of(from).by(req.pid()),
            Holds::Names { dirs: [from, to], by },
            reply,
            new_name.as_bytes(),
            move |client, wait, to_name| client.rename(wait, by, from, &from_name, to, to_name, flags),
            answer::empty,
        );
    }

    fn readlink(&self, req: &Request, reply: ReplyData) {
        let ino = self.about(req.node());
        self.server.serve(
            Op::Readlink.of(ino).by(req.pid()),
            reply,
            &(),
            move |client, wait, ()| client.readlink(wait, ino),
            |reply, target| answer::parts(reply, target.map(|target| vec![target])),
        );
    }

    fn readdir(&self, req: &Request, offset: u64, reply: ReplyDirectory) {
        self.server.list(Op::Readdir, reply, req.pid(), self.about(req.node()), offset);
    }

    fn readdirplus(&self, req: &Request, offset: u64, reply: ReplyDirectoryPlus) {
        self.server.list(Op::Readdirplus, reply, req.pid(), self.about(req.node()), offset);
    }

    // --- attributes ---

    fn getattr(&self, req: &Request, handle: Option<FileHandle>, reply: ReplyAttr) {
        affinity::met(req.pid(), 0);
        let (ino, tid) = (self.about(req.node()), req.pid());
        let invalidator = self.server.invalidator();
        // Only read(2) and lseek(2) name an open file in GETATTR: they want the size.
        let is_look = invalidator.is_look(tid, ino, handle.is_some());
        if handle.is_some() && !is_look && invalidator.was_dropped(ino) {
            return self.server.show_size(reply, ino, tid);
        }
        self.server.show_attributes(reply, ino, tid, is_look);
    }

    fn setattr(&self, req: &Request, set: shoal_channel::SetAttr, reply: ReplyAttr) {
        affinity::met(req.pid(), 0);
        let (ino, tid) = (self.about(req.node()), req.pid());
        let (shared, invalidator) = (self.server.shared(), self.server.invalidator().clone());
        let set = setattr::resolve(set, self.server.client().now());
        self.server.change(
            Op::Setattr.of(ino).by(req.pid()),
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

    fn statfs(&self, req: &Request, reply: ReplyStatfs) {
        self.server.serve(
            Op::Statfs.unnamed().by(req.pid()),
            reply,
            &(),
            |client, wait, ()| client.statfs(wait),
            |reply, room| match room {
                Ok(Statfs { total_bytes, free_bytes, inodes, free_inodes }) => {
                    let block = u64::from(STAT_BLOCK_BYTES);
                    let (total, free) = (total_bytes / block, free_bytes / block);
                    let files = inodes.saturating_add(free_inodes);
                    reply.statfs(&shoal_channel::Statfs {
                        unit_bytes: STAT_BLOCK_BYTES,
                        blocks: total,
                        blocks_free: free,
                        blocks_available: free,
                        files,
                        files_free: free_inodes,
                        name_bytes_max: NAME_BYTES_MAX as u32,
                    });
                }
                Err(why) => answer::Fail::fail(reply, why),
            },
        );
    }

    // --- content ---

    fn read(&self, req: &Request, read: Read, reply: ReplyData) {
        let Read { handle, offset, size, flags } = read;
        affinity::met(req.pid(), size as usize);
        if self.server.bars(req.node(), handle) {
            return self.server.refuse(Op::Read, reply, Errno::EIO);
        }
        let (ino, shared) = (self.about(req.node()), self.server.shared());
        let fills = handle::flags(handle, flags) & libc::O_DIRECT == 0;
        let reading = self.server.invalidator().is_read(ino, offset, size, req.pid(), fills);
        self.server.serve(
            Op::Read.of(ino).by(req.pid()),
            reply,
            &(),
            move |_, wait, ()| shared.read(wait, ino, offset, size),
            move |reply, parts| {
                answer::parts(reply, parts);
                drop(reading);
            },
        );
    }

    fn write(&self, req: &Request, write: shoal_channel::Write<'_>, reply: ReplyWrite) {
        let shoal_channel::Write { handle, offset, data, flags, write_flags } = write;
        affinity::met(req.pid(), data.len());
        if self.server.bars(req.node(), handle) {
            return self.server.refuse(Op::Write, reply, Errno::EIO);
        }
        let (ino, flags) = (self.about(req.node()), handle::flags(handle, flags));
        let clear_setid = write_flags.contains(WriteFlags::KILL_SUIDGID);
        let len = data.len() as u32;
        let write = invalidate::Write { ino, offset, len: u64::from(len) };
        if write_flags.contains(WriteFlags::CACHE) {
            return self.server.write_back(write, data, reply);
        }
        let (tid, shared, invalidator) = (req.pid(), self.server.shared(), self.server.invalidator().clone());
        // A direct write locks no page.
        let holds = if flags & libc::O_DIRECT != 0 { Holds::Nothing } else { Holds::Pages(write) };
        self.server.change(
            Op::Write.of(ino).by(req.pid()),
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

    fn fallocate(&self, req: &Request, what: shoal_channel::Fallocate, reply: ReplyEmpty) {
        let shoal_channel::Fallocate { offset, len, mode } = what;
        let Some(what) = fallocate_mode(mode) else {
            return self.server.refuse(Op::Fallocate, reply, Errno::EOPNOTSUPP);
        };
        let (ino, tid, shared) = (self.about(req.node()), req.pid(), self.server.shared());
        let invalidator = shared.invalidator.clone();
        self.server.change(
            Op::Fallocate.of(ino).by(req.pid()),
            Holds::Dir(ino),
            reply,
            &(),
            move |_, wait, ()| shared.fallocate(wait, ino, offset, len, what),
            move |reply, done| {
                invalidator.answer_unheard(reply, ino, done);
                invalidator.is_taken_in(ino, tid);
            },
        );
    }

    fn copy_file_range(&self, req: &Request, copy: CopyFileRange, reply: ReplyWrite) {
        let CopyFileRange { offset_in, node_out, offset_out, len, flags } = copy;
        if flags != 0 {
            return self.server.refuse(Op::CopyFileRange, reply, Errno::EINVAL);
        }
        let (src, dst, tid) = (self.about(req.node()), self.about(node_out), req.pid());
        let (shared, invalidator) = (self.server.shared(), self.server.invalidator().clone());
        // The reply has 32 bits for the length.
        let len = len.min(u64::from(u32::MAX - (STAT_BLOCK_BYTES - 1)));
        self.server.change(
            Op::CopyFileRange.of(dst).by(req.pid()),
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

    fn lseek(&self, req: &Request, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return self.server.refuse(Op::Lseek, reply, Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return self.server.refuse(Op::Lseek, reply, Errno::ENXIO);
        };
        let ino = self.about(req.node());
        self.server.serve(
            Op::Lseek.of(ino).by(req.pid()),
            reply,
            &(),
            move |client, wait, ()| client.lseek(wait, ino, offset, what),
            |reply, offset| match offset {
                Ok(offset) => reply.offset(offset),
                Err(why) => answer::Fail::fail(reply, why),
            },
        );
    }

    fn fsync(&self, req: &Request, reply: ReplyEmpty) {
        let (ino, invalidator) = (self.about(req.node()), self.server.shared().invalidator.clone());
        let call = move |client: &Client| {
            invalidator.wait_for_pages(ino);
            client.fsync(ino)
        };
        self.server.serve_slow(Op::Fsync.of(ino).by(req.pid()), Holds::Nothing, reply, call, answer::empty);
    }

    fn fsyncdir(&self, req: &Request, reply: ReplyEmpty) {
        let ino = self.about(req.node());
        self.server.serve_slow(
            Op::Fsyncdir.of(ino).by(req.pid()),
            Holds::Dir(ino),
            reply,
            move |client| client.fsync(ino),
            answer::empty,
        );
    }

    // --- extended attributes ---

    fn getxattr(&self, req: &Request, name: &OsStr, size: u32, reply: ReplyXattr) {
        affinity::met(req.pid(), 0);
        let ino = self.about(req.node());
        if size == 0 && name.as_bytes() == xattr::CAPABILITY {
            return self.server.acquire_write_permit(ino, req.pid(), reply);
        }
        self.server.serve(
            Op::Getxattr.of(ino).by(req.pid()),
            reply,
            name.as_bytes(),
            move |client, wait, name| client.getxattr(wait, ino, name),
            move |reply, value| answer::sized(reply, size, value),
        );
    }

    fn listxattr(&self, req: &Request, size: u32, reply: ReplyXattr) {
        let (ino, uid) = (self.about(req.node()), req.uid());
        self.server.serve(
            Op::Listxattr.of(ino).by(req.pid()),
            reply,
            &(),
            move |client, wait, ()| client.listxattr(wait, ino),
            move |reply, names| answer::sized(reply, size, names.map(|names| xattr::joined(&names, uid))),
        );
    }

    fn setxattr(&self, req: &Request, set: SetXattr<'_>, reply: ReplyEmpty) {
        let SetXattr { name, value, flags, kill_sgid } = set;
        if name.as_bytes() == xattr::ASK.to_bytes() {
            return self.server.refuse(Op::Setxattr, reply, kernel::EBUSY);
        }
        let how = match xattr::how(flags) {
            Ok(how) => how,
            Err(why) => return self.server.refuse(Op::Setxattr, reply, why),
        };
        let (ino, invalidator) = (self.about(req.node()), self.server.shared().invalidator.clone());
        let name = name.as_bytes().to_vec();
        self.server.change(
            Op::Setxattr.of(ino).by(req.pid()),
            Holds::Dir(ino),
            reply,
            value,
            move |client, wait, value| {
                client.setxattr(wait, ino, &name, value, how)?;
                if kill_sgid && name == xattr::ACL_ACCESS {
                    xattr::drop_setgid(client, wait, ino)
                } else {
                    Ok(())
                }
            },
            // An ACL is a mode as well.
            move |reply, done| invalidator.answer_unheard(reply, ino, done),
        );
    }

    fn removexattr(&self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        let (ino, invalidator) = (self.about(req.node()), self.server.shared().invalidator.clone());
        self.server.change(
            Op::Removexattr.of(ino).by(req.pid()),
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
    fn open(&self, req: &Request, flags: i32, reply: ReplyOpen) {
        self.server.open(req.node(), flags, reply);
    }

    /// After the first refusal the kernel opens directories without a message, and caches their listings.
    fn opendir(&self, _req: &Request, reply: ReplyOpen) {
        self.server.refuse(Op::Opendir, reply, Errno::ENOSYS);
    }

    /// close(2) waits only for locks to be released, and only where the mount keeps them: errors of earlier
    /// writes are reported by fsync.
    fn flush(&self, req: &Request, owner: LockOwner, reply: ReplyEmpty) {
        self.server.flush(req.node(), owner, reply);
    }

    /// Where open(2) is refused, the kernel sends RELEASE only for a file created before that refusal.
    fn release(&self, req: &Request, handle: FileHandle, reply: ReplyEmpty) {
        self.server.release(req.node(), handle, reply);
    }

    // --- locks, where the mount keeps them ---

    fn getlk(&self, req: &Request, wanted: LockRequest, reply: ReplyLock) {
        self.server.test_lock(req.node(), &wanted, reply);
    }

    fn setlk(&self, req: &Request, wanted: LockRequest, wait: bool, reply: ReplyEmpty) {
        self.server.set_lock(req.node(), &wanted, wait.then(|| req.unique()), reply);
    }

    fn interrupt(&self, unique: Unique) {
        self.server.interrupt(unique);
    }

    /// No ioctl is known, there is no block device underneath, and files are always ready.
    fn refuse(&self, what: Refused, reply: ReplyEmpty) {
        let (op, why) = match what {
            Refused::Access => (Op::Access, Errno::ENOSYS),
            Refused::Poll => (Op::Poll, Errno::ENOSYS),
            Refused::Bmap => (Op::Bmap, Errno::ENOSYS),
            Refused::Ioctl => (Op::Ioctl, kernel::ENOTTY),
            Refused::Unknown => return answer::Fail::fail(reply, Errno::ENOSYS),
        };
        self.server.refuse(op, reply, why);
    }
}
