//! A file system as simple as can be: names in maps, content as a vector with a mark per byte that is
//! allocated. It shares no code with the operations it is compared with.

use shoal_namespace::{Op, RenameFlags, SetAttr, XattrSet};
use shoal_types::{
    BlockId, Errno, Extent, FileKind, InodeFlags, InodeId, Name, SessionId, Timestamp, XattrName,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: FileKind,
    pub perm: u32,
    pub flags: InodeFlags,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub names: BTreeMap<Name, InodeId>,
    pub content: Vec<u8>,
    /// Longer than the content where room is reserved behind the end.
    pub allocated: Vec<bool>,
    pub xattrs: BTreeMap<XattrName, Vec<u8>>,
    /// It has lost its last name.
    pub unlinked: bool,
    /// The sessions that refer to it.
    pub holders: BTreeSet<SessionId>,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<InodeId, Node>,
    /// The session that acts.
    pub session: SessionId,
}

type Done = Result<(), Errno>;

impl Model {
    pub fn new(root: Node, session: SessionId) -> Model {
        Model { nodes: BTreeMap::from([(InodeId::ROOT, root)]), session }
    }

    /// All names of this inode.
    pub fn places(&self, ino: InodeId) -> Vec<(InodeId, Name)> {
        let named = |(dir, node): (&InodeId, &Node)| {
            let names = node.names.iter().filter(|(_, found)| **found == ino);
            names.map(|(name, _)| (*dir, name.clone())).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(named).collect()
    }

    pub fn nlink(&self, ino: InodeId) -> u32 {
        let node = &self.nodes[&ino];
        if node.kind != FileKind::Directory {
            return self.places(ino).len() as u32;
        }
        if node.unlinked {
            return 0;
        }
        2 + node.names.values().filter(|child| self.is_dir(**child)).count() as u32
    }

    fn is_dir(&self, ino: InodeId) -> bool {
        self.nodes[&ino].kind == FileKind::Directory
    }

    fn dir(&self, ino: InodeId) -> Result<&Node, Errno> {
        let node = self.nodes.get(&ino).ok_or(Errno::ENOENT)?;
        if node.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if node.unlinked { Err(Errno::ENOENT) } else { Ok(node) }
    }

    fn node(&mut self, ino: InodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)
    }

    fn touch(&mut self, dir: InodeId, time: Timestamp) {
        let node = self.nodes.get_mut(&dir).unwrap();
        (node.mtime, node.ctime) = (time, time);
    }

    /// A name has been taken away.
    fn lost_name(&mut self, ino: InodeId, time: Timestamp, keep: bool) {
        let is_last = self.places(ino).is_empty();
        let session = self.session;
        let node = self.nodes.get_mut(&ino).unwrap();
        node.ctime = time;
        if is_last {
            node.unlinked = true;
            if keep {
                node.holders.insert(session);
            } else {
                node.holders.remove(&session);
            }
            self.bury();
        }
    }

    /// Removes what neither a name nor a session leads to.
    fn bury(&mut self) {
        self.nodes.retain(|_, node| !node.unlinked || !node.holders.is_empty());
    }

    /// A session refers to inodes.
    pub fn hold(&mut self, session: SessionId, inodes: &[InodeId]) {
        for ino in inodes {
            if let Some(node) = self.nodes.get_mut(ino) {
                node.holders.insert(session);
            }
        }
    }

    /// A session ends.
    pub fn end(&mut self, session: SessionId) {
        for node in self.nodes.values_mut() {
            node.holders.remove(&session);
        }
        self.bury();
    }

    /// What a session refers to.
    pub fn held(&self, session: SessionId) -> Vec<InodeId> {
        let held = self.nodes.iter().filter(|(_, node)| node.holders.contains(&session));
        held.map(|(ino, _)| *ino).collect()
    }

