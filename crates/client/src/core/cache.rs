//! The cache of inodes, dentries and extents, which is also the [`Tree`] that operations run over.
//!
//! A cached inode, name or extent is right: it came from the server under a lease, or was made here under an
//! exclusive one. What was changed here carries the number of its batch. Until that batch is committed it is
//! pinned, and takes precedence over what the server answers.

mod evict;
mod uncommitted;

use super::Need;
use super::directory::Directory;
use super::few::FewMap;
use super::ranges::Ranges;
use crate::limits::CACHE_TABLE_WASTE_MAX;
use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use shoal_namespace::{Dentry, Fault, Tree};
use shoal_types::{
    BatchSeq, BlockId, BlockInfo, Cookie, Errno, Extent, FileKind, Inode, InodeId, Name, XattrName,
};
use std::collections::{BTreeMap, VecDeque};
use uncommitted::Uncommitted;

/// A cached inode.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) inode: Inode,
    /// The batch that changed it last.
    pub(crate) modified: BatchSeq,
    /// For a directory: another client has changed it. Its attributes are invalid; its cached names are
    /// valid.
    pub(crate) stale: bool,
    /// Reference bit of the CLOCK algorithm.
    recent: bool,
    xattrs: BTreeMap<XattrName, Bytes>,
    pub(crate) body: Body,
}

/// The content of an inode, by kind.
#[derive(Debug)]
pub(crate) enum Body {
    Directory(Directory),
    File(Content),
    Other,
}

/// A file's content map as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) extents: FewMap<Extent>,
    pub(crate) known: Ranges,
    /// The open block that a sequential writer is filling, and the offset in the file at which it continues.
    pub(crate) stream: Option<(BlockId, u64)>,
    /// The last small writes within the file that followed one another.
    pub(crate) run: Run,
    /// Where the eviction of its committed extents goes on.
    pub(crate) evicted_to: u64,
    /// The file has been read to its end: the kernel has its bytes in its page cache.
    pub(crate) is_read: bool,
}

/// Small writes within a file, each of which began where the one before ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    end: u64,
    /// Bytes written so far.
    len: u64,
}

impl Run {
    /// The bytes of the run that a write at this offset continues.
    pub(crate) fn len_before(&self, offset: u64) -> u64 {
        if offset == self.end { self.len } else { 0 }
    }

    /// `len` bytes are written at `offset`.
    pub(crate) fn record(&mut self, offset: u64, len: u64) {
        *self = Run { end: offset + len, len: self.len_before(offset) + len };
    }
}

/// Rough size of a node in memory besides its names and contents, in bytes.
const NODE_BYTES: usize = 400;
/// Rough size of an extent in memory besides its bytes.
const EXTENT_BYTES: usize = 64;

/// The client's cache of inodes, names and extents.
pub(crate) struct Cache {
    /// On the heap each, because the table has room for up to twice as many as there are.
    nodes: FxHashMap<InodeId, Box<Node>>,
    /// The open batch: changes made now carry this number.
    stamp: BatchSeq,
    /// Everything up to this batch is committed.
    acked: BatchSeq,
    bytes: usize,
    bytes_max: usize,
    /// The CLOCK list: nodes in the order in which eviction visits them.
    clock: VecDeque<InodeId>,
    /// Inodes deleted here in batches that are not committed: replies of servers may still name them.
    dead: FxHashSet<InodeId>,
    dying: VecDeque<(BatchSeq, InodeId)>,
    /// Evictions and invalidations so far, and the newest batch among what they removed: rule 3 of
    /// [`super::install`].
    pub(super) evictions: u64,
    pub(super) evicted_modified: BatchSeq,
    versions: u64,
    uncommitted: Uncommitted,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Cache {
        Cache {
            nodes: FxHashMap::default(),
            stamp: BatchSeq(1),
            acked: BatchSeq(0),
            bytes: 0,
            bytes_max,
            clock: VecDeque::new(),
            dead: FxHashSet::default(),
            dying: VecDeque::new(),
            evictions: 0,
            evicted_modified: BatchSeq(0),
            versions: 0,
            uncommitted: Uncommitted::default(),
        }
    }

    pub(super) fn set_stamp(&mut self, stamp: BatchSeq) {
        self.stamp = stamp;
    }

