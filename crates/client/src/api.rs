//! The calls of a mounted volume. Each call has the name of the system call it serves.

mod flags;
mod locks;
mod mapping_locks;

pub use mapping_locks::Creation;

use crate::acl;
use crate::client::Client;
use crate::core::{self, Core, Outcome, Piece, Referred, UNKNOWN_THREAD};
use crate::limits::{EXTENTS_PAGE, LIST_PAGE_BYTES, LOOKUP_TRIES, READ_TRIES};
use crate::reader::split;
use crate::session::Session;
use crate::trace;
use crate::values::{
    Caller, Calling, Entry, Failure, Fallocate, LookupResult, Reply, Seek, SeekResult, Visit, Wait, Written,
};
use bytes::Bytes;
use shoal_namespace::{Dentry, RenameFlags, SetAttr, XattrSet};
use shoal_types::{
    BlockRef, Cookie, Errno, FileKind, Inode, InodeId, Name, Statfs, Timestamp, XattrName, limits,
};
use shoal_wire::{BlockError, ExtentsReply, Found, Prefetch, Query};
use std::cell::Cell;

/// The content of holes.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

impl Client {
    /// Looks a name up; `None` if there is none. What is found gains a kernel reference (see
    /// [`forget`](Self::forget)). An NFS server looks up `.` and `..` by file handle; `.` may be any file.
    pub fn lookup(&self, wait: Wait, parent: InodeId, name: &[u8]) -> Reply<Option<Entry>> {
        Ok(self.find(wait, UNKNOWN_THREAD, parent, name)?.map(|found| found.entry))
    }

    /// [`lookup`](Self::lookup) by a thread (0 if unknown). A thread that was refused with `ESTALE` is
    /// answered when its retry can be carried out.
    pub fn find(&self, wait: Wait, by: u32, parent: InodeId, name: &[u8]) -> Reply<Option<LookupResult>> {
        let by_number = |entry| {
            Some(LookupResult { entry, moved_from: None, may_be_in: None, is_above: false, again: false })
        };
        match name {
            b"." => self.current().call(wait, |core| core.enter(parent)).map(by_number),
            b".." => self
                .current()
                .call(wait, |core| core.parent(parent).and_then(|dir| core.enter(dir)))
                .map(by_number),
            name => {
                let name = core::name(name)?;
                // `ENOENT` also means that the inode was deleted before it could be fetched. Then the name
                // was recalled, and may lead to another one by now.
                let (session, mut tries) = (self.current(), LOOKUP_TRIES);
                loop {
                    match session.call_again(wait, |core, fetched| core.lookup(by, parent, &name, fetched)) {
                        Err(Failure::Errno(Errno::ENOENT)) if tries > 1 => tries -= 1,
                        found => return found,
                    }
                }
            }
        }
    }

    /// If this is the second lookup of a thread that was refused with `ESTALE`: the directories in which its
    /// retry changes names.
    pub fn pending_retry_dirs(&self, by: u32, parent: InodeId, name: &[u8]) -> Option<Vec<InodeId>> {
        let name = core::name(name).ok()?;
        self.current().context.state.lock().core.retries.pending_retry_dirs(by, parent, &name)
    }

    /// The parent of a directory (`..`); that of the root is the root.
    pub fn parent(&self, wait: Wait, dir: InodeId) -> Reply<InodeId> {
        self.current().call(wait, |core| core.parent(dir))
    }

    /// The kernel drops `count` of its references to an inode. An unlinked file is deleted with the last one.
    pub fn forget(&self, ino: InodeId, count: u64) {
        // The session is not replaced meanwhile, so the reference is dropped in the one that counts it.
        self.mount.with_current(|session| session.forget(ino, count));
    }

    /// The inodes that the kernel refers to.
    pub fn referred(&self) -> Referred {
        self.mount.with_current(|session| session.context.state.lock().core.referred_count())
    }