    /// Does what the operation says, or says why not. `blocks` are the contents of blocks.
    pub fn apply(&mut self, op: &Op, blocks: &HashMap<BlockId, Vec<u8>>) -> Done {
        match op {
            Op::Create { parent, name, ino, new } => {
                if self.dir(*parent)?.names.contains_key(name) {
                    return Err(Errno::EEXIST);
                }
                let node = Node {
                    kind: new.kind,
                    perm: new.perm,
                    flags: InodeFlags::default(),
                    uid: new.uid,
                    gid: new.gid,
                    atime: new.time,
                    mtime: new.time,
                    ctime: new.time,
                    names: BTreeMap::new(),
                    content: new.target.to_vec(),
                    allocated: Vec::new(),
                    xattrs: new.xattrs.iter().map(|(name, value)| (name.clone(), value.to_vec())).collect(),
                    unlinked: false,
                    holders: BTreeSet::new(),
                };
                self.nodes.insert(*ino, node);
                self.node(*parent)?.names.insert(name.clone(), *ino);
                self.touch(*parent, new.time);
                Ok(())
            }
            Op::Link { ino, parent, name, time } => {
                if self.dir(*parent)?.names.contains_key(name) {
                    return Err(Errno::EEXIST);
                }
                let node = self.node(*ino)?;
                if node.kind == FileKind::Directory {
                    return Err(Errno::EPERM);
                }
                if node.unlinked {
                    return Err(Errno::ENOENT);
                }
                node.ctime = *time;
                self.node(*parent)?.names.insert(name.clone(), *ino);
                self.touch(*parent, *time);
                Ok(())
            }
            Op::Unlink { parent, name, time, keep } => self.remove(*parent, name, *time, *keep, false),
            Op::Rmdir { parent, name, time, keep } => self.remove(*parent, name, *time, *keep, true),
            Op::Rename { from, from_name, to, to_name, flags, time, keep } => {
                self.rename((*from, from_name), (*to, to_name), *flags, *time, *keep)
            }
            Op::SetAttr { ino, set } => self.setattr(*ino, set),
            Op::Write { ino, offset, len, content, size_min, time, clear_setid, .. } => {
                self.writable(*ino)?;
                let bytes = content.as_ref().map(|content| match content {
                    Extent::Inline(bytes) => bytes.to_vec(),
                    Extent::Block(block) => {
                        blocks[&block.id][block.offset as usize..][..block.len as usize].to_vec()
                    }
                    Extent::Zero { .. } => Vec::new(),
                });
                let node = self.node(*ino)?;
                let (start, end) = (*offset as usize, (*offset + *len) as usize);
                node.grow(*size_min as usize);
                match bytes {
                    None => node.punch(start, end),
                    Some(bytes) if bytes.is_empty() => node.allocate(start, end),
                    Some(bytes) => {
                        node.allocate(start, end);
                        node.content[start..end].copy_from_slice(&bytes);
                    }
                }
                node.changed(*time, *clear_setid);
                Ok(())
            }
            Op::CloneRange { src, src_offset, dst, dst_offset, len, time, clear_setid } => {
                self.writable(*src)?;
                self.writable(*dst)?;
                let (from, until) = (*src_offset as usize, (*src_offset + *len) as usize);
                let (start, end) = (*dst_offset as usize, (*dst_offset + *len) as usize);
                let source = &self.nodes[src];
                if until > source.content.len() || *len == 0 || (src == dst && from < end && start < until) {
                    return Err(Errno::EINVAL);
                }
                let bytes = source.content[from..until].to_vec();
                let marks: Vec<bool> =
                    (from..until).map(|at| source.allocated.get(at) == Some(&true)).collect();
                let node = self.node(*dst)?;
                node.grow(end);
                node.allocate(start, end);
                node.content[start..end].copy_from_slice(&bytes);
                node.allocated[start..end].copy_from_slice(&marks);
                node.changed(*time, *clear_setid);
                Ok(())
            }
            Op::SetXattr { ino, name, value, how, time } => {
                let node = self.node(*ino)?;
                match (how, node.xattrs.contains_key(name)) {
                    (XattrSet::Create, true) => return Err(Errno::EEXIST),
                    (XattrSet::Replace, false) => return Err(Errno::ENODATA),
                    _ => {}
                }
                node.xattrs.insert(name.clone(), value.to_vec());
                node.ctime = *time;
                Ok(())
            }
            Op::RemoveXattr { ino, name, time } => {
                let node = self.node(*ino)?;
                node.xattrs.remove(name).ok_or(Errno::ENODATA)?;
                node.ctime = *time;
                Ok(())
            }
            Op::Forget { ino } => {
                let session = self.session;
                if let Some(node) = self.nodes.get_mut(ino) {
                    node.holders.remove(&session);
                }
                self.bury();
                Ok(())
            }
            Op::CreateUnnamed { .. } => unreachable!("the test makes no such files"),
            // Those that the test sets forbid nothing.
            Op::SetFlags { ino, flags, time } => {
                let node = self.node(*ino)?;
                if !matches!(node.kind, FileKind::Regular | FileKind::Directory) {
                    return Err(Errno::EOPNOTSUPP);
                }
                (node.flags, node.ctime) = (*flags, *time);
                Ok(())
            }
            // The content is the same before and after.
            Op::Compact { .. } => Ok(()),
        }
    }