    pub(super) fn set_acked(&mut self, acked: BatchSeq) {
        self.acked = self.acked.max(acked);
        self.uncommitted.committed(self.acked);
        while let Some((seq, ino)) = self.dying.front().copied()
            && seq <= self.acked
        {
            self.dying.pop_front();
            self.dead.remove(&ino);
            self.note_eviction(seq);
        }
    }

    fn note_eviction(&mut self, modified: BatchSeq) {
        self.evictions += 1;
        self.evicted_modified = self.evicted_modified.max(modified);
    }

    pub(crate) fn acked(&self) -> BatchSeq {
        self.acked
    }

    /// Rough size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the limit, in bytes. What is above it is evicted before the next calls.
    pub(super) fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }

    /// Gives back the room in tables that evicted inodes have left.
    pub(super) fn shrink_tables(&mut self) {
        let len = self.nodes.len();
        if self.nodes.capacity() > CACHE_TABLE_WASTE_MAX * len.max(CACHE_TABLE_WASTE_MAX) {
            self.nodes.shrink_to(2 * len);
            self.clock.shrink_to(2 * len);
        }
    }

    /// Whether the cache is above its limit.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Number of inodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node, marked as used.
    pub(crate) fn node(&mut self, ino: InodeId) -> Option<&mut Node> {
        let node = self.peek_mut(ino)?;
        node.recent = true;
        Some(node)
    }

    /// The cached record of an inode, if it is up to date.
    pub(crate) fn inode(&mut self, ino: InodeId) -> Option<&Inode> {
        self.node(ino).filter(|node| !node.stale).map(|node| &node.inode)
    }

    /// The node, without marking it as used.
    pub(super) fn peek(&self, ino: InodeId) -> Option<&Node> {
        self.nodes.get(&ino).map(Box::as_ref)
    }

    /// The node, to be changed without marking it as used.
    fn peek_mut(&mut self, ino: InodeId) -> Option<&mut Node> {
        self.nodes.get_mut(&ino).map(Box::as_mut)
    }

    /// The open batch.
    pub(super) fn stamp(&self) -> BatchSeq {
        self.stamp
    }

    /// The cover of an inode, if it is cached.
    pub(super) fn cover(&self, ino: InodeId) -> Option<InodeId> {
        self.nodes.get(&ino).map(|node| node.inode.cover(ino))
    }

    /// Whether the inode's record is cached and up to date.
    pub(super) fn is_fresh(&self, ino: InodeId) -> bool {
        self.nodes.get(&ino).is_some_and(|node| !node.stale)
    }

    /// Whether the inode is a directory that another client has changed, and of which only names are known.
    pub(super) fn is_stale(&self, ino: InodeId) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.stale)
    }

    /// Whether the inode is known to be a directory.
    pub(super) fn is_directory(&self, ino: InodeId) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.inode.is_dir())
    }

    /// The batch that changed an inode last; 0 if none has or it is not cached.
    pub(super) fn modified(&self, ino: InodeId) -> BatchSeq {
        self.nodes.get(&ino).map_or(BatchSeq(0), |node| node.modified)
    }

    /// Invalidates an inode that another client is about to change. Of a directory with cached names only
    /// the record and `names` are invalidated.
    pub(super) fn drop_node(&mut self, ino: InodeId, names: &[Name]) {
        let version = self.next_version();
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if let Body::Directory(directory) = &mut node.body
            && !directory.is_empty()
            && node.inode.nlink > 0
        {
            node.stale = true;
            let modified = node.modified;
            let grown = directory.forget(names, version);
            self.adjust(grown);
            self.note_eviction(modified);
            return;
        }
        self.remove(ino);
    }

    fn remove(&mut self, ino: InodeId) {
        if let Some(node) = self.nodes.remove(&ino) {
            self.bytes -= node.bytes();
            self.note_eviction(node.modified);
            if let Some(Node { body: Body::Directory(dir), .. }) = self.peek_mut(node.inode.parent) {
                dir.lacks_inodes = true;
            }
        }
    }

    /// Inodes with a change that is not committed.
    pub(super) fn uncommitted(&self) -> impl Iterator<Item = InodeId> {
        self.nodes.iter().filter(|(_, node)| node.modified > self.acked).map(|(ino, _)| *ino)
    }

    /// The members of `covers` under which something is not committed.
    pub(super) fn modified_among(&self, covers: &FxHashSet<InodeId>) -> FxHashSet<InodeId> {
        let modified = self.nodes.iter().filter(|(_, node)| node.modified > self.acked);
        modified.map(|(ino, node)| node.inode.cover(*ino)).filter(|cover| covers.contains(cover)).collect()
    }

    /// Invalidates everything under these covers.
    pub(super) fn drop_covers(&mut self, covers: &FxHashSet<InodeId>) {
        let under = self.nodes.iter().filter(|(ino, node)| covers.contains(&node.inode.cover(**ino)));
        let inodes: Vec<InodeId> = under.map(|(ino, _)| *ino).collect();
        inodes.iter().for_each(|ino| self.remove(*ino));
    }

    /// Installs the current record of a stale directory. Returns whether it was stale.
    pub(super) fn refresh(&mut self, ino: InodeId, inode: &Inode, xattrs: &[(XattrName, Bytes)]) -> bool {
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.stale) else { return false };
        let before = node.bytes();
        (node.inode, node.stale) = (inode.clone(), false);
        node.xattrs = xattrs.iter().cloned().collect();
        let after = node.bytes();
        self.bytes = self.bytes + after - before;
        true
    }

    /// Evicts the names of a directory in which nothing is uncommitted, and the files that they lead to.
    pub(super) fn give_up(&mut self, dir: InodeId) {
        let version = self.next_version();
        let acked = self.acked;
        let Some(Node { body: Body::Directory(names), modified, .. }) = self.peek_mut(dir) else {
            return;
        };
        if *modified > acked {
            return;
        }
        let modified = *modified;
        let files = names.after(Cookie::START).filter(|(_, dentry)| dentry.kind != FileKind::Directory);
        let files: Vec<InodeId> = files.map(|(_, dentry)| dentry.ino).collect();
        let grown = names.forget_all(version);
        self.adjust(grown);
        self.note_eviction(modified);
        for ino in files {
            let idle = |node: &Node| node.modified <= acked && node.inode.nlink > 0;
            if self.peek(ino).is_some_and(idle) {
                self.remove(ino);
            }
        }
    }

    /// A new version number of a directory, different from all earlier ones.
    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// The node, or the need for it.
    pub(crate) fn need(&mut self, ino: InodeId) -> Result<&mut Node, Fault<Need>> {
        if !self.is_fresh(ino) {
            let gone = self.dead.contains(&ino);
            return Err(if gone { Errno::ENOENT.into() } else { Fault::Tree(Need::Inode(ino)) });
        }
        self.node(ino).ok_or(Fault::Tree(Need::Inode(ino)))
    }

    /// Whether the inode is cached. Does not mark it as used.
    pub(crate) fn contains(&self, ino: InodeId) -> bool {
        self.nodes.contains_key(&ino)
    }

    /// Whether the inode was deleted here and the server may not know that yet.
    pub(super) fn is_dead(&self, ino: InodeId) -> bool {
        self.dead.contains(&ino)
    }

    /// Whether the inode has lost its last name.
    pub(crate) fn is_unlinked(&self, ino: InodeId) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.inode.nlink == 0)
    }

    /// Caches a node; `modified` is 0 if it came from a server.
    pub(super) fn insert(
        &mut self,
        ino: InodeId,
        inode: Inode,
        xattrs: BTreeMap<XattrName, Bytes>,
        body: Body,
        modified: BatchSeq,
    ) {
        let mut body = body;
        if let Body::Directory(names) = &mut body {
            names.version = self.next_version();
        }
        let node = Node { inode, modified, stale: false, recent: true, xattrs, body };
        self.bytes += node.bytes();
        if let Some(old) = self.nodes.insert(ino, Box::new(node)) {
            self.bytes -= old.bytes();
        } else {
            self.clock.push_back(ino);
        }
    }

    pub(super) fn adjust(&mut self, by: isize) {
        self.bytes = self.bytes.saturating_add_signed(by);
    }

    /// The part `[start, end)` of a file, if a single extent holds all of it.
    pub(super) fn covering_extent(&self, ino: InodeId, start: u64, end: u64) -> Option<Extent> {
        let Some(Node { body: Body::File(content), .. }) = self.peek(ino) else {
            return None;
        };
        let (at, extent) = content.extents.at_or_before(start)?;
        (at + extent.len() >= end).then(|| extent.slice(start - at, end - start))
    }

    /// Replaces an extent by another one with the same bytes.
    pub(super) fn replace_same(&mut self, ino: InodeId, offset: u64, old: &Extent, new: Extent) -> bool {
        let Some(Node { body: Body::File(content), .. }) = self.peek_mut(ino) else {
            return false;
        };
        match content.extents.get_mut(offset) {
            Some(extent) if extent == old => {
                let (before, after) = (extent_bytes(extent), extent_bytes(&new));
                *extent = new;
                self.bytes = self.bytes + after - before;
                true
            }
            _ => false,
        }
    }

    fn file(&mut self, ino: InodeId) -> Option<&mut Content> {
        match self.peek_mut(ino) {
            Some(Node { body: Body::File(content), .. }) => Some(content),
            _ => None,
        }
    }

    /// All extended attributes of a cached inode.
    pub(crate) fn xattrs(&mut self, ino: InodeId) -> Result<&BTreeMap<XattrName, Bytes>, Fault<Need>> {
        self.need(ino).map(|node| &node.xattrs)
    }
}

