//! Names: lookup, create, link, rename, remove, list.

use super::cache::{Body, Node};
use super::directory::Directory;
use super::{Core, Need, Outcome};
use crate::acl;
use crate::limits::{DIR_CACHE_ENTRIES_MAX, DIR_FETCH_ENTRIES_MAX, OP_ROOM_BYTES};
use crate::values::{Caller, Entry, LookupResult, Visit};
use bytes::Bytes;
use shoal_namespace::op::NewInode;
use shoal_namespace::{Dentry, Fault, Op, RenameFlags};
use shoal_types::{Cookie, Errno, FileKind, Inode, InodeId, Name, Timestamp, mode};

impl Core {
    fn directory(&mut self, dir: InodeId) -> Outcome<(&Inode, &Directory)> {
        match self.cache.need(dir)? {
            Node { inode, body: Body::Directory(names), .. } => Ok((inode, names)),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// The dentry of a name. A directory of moderate size is fetched whole, because a program that looks up
    /// one name usually looks up more.
    pub(super) fn resolve(&mut self, dir: InodeId, name: &Name) -> Outcome<Option<Dentry>> {
        // A cached name is valid even in a stale directory.
        if let Some(Node { body: Body::Directory(names), .. }) = self.cache.node(dir) {
            if let Some(known) = names.get(name) {
                return Ok(known);
            }
            // Another client works in this directory. A lookup of this name alone does not recall its rights
            // to all the names.
            if names.look_up_singly() {
                return Err(Fault::Tree(Need::Name(dir, name.clone())));
            }
        }
        let (inode, names) = self.directory(dir)?;
        match names.get(name) {
            Some(known) => Ok(known),
            None if inode.entries <= DIR_FETCH_ENTRIES_MAX => {
                Err(Fault::Tree(Need::Directory { dir, contents: false }))
            }
            None => Err(Fault::Tree(Need::Name(dir, name.clone()))),
        }
    }

    /// LOOKUP by a thread; the kernel gains a reference to what is found. `fetched`: something was fetched
    /// for this very call.
    pub(crate) fn lookup(
        &mut self,
        by: u32,
        dir: InodeId,
        name: &Name,
        fetched: bool,
    ) -> Outcome<Option<LookupResult>> {
        self.alive()?;
        let keeps = self.prepare_retry(by, dir, name)?;
        let again = keeps.is_some() || self.retries.expects_retry(by);
        let found = match self.resolve(dir, name)? {
            Some(dentry) => Some(self.entry(dentry.ino)?),
            None => None,
        };
        self.walks_into(dir, fetched);
        if let Some(keeps) = keeps {
            let kind = found.as_ref().map(|entry| entry.inode.kind);
            self.retries.second_lookup_answered(by, dir, name, kind, &keeps);
        }
        self.is_known(dir, name);
        Ok(found.map(|entry| {
            self.refer(entry.ino);
            let is_directory = entry.inode.kind == FileKind::Directory;
            let (moved_from, may_be_in) =
                if is_directory { self.refs.place(entry.ino, dir) } else { (None, None) };
            let has_moved = moved_from.is_some() || may_be_in.is_some();
            let is_above = has_moved && self.refs.is_below(dir, entry.ino);
            LookupResult { entry, moved_from, may_be_in, is_above, again }
        }))
    }

    /// An inode by its number; the kernel gains a reference.
    pub(crate) fn enter(&mut self, ino: InodeId) -> Outcome<Entry> {
        self.alive()?;
        let entry = self.entry(ino)?;
        self.refer(ino);
        Ok(entry)
    }

    /// Creates an inode of any kind.
    #[allow(clippy::too_many_arguments)] // Those of mknod(2) and symlink(2) together.
    pub(crate) fn create(
        &mut self,
        caller: &Caller,
        parent: InodeId,
        name: &Name,
        mode: u32,
        rdev: u32,
        target: &Bytes,
        now: Timestamp,
    ) -> Outcome<Entry> {
        self.admit(OP_ROOM_BYTES)?;
        let kind = FileKind::from_mode(mode).ok_or(Errno::EINVAL)?;
        if self.resolve(parent, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let ino = self.next_inode()?;
        if self.cache.is_stale(parent) {
            // The directory's attributes come with the right to change it.
            self.may_name(parent, name)?;
        }
        let new = self.new_inode(caller, parent, (kind, mode), rdev, target, now)?;
        let op = Op::Create { parent, name: name.clone(), ino, new };
        self.execute(op, &[ino], &[parent], OP_ROOM_BYTES)?;
        self.inodes.start += 1;
        self.refer(ino);
        if kind == FileKind::Directory {
            self.refs.has_placed(ino, parent);
        }
        self.entry(ino)
    }

    /// Creates a file without a name (`O_TMPFILE`).
    pub(crate) fn create_unnamed(
        &mut self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        now: Timestamp,
    ) -> Outcome<Entry> {
        self.admit(OP_ROOM_BYTES)?;
        let ino = self.next_inode()?;
        let new = self.new_inode(caller, parent, (FileKind::Regular, mode), 0, &Bytes::new(), now)?;
        self.execute(Op::CreateUnnamed { parent, ino, new }, &[ino], &[], OP_ROOM_BYTES)?;
        self.inodes.start += 1;
        self.refer(ino);
        self.entry(ino)
    }

    /// What a new inode in a directory begins with: umask, default ACLs and set-group-id are applied.
    fn new_inode(
        &mut self,
        caller: &Caller,
        parent: InodeId,
        (kind, mode): (FileKind, u32),
        rdev: u32,
        target: &Bytes,
        now: Timestamp,
    ) -> Outcome<NewInode> {
        let (dir, _) = self.directory(parent)?;
        let inherits_group = dir.perm & mode::SETGID != 0;
        let gid = if inherits_group { dir.gid } else { caller.gid };
        let mut perm = mode & mode::ALL;
        let mut xattrs = Vec::new();
        if kind == FileKind::Symlink {
            perm = 0o777;
        } else {
            let inherited = self.cache.xattrs(parent)?.get(acl::DEFAULT.as_bytes()).cloned();
            match inherited {
                Some(default) => (perm, xattrs) = acl::inherit(&default, perm, kind)?,
                None => perm &= !caller.umask,
            }
            if inherits_group && kind == FileKind::Directory {
                perm |= mode::SETGID;
            }
        }
        Ok(NewInode {
            kind,
            perm,
            uid: caller.uid,
            gid,
            rdev,
            target: target.clone(),
            time: now,
            generation: 1,
            xattrs,
        })
    }

    fn entry(&mut self, ino: InodeId) -> Outcome<Entry> {
        Ok(Entry { ino, inode: self.cache.need(ino)?.inode.clone() })
    }

    /// link(2).
    pub(crate) fn link(
        &mut self,
        ino: InodeId,
        parent: InodeId,
        name: &Name,
        now: Timestamp,
    ) -> Outcome<Entry> {
        self.admit(OP_ROOM_BYTES)?;
        if self.resolve(parent, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let op = Op::Link { ino, parent, name: name.clone(), time: now };
        self.execute(op, &[ino], &[parent], OP_ROOM_BYTES)?;
        self.refer(ino);
        self.entry(ino)
    }

    /// unlink(2) and rmdir(2), by a thread. They are charged no room, so that files can be removed from a
    /// full volume.
    pub(crate) fn remove(
        &mut self,
        by: u32,
        parent: InodeId,
        name: &Name,
        directory: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        self.admit(0)?;
        let victim = self.resolve(parent, name)?.ok_or(Errno::ENOENT)?.ino;
        let keep = self.referred(victim);
        let (name, time) = (name.clone(), now);
        let op = match directory {
            true => Op::Rmdir { parent, name, time, keep },
            false => Op::Unlink { parent, name, time, keep },
        };
        self.execute_by(by, op, &[victim], &[parent], 0)
    }

    /// renameat2(2), by a thread.
    pub(crate) fn rename(
        &mut self,
        by: u32,
        (from, from_name): (InodeId, &Name),
        (to, to_name): (InodeId, &Name),
        flags: RenameFlags,
        now: Timestamp,
    ) -> Outcome<()> {
        self.admit(0)?;
        let moved = self.resolve(from, from_name)?.ok_or(Errno::ENOENT)?.ino;
        let replaced = self.resolve(to, to_name)?.map(|dentry| dentry.ino);
        let op = Op::Rename {
            from,
            from_name: from_name.clone(),
            to,
            to_name: to_name.clone(),
            flags,
            time: now,
            keep: replaced.is_some_and(|ino| self.referred(ino)),
        };
        let (subjects, parents) = ([Some(moved), replaced.filter(|ino| *ino != moved)], [from, to]);
        let subjects: Vec<InodeId> = subjects.into_iter().flatten().collect();
        let parents = if from == to { &parents[..1] } else { &parents[..] };
        self.execute_by(by, op, &subjects, parents, 0)
    }

    /// Lists a directory of which all names are cached. With `inodes`, the kernel gains a reference to the
    /// inode of each name that the visitor accepts. `fetched`: the directory was fetched for this very call,
    /// so inodes that are still missing are not fetched again.
    pub(crate) fn readdir(
        &mut self,
        dir: InodeId,
        after: Cookie,
        inodes: bool,
        fetched: bool,
        visit: Visit<'_>,
    ) -> Outcome<bool> {
        self.alive()?;
        let (_, names) = self.directory(dir)?;
        if !names.is_complete() || (inodes && names.lacks_inodes && !fetched) {
            let contents = inodes && self.walks.wants_contents(dir);
            return Err(Fault::Tree(Need::Directory { dir, contents }));
        }
        if after == Cookie::START {
            self.walks_into(dir, true);
        }
        let mut at = after;
        loop {
            // Copied page by page, since the borrow of the directory excludes one of its children.
            let (_, names) = self.directory(dir)?;
            let page: Vec<(Name, Dentry)> =
                names.after(at).take(READDIR_PAGE).map(|(name, dentry)| (name.clone(), dentry)).collect();
            if page.is_empty() {
                return Ok(true);
            }
            for (name, dentry) in &page {
                let inode = match inodes {
                    true => self.cache.inode(dentry.ino).cloned(),
                    false => None,
                };
                if visit(name, *dentry, inode.as_ref()).is_break() {
                    return Ok(false);
                }
                if inode.is_some() {
                    self.is_known(dir, name);
                    self.refer(dentry.ino);
                    if dentry.kind == FileKind::Directory {
                        self.refs.place(dentry.ino, dir);
                    }
                }
                at = name.cookie();
            }
        }
    }

    /// Whether a directory is too large to be cached whole.
    pub(crate) fn is_huge(&mut self, dir: InodeId) -> Outcome<bool> {
        let (inode, names) = self.directory(dir)?;
        Ok(inode.entries > DIR_CACHE_ENTRIES_MAX && !names.is_complete())
    }

    /// The parent of a directory.
    pub(crate) fn parent(&mut self, dir: InodeId) -> Outcome<InodeId> {
        Ok(self.directory(dir)?.0.parent)
    }

    /// The cached dentry of a name, if any, for merging a server's page with local changes.
    pub(super) fn known_name(&mut self, dir: InodeId, name: &Name) -> Option<Option<Dentry>> {
        self.directory(dir).ok()?.1.get(name)
    }
}

/// Names copied out of a directory at once.
const READDIR_PAGE: usize = 64;

/// A name from a call, or the error that lookups of such a name end with.
pub(crate) fn name(bytes: &[u8]) -> Result<Name, Errno> {
    Name::try_from(bytes).map_err(|error| match error {
        shoal_types::NameError::TooLong => Errno::ENAMETOOLONG,
        shoal_types::NameError::Invalid => Errno::EINVAL,
    })
}
