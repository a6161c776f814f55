//! Attributes and content: stat(2), read(2), write(2), truncate(2), fsync(2), readlink(2).

use super::names::{Failure, retry_estale};
use super::pages::{PAGE_BYTES, Page};
use super::state::{Call, OTHERS, SIZE, TIMES};
use super::{Kernel, state, structure};
use shoal_channel::abi::{self, opcode};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The attribute that the kernel requests before it writes.
const CAPABILITY: &[u8] = b"security.capability\0";
/// The longest target of a symbolic link.
const TARGET_BYTES_MAX: u32 = 4095;

impl Kernel {
    // --- attributes ---

    /// GETATTR (`fuse_do_getattr`). The reply is returned also if the kernel ignores it.
    pub(super) fn getattr(&self, tid: u32, node: u64, names_file: bool) -> Result<abi::Attr, i32> {
        let version = self.state.lock().attr_version;
        let getattr_flags = if names_file { abi::GETATTR_FH } else { 0 };
        let body = abi::GetattrIn { getattr_flags, ..Default::default() };
        self.request(tid, opcode::GETATTR, node, &[body.as_bytes()], |state, reply| {
            let out = structure::<abi::AttrOut>(reply?)?;
            let kept = state::is_kept(out.attr_valid, out.attr_valid_nsec);
            state.change_attributes(node, &out.attr, kept, version, 0);
            Ok(out.attr)
        })
    }

    /// `fuse_permission`: needs valid attributes.
    pub(super) fn permission(&self, tid: u32, node: u64) -> Result<(), i32> {
        self.update(tid, node, OTHERS, false)
    }

    /// `fuse_update_attributes` for the size, by an open file.
    pub(super) fn update_size(&self, tid: u32, node: u64) -> Result<(), i32> {
        self.update(tid, node, SIZE, true)
    }

    /// Sends GETATTR unless these attributes are valid (`fuse_update_get_attr`).
    fn update(&self, tid: u32, node: u64, attributes: u8, names_file: bool) -> Result<(), i32> {
        let is_valid = {
            let mut state = self.state.lock();
            let inode = state.inode(node);
            inode.invalid & attributes == 0 && !inode.expired
        };
        if is_valid { Ok(()) } else { self.getattr(tid, node, names_file).map(drop) }
    }

    /// fstat(2).
    pub fn stat(&self, tid: u32, node: u64) -> Result<abi::Attr, i32> {
        let cached = {
            let mut state = self.state.lock();
            let inode = state.inode(node);
            (inode.invalid == 0 && !inode.expired).then_some(inode.attr)
        };
        cached.map_or_else(|| self.getattr(tid, node, false), Ok)
    }

    /// lstat(2).
    pub fn lstat(self: &Arc<Kernel>, tid: u32, path: &[u8]) -> Result<abi::Attr, i32> {
        retry_estale(|fresh| {
            let found = self.find(tid, path, fresh)?;
            Ok(self.stat(tid, found.node())?)
        })
    }

    /// readlink(2).
    pub fn readlink(self: &Arc<Kernel>, tid: u32, path: &[u8]) -> Result<Vec<u8>, i32> {
        retry_estale(|fresh| {
            let found = self.find(tid, path, fresh)?;
            let node = found.node();
            let is_symlink = self.state.lock().inode(node).attr.mode & libc::S_IFMT == libc::S_IFLNK;
            if !is_symlink {
                return Err(Failure::Final(libc::EINVAL));
            }
            let page = self.page(tid, node, 0, TARGET_BYTES_MAX)?;
            Ok(page.into_iter().take_while(|byte| *byte != 0).collect())
        })
    }

    // --- reading ---

    /// pread(2) from the beginning of an open file.
    pub fn read(&self, tid: u32, node: u64, len: u64) -> Result<Vec<u8>, i32> {
        self.enter(tid, Some(Call::Reads(node)));
        let read = self.read_pages(tid, node, len);
        self.enter(tid, None);
        read
    }

    /// `fuse_cache_read_iter` and `filemap_read`.
    fn read_pages(&self, tid: u32, node: u64, len: u64) -> Result<Vec<u8>, i32> {
        if len > self.i_size(node) {
            self.update_size(tid, node)?;
        }
        let mut read = Vec::new();
        while (read.len() as u64) < len {
            let at = read.len() as u64;
            let size = self.i_size(node);
            if at >= size {
                break;
            }
            let last = (len.min(size) - 1) / PAGE_BYTES;
            let page = self.page(tid, node, at / PAGE_BYTES, ((last + 1) * PAGE_BYTES - at) as u32)?;
            let end = self.i_size(node).min(len).min((at / PAGE_BYTES + 1) * PAGE_BYTES);
            if at >= end {
                break;
            }
            let first = at / PAGE_BYTES * PAGE_BYTES;
            read.extend_from_slice(&page[(at - first) as usize..(end - first) as usize]);
        }
        Ok(read)
    }