impl Node {
    /// Whether this is a file that has been read to its end, and that no writer extends.
    fn is_read(&self) -> bool {
        matches!(&self.body, Body::File(content) if content.is_read && content.stream.is_none())
    }

    fn bytes(&self) -> usize {
        NODE_BYTES
            + self.xattrs.iter().map(|(name, value)| name.as_bytes().len() + value.len() + 96).sum::<usize>()
            + match &self.body {
                Body::Directory(dir) => dir.bytes(),
                Body::File(content) => content.extents.values().map(extent_bytes).sum(),
                Body::Other => 0,
            }
    }
}

impl Body {
    /// The body of an inode that was just created: it is known to be empty.
    fn born(kind: FileKind) -> Body {
        match kind {
            FileKind::Directory => Body::Directory(Directory::born()),
            FileKind::Regular => Body::File(Content { known: Ranges::all(), ..Content::default() }),
            _ => Body::Other,
        }
    }

    /// The body of a file of which nothing is known.
    pub(super) fn unknown(kind: FileKind) -> Body {
        match kind {
            FileKind::Directory => Body::Directory(Directory::default()),
            FileKind::Regular => Body::File(Content::default()),
            _ => Body::Other,
        }
    }
}

/// Rough size of an extent in memory.
pub(super) fn extent_bytes(extent: &Extent) -> usize {
    EXTENT_BYTES + if let Extent::Inline(bytes) = extent { bytes.len() } else { 0 }
}