    /// The `count` inodes that the kernel has referred to for longest. The next call returns the next ones.
    pub fn oldest_referred(&self, count: usize) -> Vec<InodeId> {
        self.mount.with_current(|session| session.context.state.lock().core.oldest_referred(count))
    }

    /// The time of the servers' clock, with which changes are stamped.
    pub fn now(&self) -> Timestamp {
        self.mount.clock().now()
    }

    /// Attributes of an inode.
    pub fn getattr(&self, wait: Wait, ino: InodeId) -> Reply<Inode> {
        self.current().look(wait, |core| core.getattr(ino))
    }

    /// Changes attributes. `set.ctime` is filled in here; `None` in atime/mtime leaves them (the front end
    /// resolves UTIME_NOW), except that a change of size moves mtime. With `set.clear_setid` set-id bits are
    /// cleared.
    pub fn setattr(&self, wait: Wait, ino: InodeId, set: SetAttr) -> Reply<Inode> {
        self.setattr_observed(wait, ino, set, |_| ())
    }

    /// Like [`setattr`](Self::setattr). `observe(true)` is called before each attempt, under the session's
    /// lock, and `observe(false)` after one that failed.
    pub fn setattr_observed(
        &self,
        wait: Wait,
        ino: InodeId,
        set: SetAttr,
        observe: impl Fn(bool),
    ) -> Reply<Inode> {
        if set.size.is_some_and(|size| size > limits::FILE_BYTES_MAX) {
            return Err(Errno::EFBIG.into());
        }
        let now = self.now();
        self.observed(wait, observe, |core| core.setattr(ino, set, now))
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, wait: Wait, ino: InodeId) -> Reply<Bytes> {
        self.current().call(wait, |core| core.readlink(ino))
    }