    fn i_size(&self, node: u64) -> u64 {
        self.state.lock().inode(node).attr.size
    }

    /// The content of a page (`filemap_get_pages`). If the page cache has not got it, it is read together
    /// with those that follow, up to `ahead` bytes.
    fn page(&self, tid: u32, node: u64, number: u64, ahead: u32) -> Result<Vec<u8>, i32> {
        loop {
            let needs_read = self.wait_until(|state| match state.inode(node).pages.0.get(&number) {
                Some(page) if page.locked_by.is_some() => None,
                Some(page) if page.uptodate => Some(Some(page.data.clone())),
                _ => Some(None),
            });
            if let Some(data) = needs_read {
                return Ok(data);
            }
            self.read_ahead(tid, node, number, ahead)?;
        }
    }

    /// `fuse_readahead`: READ of locked pages. They are filled when the reply arrives.
    fn read_ahead(&self, tid: u32, node: u64, first: u64, ahead: u32) -> Result<(), i32> {
        let (version, count, is_file) = {
            let mut state = self.state.lock();
            let version = state.attr_version;
            let inode = state.inode(node);
            let most = u64::from(ahead).div_ceil(PAGE_BYTES).max(1);
            let missing = |number: &u64| *number == first || !inode.pages.0.contains_key(number);
            (version, (first..first + most).take_while(missing).count() as u64, inode.is_regular())
        };
        let size = (count * PAGE_BYTES) as u32;
        let offset = first * PAGE_BYTES;
        let body = abi::ReadIn { offset, size, ..Default::default() };
        let outcome = Arc::new(parking_lot::Mutex::new(None));
        let told = outcome.clone();
        let opcode = if is_file { opcode::READ } else { opcode::READLINK };
        let bytes = body.as_bytes();
        let body: &[&[u8]] = if is_file { &[bytes] } else { &[] };
        self.request_in_background(
            (tid, opcode, node),
            body,
            |state, unique| {
                let pages = &mut state.inode(node).pages.0;
                for number in first..first + count {
                    let page = pages.entry(number).or_insert_with(|| Page::locked(unique));
                    // A write may have locked it since.
                    page.locked_by.get_or_insert(unique);
                }
            },
            move |state, unique, reply| {
                let Some(inode) = state.inodes.get_mut(&node) else { return };
                let data = reply.unwrap_or_default();
                for (number, page) in inode.pages.locked_by(unique) {
                    let rest =
                        data.get((number - first) as usize * PAGE_BYTES as usize..).unwrap_or_default();
                    let part = &rest[..rest.len().min(PAGE_BYTES as usize)];
                    page.data.fill(0);
                    page.data[..part.len()].copy_from_slice(part);
                    page.uptodate = reply.is_ok();
                }
                inode.pages.unlock(unique);
                if reply.is_ok() && is_file && (data.len() as u64) < u64::from(size) {
                    state.read_update_size(node, offset + data.len() as u64, version);
                }
                *told.lock() = Some(reply.map(drop));
            },
        );
        let outcome = self.wait_until(|_| *outcome.lock());
        self.run_late();
        outcome
    }

    // --- writing ---

    /// write(2) at an offset, or at the end.
    pub fn write(self: &Arc<Kernel>, tid: u32, node: u64, at: Option<u64>, data: &[u8]) -> Result<(), i32> {
        self.enter(tid, Some(Call::Writes { appends: at.is_none() }));
        let written = self.write_through(tid, node, at, data);
        self.enter(tid, None);
        written
    }

    /// `fuse_cache_write_iter` without the writeback cache, and `fuse_perform_write`.
    fn write_through(
        self: &Arc<Kernel>,
        tid: u32,
        node: u64,
        at: Option<u64>,
        data: &[u8],
    ) -> Result<(), i32> {
        let _lock = self.lock(node, true);
        // `generic_write_checks`: the end is taken before the permit is requested.
        let offset = at.unwrap_or_else(|| self.i_size(node));
        self.remove_privs(tid, node, true);
        let end = offset + data.len() as u64;
        {
            let mut state = self.state.lock();
            let inode = state.inode(node);
            inode.size_unstable |= inode.attr.size < end;
        }
        let mut done = offset;
        let mut outcome = Ok(());
        while done < end && outcome.is_ok() {
            let (unique, upto) = self.fill_pages(node, done, &data[(done - offset) as usize..]);
            let flags = libc::O_RDWR | if at.is_none() { libc::O_APPEND } else { 0 };
            let size = (upto - done) as u32;
            let body = abi::WriteIn { offset: done, size, flags: flags as u32, ..Default::default() };
            let part = &data[(done - offset) as usize..(upto - offset) as usize];
            outcome = self.request(tid, opcode::WRITE, node, &[body.as_bytes(), part], |state, reply| {
                let outcome = reply.and_then(structure::<abi::WriteOut>).map(drop);
                let pages = &mut state.inode(node).pages;
                if outcome.is_err() {
                    for number in done / PAGE_BYTES..=(upto - 1) / PAGE_BYTES {
                        pages.0.entry(number).and_modify(|page| page.uptodate = false);
                    }
                }
                pages.unlock(unique);
                if outcome.is_ok() && upto == end {
                    state.bump(node);
                    let inode = state.inode(node);
                    inode.attr.size = inode.attr.size.max(end);
                    inode.invalid |= SIZE | TIMES;
                }
                if upto == end || outcome.is_err() {
                    state.inode(node).size_unstable = false;
                }
                outcome
            });
            done = upto;
        }
        outcome
    }