impl Tree for Cache {
    type Error = Need;

    fn inode(&mut self, ino: InodeId) -> Result<Option<Inode>, Fault<Need>> {
        self.need(ino).map(|node| Some(node.inode.clone()))
    }

    fn put_inode(&mut self, ino: InodeId, inode: Inode) {
        let stamp = self.stamp;
        match self.node(ino) {
            Some(node) => {
                // Operations on a file without a name are sent when it gets one.
                let is_named = node.inode.nlink == 0 && inode.nlink > 0;
                node.inode = inode;
                node.modified = stamp;
                debug_assert!(!node.stale);
                if is_named {
                    self.uncommitted.record(stamp, ino, 0, u64::MAX);
                }
            }
            // Operations read an inode before they change it, so one that is not cached was just created.
            None => {
                let body = Body::born(inode.kind);
                self.uncommitted.record(stamp, ino, 0, u64::MAX);
                self.insert(ino, inode, BTreeMap::new(), body, stamp);
            }
        }
    }

    fn destroy_inode(&mut self, ino: InodeId, _last: &Inode) {
        if let Some(node) = self.nodes.remove(&ino) {
            self.bytes -= node.bytes();
        }
        self.dead.insert(ino);
        self.dying.push_back((self.stamp, ino));
    }

    fn dentry(&mut self, dir: InodeId, name: &Name) -> Result<Option<Dentry>, Fault<Need>> {
        match &self.need(dir)?.body {
            Body::Directory(names) => {
                names.get(name).ok_or_else(|| Fault::Tree(Need::Name(dir, name.clone())))
            }
            _ => Ok(None),
        }
    }

