//! The requests of the kernel, one method each: decode, call the client, encode. Calls that have to wait are
//! handed to other threads by `dispatch`.

use crate::affinity::Affinity;
use crate::answer::{self, ErrorReply};
use crate::context::{Context, Holds, Op, Write};
use crate::dispatch::{Dispatcher, Pending};
use crate::encode::{fallocate_mode, node};
use crate::handle;
use crate::ioctl;
use crate::kernel;
use crate::limits::STAT_BLOCK_BYTES;
use crate::mount_state::{Attempt, Shared};
use crate::nodeid_alias::Found;
use crate::prime::Primer;
use crate::seek;
use crate::setattr;
use crate::xattr;
use shoal_channel::{
    CopyFileRange, FileHandle, InitRequest, Ioctl, LockOwner, LockRequest, Make, NodeId, Read, Refused,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, SetXattr,
    Settings, Unique, WriteFlags,
};
use shoal_client::{Creation, Entry, LookupResult, Seek, Wait};
use shoal_namespace::RenameFlags;
use shoal_runtime::planted::mistake;
use shoal_types::limits::NAME_BYTES_MAX;
use shoal_types::{Errno, FileKind, InodeId, Statfs};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The file system as the kernel sees it, for one of the threads that read requests.
pub(crate) struct Filesystem {
    dispatcher: Arc<Dispatcher>,
    primer: Primer,
    /// Largest read or write request, in bytes.
    request_bytes_max: u32,
    background_max: u16,
    /// The affinity of the thread.
    affinity: Affinity,
    /// The copy of the counters in which its requests are counted.
    shard: usize,
}

impl Filesystem {
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        primer: Primer,
        request_bytes_max: u32,
        background_max: u16,
    ) -> Filesystem {
        let shard = dispatcher.shared().counters.next_shard();
        Filesystem {
            dispatcher,
            primer,
            request_bytes_max,
            background_max,
            affinity: Affinity::default(),
            shard,
        }
    }

    fn context(&self, op: Op, ino: InodeId) -> Context {
        Context { shard: self.shard, ..Context::new(op, ino) }
    }

    /// A request with this header.
    fn request<R>(&self, op: Op, req: &Request, reply: R) -> Pending<'_, R> {
        let ino = self.dispatcher.inode(req.node());
        self.dispatcher.pending(self.context(op, ino).by(req), reply)
    }

    /// A request about an inode whose reply the kernel may cache: that is recorded with the invalidator.
    fn cacheable_request<R>(&self, op: Op, req: &Request, reply: R) -> Pending<'_, R> {
        let pending = self.request(op, req, reply);
        self.dispatcher.invalidator().is_asked_about(pending.context.ino);
        pending
    }

    /// A request of a thread that changes names in a directory. It holds the inode lock of the directory.
    fn request_of_names<R: ErrorReply + Send + 'static>(
        &self,
        op: Op,
        req: &Request,
        reply: R,
    ) -> Pending<'_, R> {
        let pending = self.request(op, req, reply);
        let Context { ino, thread, .. } = pending.context;
        pending.holding(Holds::names(ino, thread))
    }

    /// A request about an inode whose lock it holds. The kernel may cache the reply.
    fn request_with_lock<R: ErrorReply + Send + 'static>(
        &self,
        op: Op,
        req: &Request,
        reply: R,
    ) -> Pending<'_, R> {
        let pending = self.cacheable_request(op, req, reply);
        let ino = pending.context.ino;
        pending.holding(Holds::Dir(ino))
    }

    /// The inode that a request names besides that of its header. The kernel may cache what the reply says of
    /// it: that is recorded with the invalidator.
    fn other_cacheable_inode(&self, node: NodeId) -> InodeId {
        let ino = self.dispatcher.inode(node);
        self.dispatcher.invalidator().is_asked_about(ino);
        ino
    }

    fn make(&mut self, op: Op, req: &Request, make: Make<'_>, reply: ReplyEntry) {
        self.affinity.record_request(req.pid(), 0);
        let Make { name, mode, umask, rdev, .. } = make;
        self.request_of_names(op, req, reply).change(
            name.as_bytes(),
            move |attempt, name| {
                let (client, context) = (attempt.client(), attempt.context);
                client.create(attempt.calling(), &context.caller(umask), context.ino, name, mode, rdev)
            },
            answer::entry,
        );
    }
}