    /// mknod(2), mkdir(2): makes a file of the kind in `mode`'s `S_IFMT` bits.
    /// Applies umask, default ACLs and set-group-id inheritance. The file gains a kernel reference.
    pub fn create(
        &self,
        calling: impl Into<Calling>,
        caller: &Caller,
        parent: InodeId,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Reply<Entry> {
        self.make(calling.into(), caller, parent, name, mode, rdev, Bytes::new())
    }

    /// symlink(2). The link gains a kernel reference.
    pub fn symlink(
        &self,
        calling: impl Into<Calling>,
        caller: &Caller,
        parent: InodeId,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry> {
        if target.len() > limits::SYMLINK_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let mode = FileKind::Symlink.mode_bits();
        self.make(calling.into(), caller, parent, name, mode, 0, Bytes::copy_from_slice(target))
    }

    #[allow(clippy::too_many_arguments)]
    fn make(
        &self,
        calling: Calling,
        caller: &Caller,
        parent: InodeId,
        name: &[u8],
        mode: u32,
        rdev: u32,
        target: Bytes,
    ) -> Reply<Entry> {
        let name = core::name(name)?;
        let now = self.now();
        self.current().change_names(calling, [parent; 2], |core, _| {
            core.create(caller, parent, &name, mode, rdev, &target, now)
        })
    }

    /// link(2). The file gains a kernel reference.
    pub fn link(
        &self,
        calling: impl Into<Calling>,
        ino: InodeId,
        parent: InodeId,
        name: &[u8],
    ) -> Reply<Entry> {
        let name = core::name(name)?;
        let now = self.now();
        self.current().change_names(calling.into(), [parent; 2], |core, _| core.link(ino, parent, &name, now))
    }

    /// unlink(2).
    pub fn unlink(&self, calling: impl Into<Calling>, parent: InodeId, name: &[u8]) -> Reply<()> {
        self.remove(calling.into(), parent, name, false)
    }

    /// rmdir(2). Fails with `ESTALE` if the kernel may mean another directory: it looks the name
    /// up again, and retries.
    pub fn rmdir(&self, calling: impl Into<Calling>, parent: InodeId, name: &[u8]) -> Reply<()> {
        self.remove(calling.into(), parent, name, true)
    }

    fn remove(&self, calling: Calling, parent: InodeId, name: &[u8], directory: bool) -> Reply<()> {
        let name = core::name(name)?;
        let now = self.now();
        self.current()
            .change_names(calling, [parent; 2], |core, by| core.remove(by, parent, &name, directory, now))
    }

    /// renameat2(2). Fails with `ESTALE` like [`rmdir`](Self::rmdir).
    pub fn rename(
        &self,
        calling: impl Into<Calling>,
        from: InodeId,
        from_name: &[u8],
        to: InodeId,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Reply<()> {
        let (from_name, to_name) = (core::name(from_name)?, core::name(to_name)?);
        let now = self.now();
        self.current().change_names(calling.into(), [from, to], |core, by| {
            core.rename(by, (from, &from_name), (to, &to_name), flags, now)
        })
    }

    /// pread(2): up to `len` bytes as a sequence of parts; fewer only at the end of the file.
    pub fn read(&self, wait: Wait, ino: InodeId, offset: u64, len: u32) -> Reply<Vec<Bytes>> {
        self.read_pieces(wait, ino, offset, len).map(|(_, parts)| parts)
    }

    /// Like [`read`](Self::read); also returns the pieces that the parts were read from.
    pub(crate) fn read_pieces(
        &self,
        wait: Wait,
        ino: InodeId,
        offset: u64,
        len: u32,
    ) -> Reply<(Vec<Piece>, Vec<Bytes>)> {
        let session = self.current();
        for _ in 0..READ_TRIES {
            let pieces = session.call(wait, |core| core.read(ino, offset, u64::from(len)))?;
            let chunks = session.reader.chunks_for(ino, offset, u64::from(len), &pieces);
            match gather(&session, wait, &pieces, &chunks) {
                Ok(parts) => return parts.map(|parts| (pieces, parts)).ok_or(Failure::WouldBlock),
                // The server rewrote the extent and collected the block: the cached extents are outdated.
                Err(BlockError::Missing(id)) => {
                    if wait == Wait::Never {
                        return Err(Failure::WouldBlock);
                    }
                    tracing::debug!(block = %id, %ino, "looking extents up again");
                    session.shipper.flush()?;
                    session.context.state.lock().core.cache.forget_extents(ino);
                }
                Err(error) => {
                    session.context.state.lock().core.alive()?;
                    tracing::error!(%ino, offset, len, %error, "read failed");
                    return Err(Errno::EIO.into());
                }
            }
        }
        tracing::error!(%ino, offset, len, "blocks of this file are missing");
        Err(Errno::EIO.into())
    }

    /// Acquires a write permit for a file, for the kernel. Waits until the client has the exclusive right to
    /// the file. [`KernelCache::hold_writes`](crate::KernelCache::hold_writes) revokes the permit.
    pub fn acquire_write_permit(&self, wait: Wait, ino: InodeId) -> Reply<()> {
        let now = self.now();
        self.current().call(wait, |core| core.acquire_write_permit(ino, wait == Wait::Allowed, now))
    }

    /// Whether the file has a write permit. Then no other client can have changed it since.
    pub fn has_write_permit(&self, ino: InodeId) -> bool {
        self.mount.with_current(|session| session.context.state.lock().core.writers.has_permit(ino))
    }

    /// The kernel's pages and attributes of these files are invalidated: their permits are void.
    pub fn forget_writers(&self, files: &[InodeId]) {
        self.mount.with_current(|session| {
            let writers = &mut session.context.state.lock().core.writers;
            files.iter().for_each(|ino| writers.forget(*ino));
        });
    }

    /// Whether a writer waits for a permit of a file, until the right to it, which is being recalled, has
    /// been given back.
    pub fn waits_to_write(&self, ino: InodeId) -> bool {
        self.mount.with_current(|session| session.context.state.lock().core.writers.has_waiter(ino))
    }

    /// pwrite(2): all of `data` or nothing. `clear_setid`: the writer lacks `CAP_FSETID`
    /// (`FUSE_WRITE_KILL_SUIDGID`).
    pub fn write(&self, wait: Wait, ino: InodeId, offset: u64, data: &[u8], clear_setid: bool) -> Reply<()> {
        self.write_observed(wait, ino, Some(offset), data, clear_setid, |_| ()).map(drop)
    }

    /// write(2) to a file that was opened with `O_APPEND`: at its current end. Returns the offset.
    pub fn append(&self, wait: Wait, ino: InodeId, data: &[u8], clear_setid: bool) -> Reply<u64> {
        self.write_observed(wait, ino, None, data, clear_setid, |_| ()).map(|written| written.at)
    }

    /// Like [`write`](Self::write) with `offset`, like [`append`](Self::append) without. For `observe` see
    /// [`setattr_observed`](Client::setattr_observed).
    pub fn write_observed(
        &self,
        wait: Wait,
        ino: InodeId,
        offset: Option<u64>,
        data: &[u8],
        clear_setid: bool,
        observe: impl Fn(bool),
    ) -> Reply<Written> {
        let data = Bytes::copy_from_slice(data);
        let now = self.now();
        self.observed(wait, observe, |core| {
            let size = core.getattr(ino).map_or(0, |inode| inode.size);
            if offset.is_some() {
                core.may_write(ino)?;
            }
            let at = match offset {
                Some(offset) => core.write(ino, offset, &data, clear_setid, now).map(|()| offset),
                None => core.append(ino, &data, clear_setid, now),
            }?;
            Ok(Written { at, grew: at + data.len() as u64 > size })
        })
    }

    /// fallocate(2).
    pub fn fallocate(&self, wait: Wait, ino: InodeId, offset: u64, len: u64, what: Fallocate) -> Reply<()> {
        self.fallocate_observed(wait, ino, offset, len, what, |_| ())
    }

    /// Like [`fallocate`](Self::fallocate). For `observe` see [`setattr_observed`](Client::setattr_observed).
    pub fn fallocate_observed(
        &self,
        wait: Wait,
        ino: InodeId,
        offset: u64,
        len: u64,
        what: Fallocate,
        observe: impl Fn(bool),
    ) -> Reply<()> {
        let now = self.now();
        self.observed(wait, observe, |core| core.fallocate(ino, offset, len, what, now))
    }

    fn observed<T>(
        &self,
        wait: Wait,
        observe: impl Fn(bool),
        mut call: impl FnMut(&mut Core) -> Outcome<T>,
    ) -> Reply<T> {
        let call = |core: &mut Core| {
            observe(true);
            call(core).inspect_err(|_| observe(false))
        };
        self.current().call(wait, call).inspect_err(|_| observe(false))
    }

    /// copy_file_range(2): shares blocks instead of copying them. Returns the number of bytes, fewer at the
    /// end of the source.
    pub fn copy_file_range(
        &self,
        wait: Wait,
        src: InodeId,
        src_offset: u64,
        dst: InodeId,
        dst_offset: u64,
        len: u64,
    ) -> Reply<u64> {
        self.copy_file_range_observed(wait, src, src_offset, dst, dst_offset, len, |_| ())
    }

    /// Like [`copy_file_range`](Self::copy_file_range). For `observe` see
    /// [`setattr_observed`](Client::setattr_observed).
    #[expect(clippy::too_many_arguments, reason = "those of the system call")]
    pub fn copy_file_range_observed(
        &self,
        wait: Wait,
        src: InodeId,
        src_offset: u64,
        dst: InodeId,
        dst_offset: u64,
        len: u64,
        observe: impl Fn(bool),
    ) -> Reply<u64> {
        let now = self.now();
        self.observed(wait, observe, |core| core.clone_range(src, src_offset, dst, dst_offset, len, now))
    }

    /// lseek(2) with `SEEK_DATA` and `SEEK_HOLE`.
    pub fn lseek(&self, wait: Wait, ino: InodeId, offset: u64, what: Seek) -> Reply<SeekResult> {
        self.current().call(wait, |core| core.seek(ino, offset, what))
    }

    /// fsync(2), of any file or directory: everything done on the volume before is durable when this returns,
    /// since the journal commits in order. `EIO` if something acknowledged has been lost. If the mount
    /// continues in a new session, it is reported once for each inode that the kernel referred to.
    pub fn fsync(&self, ino: InodeId) -> Result<(), Errno> {
        let session = self.current();
        session.context.state.lock().core.report_to_sync(ino)?;
        session.shipper.flush()
    }

    /// Shows names after a cookie, in the order of cookies. Returns true at the end of the directory. Returns
    /// false if the visitor breaks off, or at the end of a page of a directory that is too large to be cached
    /// whole: then call again with the last name's cookie. With `inodes`, every name *accepted* by the
    /// visitor gains a kernel reference (readdirplus), unless it came without inode.
    pub fn readdir(
        &self,
        wait: Wait,
        dir: InodeId,
        after: Cookie,
        inodes: bool,
        visit: Visit<'_>,
    ) -> Reply<bool> {
        let session = self.current();
        if session.look(wait, |core| core.is_huge(dir))? {
            return readdir_huge(&session, wait, dir, after, inodes, visit);
        }
        // If the call runs again, it continues after what was shown.
        let at = Cell::new(after);
        let mut show = |name: &Name, dentry: Dentry, inode: Option<&Inode>| {
            let flow = visit(name, dentry, inode);
            if flow.is_continue() {
                at.set(name.cookie());
            }
            flow
        };
        session.call_again(wait, |core, fetched| core.readdir(dir, at.get(), inodes, fetched, &mut show))
    }

    /// getxattr(2); `ENODATA` if there is none.
    pub fn getxattr(&self, wait: Wait, ino: InodeId, name: &[u8]) -> Reply<Bytes> {
        self.current().call(wait, |core| core.getxattr(ino, name))
    }

    /// listxattr(2).
    pub fn listxattr(&self, wait: Wait, ino: InodeId) -> Reply<Vec<XattrName>> {
        self.current().call(wait, |core| core.listxattr(ino))
    }

    /// setxattr(2). Setting `system.posix_acl_access` also sets the mode bits it implies.
    pub fn setxattr(&self, wait: Wait, ino: InodeId, name: &[u8], value: &[u8], how: XattrSet) -> Reply<()> {
        let name = xattr_name(name)?;
        let value = Bytes::copy_from_slice(value);
        let now = self.now();
        self.current().call(wait, |core| core.setxattr(ino, &name, &value, how, now))
    }

    /// removexattr(2).
    pub fn removexattr(&self, wait: Wait, ino: InodeId, name: &[u8]) -> Reply<()> {
        let name = xattr_name(name)?;
        let now = self.now();
        self.current().call(wait, |core| core.removexattr(ino, &name, now))
    }

    /// statfs(2).
    pub fn statfs(&self, wait: Wait) -> Reply<Statfs> {
        if wait == Wait::Never {
            return Err(Failure::WouldBlock);
        }
        let session = self.current();
        session.context.state.lock().core.alive()?;
        Ok(session
            .context
            .transport
            .meta
            .statfs(session.context.id)
            .map_err(|error| session.context.refused(error))?)
    }

    /// Where the committed content of a file is: extents from an offset on, and the bricks of the blocks that
    /// they name. The servers are asked, and nothing is cached. It waits. `ENOENT` if there is no such file.
    pub fn extents(&self, ino: InodeId, start: u64) -> Reply<ExtentsReply> {
        let session = self.current();
        session.context.state.lock().core.alive()?;
        let meta = &session.context.transport.meta;
        Ok(meta
            .extents(session.context.id, ino, start, u64::MAX, EXTENTS_PAGE)
            .map_err(|error| session.context.refused(error))?)
    }
}

/// Reads pieces that are not in memory from bricks; `None` if the call must not wait.
fn gather(
    session: &Session,
    wait: Wait,
    pieces: &[Piece],
    chunks: &[BlockRef],
) -> Result<Option<Vec<Bytes>>, BlockError> {
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => parts.push(bytes.clone()),
            Piece::Zeros(len) => {
                let mut left = *len as usize;
                while left > 0 {
                    let part = left.min(ZEROS.len());
                    parts.push(Bytes::from_static(&ZEROS[..part]));
                    left -= part;
                }
            }
            Piece::Block(block) => {
                for (piece, chunk) in split(*block, chunks) {
                    match (wait, chunk) {
                        (Wait::Allowed, _) => parts.push(session.reader.read_piece(piece, chunk, chunks)?),
                        (Wait::Never, Some(chunk)) => match session.reader.peek(chunk, piece) {
                            Some(bytes) => parts.push(bytes),
                            None => return Ok(None),
                        },
                        (Wait::Never, None) => return Ok(None),
                    }
                }
            }
        }
    }
    let of_block = |piece: &Piece| if let Piece::Block(block) = piece { u64::from(block.len) } else { 0 };
    session.context.counters.block_read_bytes.add(pieces.iter().map(of_block).sum());
    Ok(Some(parts))
}

/// Lists a directory that is too large to be cached: pages of the server, after a flush of the journal.
fn readdir_huge(
    session: &Session,
    wait: Wait,
    dir: InodeId,
    after: Cookie,
    inodes: bool,
    visit: Visit<'_>,
) -> Reply<bool> {
    if wait == Wait::Never {
        return Err(Failure::WouldBlock);
    }
    session.shipper.flush()?;
    let prefetch = if inodes { Prefetch::Attributes } else { Prefetch::Names };
    let ticket = session.context.state.lock().core.ticket();
    let bytes_max = HUGE_PAGE_BYTES as u64;
    let (reply, request) = session.fetcher.read(Query::List { dir, after, prefetch, bytes_max })?;
    let Found::List(page) = reply.found else { return Err(session.context.unexpected_answer().into()) };
    // The names that are shown gain references.
    if trace::followed().is_some_and(|trace| !trace.carry_out()) {
        return Err(Errno::EINTR.into());
    }
    // Installed under one hold of the lock, before any of it can be recalled.
    let mut shown = Vec::with_capacity(page.entries.len());
    {
        let core = &mut session.context.state.lock().core;
        // A reply of another term may be shown, and not cached.
        let counts = core.rights.term == reply.term && request.counts();
        if counts {
            core.install_exclusive(ticket, &reply.exclusive);
        }
        for mut entry in page.entries {
            entry.record = entry.record.filter(|_| counts);
            let (name, ino) = (entry.name.clone(), entry.dentry.ino);
            if let Some((dentry, inode)) = core.pass_through(ticket, dir, entry) {
                shown.push((name, ino, dentry, inode));
            }
        }
    }
    drop(request);
    for (name, ino, dentry, inode) in shown {
        let inode = inode.filter(|_| inodes);
        if visit(&name, dentry, inode.as_ref()).is_break() {
            return Ok(false);
        }
        if inode.is_some() {
            let core = &mut session.context.state.lock().core;
            core.alive()?;
            core.refer(ino);
        }
    }
    Ok(page.end)
}

/// Bytes requested in one page of a huge directory: about what one getdents(2) of a program takes.
const HUGE_PAGE_BYTES: usize = LIST_PAGE_BYTES / 64;

/// An attribute's name, or the error of setxattr(2) for such a name.
fn xattr_name(name: &[u8]) -> Result<XattrName, Errno> {
    if name.len() > limits::XATTR_NAME_BYTES_MAX {
        return Err(Errno::ERANGE);
    }
    // Any other prefix means nothing to the kernel, and ext4 refuses it too.
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let known = prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    if !known && name != acl::ACCESS.as_bytes() && name != acl::DEFAULT.as_bytes() {
        return Err(Errno::EOPNOTSUPP);
    }
    XattrName::try_from(name).map_err(|_| Errno::EINVAL)
}