    fn put_dentry(&mut self, dir: InodeId, name: &Name, dentry: Dentry) {
        self.set_name(dir, name, Some(dentry));
    }

    fn remove_dentry(&mut self, dir: InodeId, name: &Name) {
        self.set_name(dir, name, None);
    }

    fn xattr(&mut self, ino: InodeId, name: &XattrName) -> Result<Option<Bytes>, Fault<Need>> {
        Ok(self.need(ino)?.xattrs.get(name).cloned())
    }

    fn xattr_sizes(&mut self, ino: InodeId) -> Result<Vec<(XattrName, usize)>, Fault<Need>> {
        Ok(self.need(ino)?.xattrs.iter().map(|(name, value)| (name.clone(), value.len())).collect())
    }

    fn put_xattr(&mut self, ino: InodeId, name: &XattrName, value: Bytes) {
        let added = name.as_bytes().len() + value.len() + 96;
        if let Some(node) = self.nodes.get_mut(&ino) {
            let removed = node
                .xattrs
                .insert(name.clone(), value)
                .map_or(0, |old| name.as_bytes().len() + old.len() + 96);
            self.bytes = self.bytes + added - removed;
        }
    }

    fn remove_xattr(&mut self, ino: InodeId, name: &XattrName) {
        if let Some(node) = self.nodes.get_mut(&ino)
            && let Some(old) = node.xattrs.remove(name)
        {
            self.bytes -= name.as_bytes().len() + old.len() + 96;
        }
    }

    fn extents(&mut self, ino: InodeId, start: u64, end: u64) -> Result<Vec<(u64, Extent)>, Fault<Need>> {
        let Body::File(content) = &self.need(ino)?.body else { return Ok(Vec::new()) };
        if let Some(gap) = content.known.first_gap(start, end) {
            return Err(Fault::Tree(Need::Extents(ino, gap)));
        }
        Ok(content.overlapping(start, end).map(|(at, extent)| (at, extent.clone())).collect())
    }

    fn put_extent(&mut self, ino: InodeId, offset: u64, extent: Extent) {
        let (added, len) = (extent_bytes(&extent), extent.len());
        if let Some(content) = self.file(ino) {
            let old = content.extents.insert(offset, extent);
            let (removed, old_len) = old.map_or((0, 0), |old| (extent_bytes(&old), old.len()));
            self.bytes = self.bytes + added - removed;
            // A hole may remain of what the new extent does not cover.
            self.uncommitted.record(self.stamp, ino, offset, offset + len.max(old_len));
        }
    }

    fn remove_extent(&mut self, ino: InodeId, offset: u64) {
        if let Some(content) = self.file(ino)
            && let Some(old) = content.extents.remove(offset)
        {
            self.bytes -= extent_bytes(&old);
            self.uncommitted.record(self.stamp, ino, offset, offset + old.len());
        }
    }

    // The server counts the references to blocks.
    fn declare_block(&mut self, _ino: InodeId, _id: BlockId, _info: BlockInfo) {}
    fn add_block_ref(&mut self, _id: BlockId) {}
    fn drop_block_ref(&mut self, _id: BlockId) {}

    // The server knows which sessions hold an inode.
    fn is_held_elsewhere(&mut self, _ino: InodeId) -> Result<bool, Fault<Need>> {
        Ok(false)
    }
    fn hold(&mut self, _ino: InodeId) {}
    fn release(&mut self, _ino: InodeId) {}
}

impl Cache {
    fn set_name(&mut self, dir: InodeId, name: &Name, dentry: Option<Dentry>) {
        let stamp = self.stamp;
        if let Some(Node { body: Body::Directory(names), .. }) = self.peek_mut(dir) {
            let grown = names.set(name, dentry, stamp);
            self.adjust(grown);
        }
    }
}

impl Content {
    /// Whole extents that overlap a range, in order.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Extent)> {
        let first = match self.extents.at_or_before(start) {
            Some((at, extent)) if at + extent.len() > start => at,
            _ => start,
        };
        self.extents.range(first..end)
    }
}