impl shoal_channel::Filesystem for Filesystem {
    fn init(&mut self, offer: &InitRequest) -> io::Result<Settings> {
        let locks_are_ours = self.dispatcher.shared().locks.are_ours();
        kernel::negotiate(offer, locks_are_ours, self.request_bytes_max, self.background_max)
    }

    fn for_thread(&self) -> Filesystem {
        let (dispatcher, primer) = (self.dispatcher.clone(), self.primer.clone());
        Filesystem::new(dispatcher, primer, self.request_bytes_max, self.background_max)
    }

    fn destroy(&mut self) -> io::Result<()> {
        let dispatcher = Arc::get_mut(&mut self.dispatcher);
        dispatcher.ok_or_else(|| io::Error::other("the mount is in use"))?.drain();
        Ok(())
    }

    // --- names ---

    fn lookup(&mut self, req: &Request, name: &OsStr, reply: ReplyEntry) {
        self.affinity.record_request(req.pid(), 0);
        let (place, pending) = (req.node(), self.request(Op::Lookup, req, reply));
        let Context { ino: parent, thread, .. } = pending.context;
        if self.primer.is_meant(place, name.as_bytes()) {
            return pending.answer_otherwise(|reply| self.primer.answer(reply));
        }
        let shared = self.dispatcher.shared().clone();
        let attr_request = shared.invalidator.begin_attr_request(thread);
        shared.invalidator.looks_at_names(thread, parent);
        let by_number = name == OsStr::new(".");
        let upwards = name == OsStr::new("..");
        pending.look(
            |client| Holds::of_looks(thread, &client.pending_retry_dirs(thread, parent, name.as_bytes())),
            name.as_bytes(),
            move |attempt, name| {
                let Attempt { shared: Shared { client, invalidator, .. }, wait, .. } = attempt;
                invalidator.wait_for_size(client, wait, client.find(wait, thread, parent, name)?)
            },
            move |reply, found| {
                let may_keep =
                    |Entry { ino, inode }: &Entry| shared.invalidator.may_keep(attr_request, *ino, inode);
                let node =
                    |&LookupResult { ref entry, moved_from, may_be_in, is_above, again }: &LookupResult| {
                        match entry.inode.kind {
                            // The kernel connects a directory that it opens by handle to its root.
                            _ if upwards && shared.nodes.is_root(entry.ino) => NodeId::ROOT,
                            // A lookup by number: the kernel has kept the node id.
                            FileKind::Directory if !by_number => {
                                let (ino, is_last) = (entry.ino, is_above || again);
                                let found = Found { ino, node: place, moved_from, may_be_in, is_last };
                                let may_be_locked = |dir| shared.invalidator.may_be_locked(thread, dir);
                                shared.nodes.found(thread, found, may_be_locked)
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
    fn forget(&mut self, node: NodeId, nlookup: u64) {
        let ino = self.dispatcher.inode(node);
        let context = self.context(Op::Forget, ino).unnamed();
        // The root of the mount is referred to until the mount ends.
        if !Primer::is_own(ino) && node != NodeId::ROOT {
            let client = self.dispatcher.client();
            client.forget(ino, nlookup);
            self.dispatcher.shared().nodes.forgotten(node, nlookup, || client.refers(ino));
        }
        self.dispatcher.note(&context);
    }

    fn mknod(&mut self, req: &Request, make: Make<'_>, reply: ReplyEntry) {
        self.make(Op::Mknod, req, make, reply);
    }

    fn mkdir(&mut self, req: &Request, make: Make<'_>, reply: ReplyEntry) {
        self.make(Op::Mkdir, req, make, reply);
    }

    fn create(&mut self, req: &Request, make: Make<'_>, reply: ReplyCreate) {
        self.affinity.record_request(req.pid(), 0);
        let Make { name, mode, umask, flags, .. } = make;
        let exclusive = flags & libc::O_EXCL != 0;
        let handle = self.dispatcher.shared().locks.handle(flags, true);
        let mappable = handle::is_mappable(handle);
        self.request_of_names(Op::Create, req, reply).change(
            name.as_bytes(),
            move |attempt, name| {
                let (caller, parent) = (&attempt.context.caller(umask), attempt.context.ino);
                let creation = Creation { caller, parent, name, mode, exclusive, mappable };
                attempt.client().create_open(attempt.calling(), &creation)
            },
            move |reply, made| answer::created(reply, handle, made),
        );
    }

    /// The kernel holds no lock of the directory.
    fn tmpfile(&mut self, req: &Request, make: Make<'_>, reply: ReplyCreate) {
        let Make { mode, umask, flags, .. } = make;
        let handle = self.dispatcher.shared().locks.handle(flags, true);
        let mappable = handle::is_mappable(handle);
        self.request(Op::Tmpfile, req, reply).change(
            &(),
            move |attempt, ()| {
                let Context { ino: parent, .. } = *attempt.context;
                let caller = attempt.context.caller(umask);
                attempt.client().create_unnamed(attempt.wait, &caller, parent, mode, mappable)
            },
            move |reply, made| answer::created(reply, handle, made),
        );
    }

    fn symlink(&mut self, req: &Request, name: &OsStr, target: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.request_of_names(Op::Symlink, req, reply).change(
            target.as_bytes(),
            move |attempt, target| {
                let context = attempt.context;
                attempt.client().symlink(attempt.calling(), &context.caller(0), context.ino, &name, target)
            },
            answer::entry,
        );
    }

    fn link(&mut self, req: &Request, node: NodeId, name: &OsStr, reply: ReplyEntry) {
        let ino = self.other_cacheable_inode(node);
        self.request_of_names(Op::Link, req, reply).change(
            name.as_bytes(),
            move |attempt, name| attempt.client().link(attempt.calling(), ino, attempt.context.ino, name),
            answer::entry_once,
        );
    }

    fn unlink(&mut self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        self.affinity.record_request(req.pid(), 0);
        self.request_of_names(Op::Unlink, req, reply).change(
            name.as_bytes(),
            |attempt, name| attempt.client().unlink(attempt.calling(), attempt.context.ino, name),
            answer::empty,
        );
    }

    fn rmdir(&mut self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        self.affinity.record_request(req.pid(), 0);
        self.request_of_names(Op::Rmdir, req, reply).change(
            name.as_bytes(),
            |attempt, name| attempt.client().rmdir(attempt.calling(), attempt.context.ino, name),
            answer::empty,
        );
    }

    fn rename(
        &mut self,
        req: &Request,
        name: &OsStr,
        new_dir: NodeId,
        new_name: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let pending = self.request(Op::Rename, req, reply);
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return pending.refuse(Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags & libc::RENAME_NOREPLACE != 0,
            exchange: flags & libc::RENAME_EXCHANGE != 0,
        };
        let Context { ino: from, thread: by, .. } = pending.context;
        let to = self.dispatcher.inode(new_dir);
        // The kernel sends a rename of a name to itself only if the parent has two aliases, and the name a
        // dentry under each. On success it would mark one of them dead. After `ESTALE` it looks both up
        // again.
        if from == to && name == new_name && !flags.exchange {
            return pending.refuse(Errno::ESTALE);
        }
        let from_name = name.as_bytes().to_vec();
        pending.holding(Holds::Names { dirs: [from, to], by }).change(
            new_name.as_bytes(),
            move |attempt, to_name| {
                attempt.client().rename(attempt.calling(), from, &from_name, to, to_name, flags)
            },
            answer::empty,
        );
    }

    fn readlink(&mut self, req: &Request, reply: ReplyData) {
        self.cacheable_request(Op::Readlink, req, reply).serve(
            &(),
            |attempt, ()| attempt.client().readlink(attempt.wait, attempt.context.ino),
            |reply, target| answer::parts(reply, target.map(|target| vec![target])),
        );
    }

    fn readdir(&mut self, req: &Request, offset: u64, reply: ReplyDirectory) {
        self.cacheable_request(Op::Readdir, req, reply).list(offset);
    }

    fn readdirplus(&mut self, req: &Request, offset: u64, reply: ReplyDirectoryPlus) {
        self.cacheable_request(Op::Readdirplus, req, reply).list(offset);
    }

    // --- attributes ---

    fn getattr(&mut self, req: &Request, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.affinity.record_request(req.pid(), 0);
        let pending = self.cacheable_request(Op::Getattr, req, reply);
        let (Context { ino, thread, .. }, invalidator) = (pending.context, self.dispatcher.invalidator());
        // Only read(2) and lseek(2) send GETATTR with an open file: they need the size.
        let is_size_check = invalidator.is_size_check(thread, ino, handle.is_some());
        if handle.is_some()
            && !is_size_check
            && invalidator.was_invalidated(ino)
            && !mistake("answer readers before the kernel has the size")
        {
            return pending.show_size();
        }
        pending.show_attributes(is_size_check);
    }

    fn setattr(&mut self, req: &Request, set: shoal_channel::SetAttr, reply: ReplyAttr) {
        self.affinity.record_request(req.pid(), 0);
        let pending = self.request_with_lock(Op::Setattr, req, reply);
        let Context { ino, thread, .. } = pending.context;
        let invalidator = self.dispatcher.invalidator().clone();
        let set = setattr::resolve(set, self.dispatcher.client().now());
        pending.change(
            &(),
            move |attempt, ()| Ok((attempt.setattr(set)?, attempt.wait == Wait::Allowed)),
            move |reply, done| match done {
                Ok((inode, waited)) => {
                    invalidator.attributes_asked(ino, thread, false).answer_change(reply, inode, waited);
                }
                Err(why) => answer::ErrorReply::fail(reply, why),
            },
        );
    }

    fn statfs(&mut self, req: &Request, reply: ReplyStatfs) {
        self.request(Op::Statfs, req, reply).unnamed().serve(
            &(),
            |attempt, ()| attempt.client().statfs(attempt.wait),
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
                Err(why) => answer::ErrorReply::fail(reply, why),
            },
        );
    }

    // --- content ---

    fn read(&mut self, req: &Request, read: Read, reply: ReplyData) {
        let Read { handle, offset, size, flags } = read;
        self.affinity.record_request(req.pid(), size as usize);
        if self.dispatcher.bars(req.node(), handle) {
            return self.request(Op::Read, req, reply).refuse(Errno::EIO);
        }
        let pending = self.cacheable_request(Op::Read, req, reply);
        let Context { ino, thread, .. } = pending.context;
        let fills = handle::flags(handle, flags) & libc::O_DIRECT == 0;
        let reading = self.dispatcher.invalidator().is_read(ino, offset, size, thread, fills);
        pending.serve(
            &(),
            move |attempt, ()| attempt.read(offset, size),
            move |reply, parts| {
                answer::parts(reply, parts);
                drop(reading);
            },
        );
    }

    fn write(&mut self, req: &Request, write: shoal_channel::Write<'_>, reply: ReplyWrite) {
        let shoal_channel::Write { handle, offset, data, flags, write_flags } = write;
        self.affinity.record_request(req.pid(), data.len());
        if self.dispatcher.bars(req.node(), handle) {
            return self.request(Op::Write, req, reply).refuse(Errno::EIO);
        }
        let (pending, flags) = (self.cacheable_request(Op::Write, req, reply), handle::flags(handle, flags));
        let Context { ino, thread, .. } = pending.context;
        let clear_setid = write_flags.contains(WriteFlags::KILL_SUIDGID);
        let len = data.len() as u32;
        let write = Write { ino, offset, len: u64::from(len) };
        if write_flags.contains(WriteFlags::CACHE) {
            return pending.write_back(write, data);
        }
        let invalidator = self.dispatcher.invalidator().clone();
        // A direct write locks no page.
        let holds = if flags & libc::O_DIRECT != 0 { Holds::Nothing } else { Holds::Pages(write) };
        pending.holding(holds).change(
            data,
            move |attempt, data| attempt.write(write, data, flags, clear_setid),
            move |reply, done| {
                answer::written(reply, len, done);
                invalidator.change_answered(ino, thread);
                if holds == Holds::Nothing {
                    // The dispatcher ends a change that holds pages.
                    invalidator.is_done(Holds::Pages(write));
                }
            },
        );
    }

    fn fallocate(&mut self, req: &Request, what: shoal_channel::Fallocate, reply: ReplyEmpty) {
        let shoal_channel::Fallocate { offset, len, mode } = what;
        let Some(what) = fallocate_mode(mode) else {
            return self.request(Op::Fallocate, req, reply).refuse(Errno::EOPNOTSUPP);
        };
        let pending = self.request_with_lock(Op::Fallocate, req, reply);
        let Context { ino, thread, .. } = pending.context;
        let invalidator = self.dispatcher.invalidator().clone();
        pending.change(
            &(),
            move |attempt, ()| attempt.fallocate(offset, len, what),
            move |reply, done| {
                invalidator.answer_and_invalidate(reply, ino, done);
                invalidator.change_answered(ino, thread);
            },
        );
    }

    fn copy_file_range(&mut self, req: &Request, copy: CopyFileRange, reply: ReplyWrite) {
        let CopyFileRange { offset_in, node_out, offset_out, len, flags } = copy;
        if flags != 0 {
            return self.request(Op::CopyFileRange, req, reply).refuse(Errno::EINVAL);
        }
        let pending = self.cacheable_request(Op::CopyFileRange, req, reply);
        let Context { ino: src, thread, .. } = pending.context;
        let dst = self.other_cacheable_inode(node_out);
        let invalidator = self.dispatcher.invalidator().clone();
        // The reply has 32 bits for the length.
        let len = len.min(u64::from(u32::MAX - (STAT_BLOCK_BYTES - 1)));
        pending.about(dst).holding(Holds::Dir(dst)).change(
            &(),
            move |attempt, ()| attempt.copy_file_range(src, offset_in, offset_out, len),
            move |reply, copied| {
                answer::copied(reply, copied);
                invalidator.change_answered(dst, thread);
            },
        );
    }

    fn lseek(&mut self, req: &Request, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return self.request(Op::Lseek, req, reply).refuse(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return self.request(Op::Lseek, req, reply).refuse(Errno::ENXIO);
        };
        self.cacheable_request(Op::Lseek, req, reply).serve(
            &(),
            move |attempt, ()| seek::seek(attempt, offset, what),
            |reply, offset| match offset {
                Ok(offset) => reply.offset(offset),
                Err(why) => answer::ErrorReply::fail(reply, why),
            },
        );
    }

    fn fsync(&mut self, req: &Request, reply: ReplyEmpty) {
        self.cacheable_request(Op::Fsync, req, reply).serve_slow(
            |attempt| {
                attempt.shared.invalidator.wait_for_pages(attempt.context.ino);
                attempt.client().fsync(attempt.context.ino)
            },
            answer::empty,
        );
    }

    fn fsyncdir(&mut self, req: &Request, reply: ReplyEmpty) {
        self.request_with_lock(Op::Fsyncdir, req, reply)
            .serve_slow(|attempt| attempt.client().fsync(attempt.context.ino), answer::empty);
    }

    // --- extended attributes ---

    fn getxattr(&mut self, req: &Request, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.affinity.record_request(req.pid(), 0);
        let pending = self.cacheable_request(Op::Getxattr, req, reply);
        if size == 0 && name.as_bytes() == xattr::CAPABILITY {
            return pending.acquire_write_permit();
        }
        pending.serve(
            name.as_bytes(),
            |attempt, name| attempt.client().getxattr(attempt.wait, attempt.context.ino, name),
            move |reply, value| answer::sized(reply, size, value),
        );
    }

    fn listxattr(&mut self, req: &Request, size: u32, reply: ReplyXattr) {
        let uid = req.uid();
        self.cacheable_request(Op::Listxattr, req, reply).serve(
            &(),
            |attempt, ()| attempt.client().listxattr(attempt.wait, attempt.context.ino),
            move |reply, names| answer::sized(reply, size, names.map(|names| xattr::joined(&names, uid))),
        );
    }

    fn setxattr(&mut self, req: &Request, set: SetXattr<'_>, reply: ReplyEmpty) {
        let SetXattr { name, value, flags, kill_sgid } = set;
        if name.as_bytes() == xattr::ASK.to_bytes() {
            return self.request(Op::Setxattr, req, reply).refuse(kernel::EBUSY);
        }
        let how = match xattr::how(flags) {
            Ok(how) => how,
            Err(why) => return self.request(Op::Setxattr, req, reply).refuse(why),
        };
        let pending = self.request_with_lock(Op::Setxattr, req, reply);
        let (ino, invalidator) = (pending.context.ino, self.dispatcher.invalidator().clone());
        let name = name.as_bytes().to_vec();
        pending.change(
            value,
            move |attempt, value| {
                let (client, wait) = (attempt.client(), attempt.wait);
                client.setxattr(wait, ino, &name, value, how)?;
                if kill_sgid && name == xattr::ACL_ACCESS {
                    xattr::drop_setgid(client, wait, ino)
                } else {
                    Ok(())
                }
            },
            // An ACL is a mode as well.
            move |reply, done| invalidator.answer_and_invalidate(reply, ino, done),
        );
    }

    fn removexattr(&mut self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        let pending = self.request_with_lock(Op::Removexattr, req, reply);
        let (ino, invalidator) = (pending.context.ino, self.dispatcher.invalidator().clone());
        pending.change(
            name.as_bytes(),
            move |attempt, name| attempt.client().removexattr(attempt.wait, ino, name),
            move |reply, done| invalidator.answer_and_invalidate(reply, ino, done),
        );
    }

    // --- inode flags ---

    /// `vfs_fileattr_set` sends both kinds of requests with the lock of the inode.
    fn ioctl(&mut self, req: &Request, wanted: Ioctl<'_>, reply: ReplyIoctl) {
        let pending = self.request_with_lock(Op::Ioctl, req, reply);
        let Context { ino, uid, .. } = pending.context;
        match ioctl::decode(&wanted) {
            Ok(ioctl::FlagsRequest::Get(form)) => pending.look(
                move |_| Holds::Dir(ino),
                &(),
                move |attempt, ()| attempt.client().inode_flags(attempt.wait, ino),
                move |reply, flags| answer::ioctl(reply, flags.map(|flags| ioctl::encode(form, flags))),
            ),
            Ok(ioctl::FlagsRequest::Set(flags)) => {
                let invalidator = self.dispatcher.invalidator().clone();
                pending.change(
                    &(),
                    move |attempt, ()| attempt.client().set_inode_flags(attempt.wait, ino, flags, uid),
                    move |reply, done| invalidator.answer_ioctl(reply, ino, done),
                );
            }
            Err(why) => pending.refuse(why),
        }
    }

    // --- calls that the kernel handles by itself after a refusal ---

    /// After the first refusal the kernel opens files without a message, keeps their cache, and sends no
    /// RELEASE. Not refused where the mount keeps the locks, which end with RELEASE.
    fn open(&mut self, req: &Request, flags: i32, reply: ReplyOpen) {
        self.request(Op::Open, req, reply).open(flags);
    }

    /// After the first refusal the kernel opens directories without a message, and caches their listings.
    fn opendir(&mut self, req: &Request, reply: ReplyOpen) {
        self.request(Op::Opendir, req, reply).refuse(Errno::ENOSYS);
    }

    /// close(2) waits only for locks to be released, and only where the mount keeps them: errors of earlier
    /// writes are reported by fsync.
    fn flush(&mut self, req: &Request, owner: LockOwner, reply: ReplyEmpty) {
        self.request(Op::Flush, req, reply).flush(owner);
    }

    /// Where open(2) is refused, the kernel sends RELEASE only for a file created before that refusal.
    fn release(&mut self, req: &Request, handle: FileHandle, reply: ReplyEmpty) {
        self.request(Op::Release, req, reply).release(handle);
    }

    // --- locks, where the mount keeps them ---

    fn getlk(&mut self, req: &Request, wanted: LockRequest, reply: ReplyLock) {
        self.request(Op::Getlk, req, reply).test_lock(&wanted);
    }

    fn setlk(&mut self, req: &Request, wanted: LockRequest, wait: bool, reply: ReplyEmpty) {
        self.request(Op::Setlk, req, reply).set_lock(&wanted, wait.then(|| req.unique()));
    }

    fn interrupt(&mut self, unique: Unique) {
        self.dispatcher.interrupt(unique);
    }

    /// There is no block device underneath, and files are always ready.
    fn refuse(&mut self, what: Refused, reply: ReplyEmpty) {
        let (op, why) = match what {
            Refused::Access => (Op::Access, Errno::ENOSYS),
            Refused::Poll => (Op::Poll, Errno::ENOSYS),
            Refused::Bmap => (Op::Bmap, Errno::ENOSYS),
            Refused::Unknown => return answer::ErrorReply::fail(reply, Errno::ENOSYS),
        };
        self.dispatcher.pending(self.context(op, InodeId::ROOT), reply).refuse(why);
    }
}