    /// `fuse_fill_write_pages`: the bytes are in the page cache before the request is sent. Ends behind a
    /// page that was not valid, which stays locked. Returns the lock's number, and the end.
    fn fill_pages(&self, node: u64, offset: u64, data: &[u8]) -> (u64, u64) {
        let unique = {
            let mut requests = self.requests.lock();
            requests.last += 1;
            requests.last
        };
        let (mut at, end) = (offset, offset + data.len() as u64);
        while at < end {
            let number = at / PAGE_BYTES;
            let upto = end.min((number + 1) * PAGE_BYTES);
            let keeps_lock = self.wait_until(|state| {
                let pages = &mut state.inode(node).pages.0;
                if pages.get(&number).is_some_and(|page| page.locked_by.is_some()) {
                    return None;
                }
                let page = pages.entry(number).or_insert_with(|| Page::locked(unique));
                let first = number * PAGE_BYTES;
                page.data[(at - first) as usize..(upto - first) as usize]
                    .copy_from_slice(&data[(at - offset) as usize..(upto - offset) as usize]);
                page.uptodate |= upto - at == PAGE_BYTES;
                page.locked_by = (!page.uptodate).then_some(unique);
                Some(page.locked_by.is_some())
            });
            at = upto;
            if keeps_lock {
                break;
            }
        }
        (unique, at)
    }

    /// `file_remove_privs`: requests `security.capability` unless it is known to be absent.
    fn remove_privs(&self, tid: u32, node: u64, notes: bool) {
        if self.state.lock().inode(node).nosec {
            return;
        }
        let body = abi::GetxattrIn::default();
        self.request(tid, opcode::GETXATTR, node, &[body.as_bytes(), CAPABILITY], |state, reply| {
            state.inode(node).nosec |= notes && reply.is_err();
        });
    }

    /// ftruncate(2), or truncate(2) of a file that was found.
    pub fn resize(self: &Arc<Kernel>, tid: u32, node: u64, size: u64) -> Result<(), i32> {
        self.remove_privs(tid, node, false);
        let _lock = self.lock(node, true);
        self.state.lock().inode(node).size_unstable = true;
        let valid = abi::SetattrValid::SIZE.bits();
        let body = abi::SetattrIn { valid, size, ..Default::default() };
        self.request(tid, opcode::SETATTR, node, &[body.as_bytes()], |state, reply| {
            let set = reply.and_then(structure::<abi::AttrOut>).map(|out| {
                let before = state.inode(node).attr.size;
                let kept = state::is_kept(out.attr_valid, out.attr_valid_nsec);
                state.accept_attributes(node, &out.attr, kept, 0);
                if before != out.attr.size {
                    state.inode(node).pages.remove_all();
                }
            });
            state.inode(node).size_unstable = false;
            set
        })?;
        self.wait_until(|state| (!state.inode(node).pages.are_being_cut()).then_some(()));
        Ok(())
    }

    /// truncate(2).
    pub fn truncate(self: &Arc<Kernel>, tid: u32, path: &[u8], size: u64) -> Result<(), i32> {
        retry_estale(|fresh| {
            let found = self.find(tid, path, fresh)?;
            let mode = self.state.lock().inode(found.node()).attr.mode & libc::S_IFMT;
            match mode {
                libc::S_IFDIR => Err(Failure::Final(libc::EISDIR)),
                // The simulated symlinks point at nothing.
                libc::S_IFLNK => Err(Failure::Final(libc::ENOENT)),
                _ => {
                    self.permission(tid, found.node())?;
                    Ok(self.resize(tid, found.node(), size)?)
                }
            }
        })
    }

    /// fsync(2).
    pub fn fsync(self: &Arc<Kernel>, tid: u32, node: u64) -> Result<(), i32> {
        let _lock = self.lock(node, true);
        self.request(tid, opcode::FSYNC, node, &[&[0; 16]], |_, reply| reply.map(drop))
    }
}
