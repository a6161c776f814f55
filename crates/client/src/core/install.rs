//! Installs replies of servers in the cache.
//!
//! A reply describes the server's state at some moment after the request. This client may have changed
//! things meanwhile. Three rules keep what is newer:
//!
//! 1. A cached object is kept: it is valid by lease, and may be ahead of the server.
//! 2. A name changed here in a batch that was not committed *when the request was made* takes precedence over
//!    the reply.
//! 3. If such a recent change was evicted while the request was in flight, the reply may show the state
//!    before it, and the cache cannot tell. The reply is discarded, and requested again.

use super::Core;
use super::cache::{Body, Content, extent_bytes};
use super::ranges::Ranges;
use shoal_namespace::Dentry;
use shoal_types::{BatchSeq, Cookie, Extent, Inode, InodeId, Name};
use shoal_wire::{AcquireReply, DirEntry, ExtentsReply, FileRecord, LookupReply, MOVES, Right, Want};

/// The state of the cache when a request was made, by which its reply is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    acked: BatchSeq,
    evictions: u64,
}

impl Core {
    /// A ticket for a request that is made now.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { acked: self.cache.acked(), evictions: self.cache.evictions }
    }

    /// Rule 3: whether the reply has to be discarded.
    fn outdated(&self, ticket: Ticket) -> bool {
        self.cache.evictions != ticket.evictions && self.cache.evicted_modified > ticket.acked
    }

    /// Whether an inode may have been deleted here since a request was made. The servers then end the rights
    /// to it by themselves.
    fn has_died(&self, ticket: Ticket, ino: InodeId) -> bool {
        let unknown = ino != MOVES && !self.cache.contains(ino);
        unknown && (self.cache.is_dead(ino) || self.outdated(ticket))
    }

    /// Installs the record of an inode.
    pub(crate) fn install_inode(&mut self, ticket: Ticket, record: FileRecord) {
        if !self.outdated(ticket) {
            self.take_record(record);
        }
    }

    fn take_record(&mut self, record: FileRecord) {
        if self.cache.is_dead(record.ino) {
            return;
        }
        let ino = record.ino;
        self.rights.watch(record.inode.cover(ino));
        self.merge_record(record);
        // Another client may have moved it. Its cover is kept for as long as the kernel refers to it.
        if let Some(cover) = self.cache.cover(ino) {
            self.refer_under(ino, cover);
        }
    }

    fn merge_record(&mut self, record: FileRecord) {
        let FileRecord { ino, inode, xattrs, extents, blocks: _ } = record;
        if self.cache.refresh(ino, &inode, &xattrs) {
            return;
        }
        let known = if inode.allocated == 0 { Some(Vec::new()) } else { extents };
        if let Some(node) = self.cache.node(ino) {
            // Rule 1; but content that is not cached may be added.
            if let (Body::File(content), Some(extents)) = (&mut node.body, known)
                && node.modified == BatchSeq(0)
                && content.extents.is_empty()
                && content.known == Ranges::default()
            {
                let grown: usize = extents.iter().map(|(_, extent)| extent_bytes(extent)).sum();
                *content = whole(extents);
                self.cache.adjust(grown as isize);
            }
            return;
        }
        let body = match (Body::unknown(inode.kind), known) {
            (Body::File(_), Some(extents)) => Body::File(whole(extents)),
            (body, _) => body,
        };
        self.cache.insert(ino, inode, xattrs.into_iter().collect(), body, BatchSeq(0));
    }

    /// Installs a dentry, positive or negative, with the record of its inode.
    pub(crate) fn install_name(
        &mut self,
        ticket: Ticket,
        dir: InodeId,
        name: &Name,
        found: Option<(Dentry, FileRecord)>,
    ) {
        if self.outdated(ticket) {
            return;
        }
        let (dentry, record) = found.map_or((None, None), |(dentry, record)| (Some(dentry), Some(record)));
        if self.take_name(ticket, dir, name, dentry)
            && let Some(record) = record
        {
            self.take_record(record);
        }
    }

    /// Installs a dentry by rule 2. Returns whether the cache now has the server's.
    fn take_name(&mut self, ticket: Ticket, dir: InodeId, name: &Name, dentry: Option<Dentry>) -> bool {
        let Some(node) = self.cache.node(dir) else { return false };
        let Body::Directory(names) = &mut node.body else { return false };
        self.rights.watch(dir);
        if names.is_complete() {
            // All names of this directory are cached, and newer; the record of the inode may be missing.
            return names.get(name).flatten() == dentry;
        }
        let grown = names.install(name, dentry, ticket.acked);
        let counts = names.get(name).flatten() == dentry;
        self.cache.adjust(grown);
        counts
    }

    /// The version of the cached names of a directory, for [`install_end`](Self::install_end).
    pub(crate) fn version(&self, dir: InodeId) -> Option<u64> {
        match &self.cache.peek(dir)?.body {
            Body::Directory(names) => Some(names.version),
            _ => None,
        }
    }

    /// Installs granted rights, with the records and names that came along.
    pub(crate) fn install_rights(&mut self, ticket: Ticket, wants: &[Want], reply: AcquireReply) {
        // The servers lack what was created here and is not committed. Anything else that they lack does not
        // exist any more.
        let told = |want: &&Want| reply.records.iter().all(|record| record.ino != want.ino);
        let unknown = wants.iter().filter(|want| want.ino != MOVES).filter(told);
        self.rights.missing.clear();
        // If outdated, the inode may have been uncommitted when the request was made, and committed and
        // invalidated since.
        if !self.outdated(ticket) {
            self.rights.missing.extend(unknown.map(|want| want.ino));
        }
        for right in &reply.rights {
            let (Right::Cover(of) | Right::Node(of)) = right;
            if self.has_died(ticket, *of) {
                continue;
            }
            let (cover, names): (InodeId, Vec<Name>) = match right {
                Right::Cover(cover) => (*cover, Vec::new()),
                Right::Node(ino) => {
                    let records = reply.records.iter();
                    let taken = reply.names.iter().filter_map(|(_, _, found)| found.found.as_ref());
                    let record =
                        records.chain(taken.map(|(_, record)| record)).find(|record| record.ino == *ino);
                    // `MOVES` has no record, and is its own cover. What was moved here has another cover than
                    // the servers know yet.
                    let theirs = record.map_or(*ino, |record| record.inode.cover(*ino));
                    let cover = self.cache.cover(*ino).unwrap_or(theirs);
                    let wanted = wants.iter().filter(|want| want.ino == *ino).flat_map(|want| &want.names);
                    (cover, wanted.map(|wanted| wanted.name.clone()).collect())
                }
            };
            let asked = match right {
                Right::Cover(_) => true,
                Right::Node(ino) => {
                    let taken = |(_, _, found): &(InodeId, Name, LookupReply)| {
                        found.found.as_ref().is_some_and(|(dentry, _)| dentry.ino == *ino)
                    };
                    wants.iter().any(|want| want.ino == *ino && want.hold) || reply.names.iter().any(taken)
                }
            };
            self.rights.grant(*right, cover, names, asked);
        }
        for record in reply.records {
            self.install_inode(ticket, record);
        }
        for (dir, name, found) in reply.names {
            self.install_name(ticket, dir, &name, found.found);
        }
    }

    /// Installs exclusive rights to covers, granted along with a reply because no other client watches them.
    pub(crate) fn install_exclusive(&mut self, ticket: Ticket, covers: &[InodeId]) {
        for cover in covers {
            if !self.has_died(ticket, *cover) {
                self.rights.grant(Right::Cover(*cover), *cover, [], true);
            }
        }
    }

    /// Installs a page of a listing.
    pub(crate) fn install_page(&mut self, ticket: Ticket, dir: InodeId, entries: Vec<DirEntry>) {
        if self.outdated(ticket) {
            return;
        }
        for entry in entries {
            if self.take_name(ticket, dir, &entry.name, Some(entry.dentry))
                && let Some(record) = entry.record
            {
                self.take_record(record);
            }
        }
    }

    /// An entry of a directory that is too large to be cached whole: what the name leads to according to the
    /// cache, with its inode. `None` if the name was removed meanwhile.
    pub(crate) fn pass_through(
        &mut self,
        ticket: Ticket,
        dir: InodeId,
        entry: DirEntry,
    ) -> Option<(Dentry, Option<Inode>)> {
        let dentry = self.known_name(dir, &entry.name).unwrap_or(Some(entry.dentry))?;
        self.refs.name_in(dir);
        if dentry == entry.dentry
            && !self.outdated(ticket)
            && let Some(record) = entry.record
        {
            self.take_record(record);
        }
        Some((dentry, self.cache.inode(dentry.ino).cloned()))
    }

    /// All pages of a listing were installed under this ticket: a name that was not among them does not
    /// exist, unless names were dropped since the directory had this version. The contents of files whose
    /// names come after `contents_after` were left out.
    pub(crate) fn install_end(
        &mut self,
        ticket: Ticket,
        dir: InodeId,
        version: Option<u64>,
        contents_after: Option<Cookie>,
    ) {
        if self.outdated(ticket) || version.is_none() || self.version(dir) != version {
            return;
        }
        if let Some(node) = self.cache.node(dir)
            && let Body::Directory(names) = &mut node.body
        {
            names.lacks_inodes = false;
            (names.contents_after, names.single_fetches) = (contents_after, 0);
            let grown = if names.is_complete() { 0 } else { names.set_complete() };
            self.cache.adjust(grown);
        }
    }

    /// The name after which the contents of a directory's files are to be fetched, if its listing is complete
    /// without them.
    pub(crate) fn contents_after(&self, dir: InodeId) -> Option<Cookie> {
        match &self.cache.peek(dir)?.body {
            Body::Directory(names) if names.is_complete() => names.contents_after,
            _ => None,
        }
    }

    /// Further contents of a directory's files were installed: now those after this name are left.
    pub(crate) fn install_contents_end(&mut self, dir: InodeId, version: Option<u64>, after: Option<Cookie>) {
        if self.version(dir) == version
            && let Some(node) = self.cache.node(dir)
            && let Body::Directory(names) = &mut node.body
        {
            (names.contents_after, names.single_fetches) = (after, 0);
        }
    }

    /// Installs extents of `[start, ...)`.
    pub(crate) fn install_extents(&mut self, ticket: Ticket, ino: InodeId, start: u64, reply: ExtentsReply) {
        if self.outdated(ticket) {
            return;
        }
        let Some(node) = self.cache.node(ino) else { return };
        let Body::File(content) = &mut node.body else { return };
        let end = match reply.extents.last() {
            Some((offset, extent)) if reply.more => offset + extent.len(),
            _ => u64::MAX,
        };
        let mut grown = 0;
        for (from, to) in content.known.gaps(start, end) {
            for (offset, extent) in &reply.extents {
                let (first, last) = ((*offset).max(from), (offset + extent.len()).min(to));
                if first < last {
                    let part = extent.slice(first - offset, last - first);
                    grown += extent_bytes(&part);
                    content.extents.insert(first, part);
                }
            }
        }
        content.known.insert(start, end);
        self.cache.adjust(grown as isize);
    }
}

/// A content map that is completely known.
fn whole(extents: Vec<(u64, Extent)>) -> Content {
    Content { extents: extents.into_iter().collect(), known: Ranges::all(), ..Content::default() }
}