    fn remove(&mut self, parent: InodeId, name: &Name, time: Timestamp, keep: bool, dir: bool) -> Done {
        let ino = *self.dir(parent)?.names.get(name).ok_or(Errno::ENOENT)?;
        match (self.is_dir(ino), dir) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !self.nodes[&ino].names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.node(parent)?.names.remove(name);
        self.touch(parent, time);
        self.lost_name(ino, time, keep);
        Ok(())
    }

    /// All directories from `dir` up to the root, itself included.
    fn ancestors(&self, mut dir: InodeId) -> Vec<InodeId> {
        let mut path = vec![dir];
        while let Some((parent, _)) = self.places(dir).pop() {
            path.push(parent);
            dir = parent;
        }
        path
    }

    fn rename(
        &mut self,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        flags: RenameFlags,
        time: Timestamp,
        keep: bool,
    ) -> Done {
        if flags.no_replace && flags.exchange {
            return Err(Errno::EINVAL);
        }
        self.dir(from.0)?;
        self.dir(to.0)?;
        let moved = *self.nodes[&from.0].names.get(from.1).ok_or(Errno::ENOENT)?;
        let target = self.nodes[&to.0].names.get(to.1).copied();
        if flags.no_replace && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags.exchange && target.is_none() {
            return Err(Errno::ENOENT);
        }
        if target == Some(moved) {
            return Ok(());
        }
        if self.ancestors(to.0).contains(&moved) {
            return Err(Errno::EINVAL);
        }
        if flags.exchange {
            let target = target.unwrap();
            if self.ancestors(from.0).contains(&target) {
                return Err(Errno::EINVAL);
            }
            self.node(from.0)?.names.insert(from.1.clone(), target);
            self.node(target)?.ctime = time;
        } else {
            if let Some(target) = target {
                match (self.is_dir(moved), self.is_dir(target)) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) if self.ancestors(from.0).contains(&target) => {
                        return Err(Errno::ENOTEMPTY);
                    }
                    (false, true) => return Err(Errno::EISDIR),
                    (true, true) if !self.nodes[&target].names.is_empty() => return Err(Errno::ENOTEMPTY),
                    _ => {}
                }
            }
            self.node(from.0)?.names.remove(from.1);
        }
        self.node(to.0)?.names.insert(to.1.clone(), moved);
        self.touch(from.0, time);
        self.touch(to.0, time);
        self.node(moved)?.ctime = time;
        match target {
            Some(target) if !flags.exchange => self.lost_name(target, time, keep),
            _ => {}
        }
        Ok(())
    }

    fn writable(&mut self, ino: InodeId) -> Done {
        match self.node(ino)?.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn setattr(&mut self, ino: InodeId, set: &SetAttr) -> Done {
        if set.size.is_some() {
            self.writable(ino)?;
        }
        let node = self.node(ino)?;
        if let Some(size) = set.size {
            if size as usize <= node.content.len() {
                node.allocated.truncate(size as usize);
            }
            node.content.resize(size as usize, 0);
        }
        if set.clear_setid {
            node.lose_privileges();
        }
        node.perm = set.perm.unwrap_or(node.perm);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = set.atime.unwrap_or(node.atime);
        node.mtime = set.mtime.unwrap_or(node.mtime);
        node.ctime = set.ctime.unwrap_or(node.ctime);
        Ok(())
    }
}

impl Node {
    fn grow(&mut self, size: usize) {
        if self.content.len() < size {
            self.content.resize(size, 0);
        }
    }

    fn allocate(&mut self, start: usize, end: usize) {
        if self.allocated.len() < end {
            self.allocated.resize(end, false);
        }
        self.allocated[start..end].fill(true);
    }

    fn punch(&mut self, start: usize, end: usize) {
        for at in start..end {
            if let Some(mark) = self.allocated.get_mut(at) {
                *mark = false;
            }
            if let Some(byte) = self.content.get_mut(at) {
                *byte = 0;
            }
        }
    }

    fn changed(&mut self, time: Timestamp, clear_setid: bool) {
        (self.mtime, self.ctime) = (time, time);
        if clear_setid {
            self.lose_privileges();
        }
    }

    fn lose_privileges(&mut self) {
        if self.kind == FileKind::Directory {
            return;
        }
        self.perm &= if self.perm & 0o010 != 0 { !0o6000 } else { !0o4000 };
        self.xattrs.retain(|name, _| name.as_bytes() != b"security.capability");
    }
}
