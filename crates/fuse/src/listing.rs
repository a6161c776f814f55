//! READDIR: names in the order of their cookies, as many as fit the kernel's buffer.
//!
//! The offset of an entry is where a listing continues *after* it: 1 and 2 after `.` and `..`, the name's
//! cookie after a name. So an offset stays valid whatever happens to the directory.
//!
//! A listing waits only for its first name. If another would have to be waited for, the reply ends before it,
//! and the kernel requests the rest. So no attributes become outdated while a reply is being filled.
//!
//! Two names may share a cookie. If the buffer is full between them, the offset alone would skip the second.
//! Therefore the place is remembered in [`Splits`], and a listing that continues from that offset gets the
//! rest of the group.

use crate::answer::ErrorReply;
use crate::context::Context;
use crate::encode::{attributes, node};
use crate::invalidate::{AttrRequest, Invalidator};
use crate::kernel::name_lifetime;
use crate::mount_state::{Attempt, Shared};
use crate::split_listings::Splits;
use shoal_channel::{Canceller, ReplyDirectory, ReplyDirectoryPlus};
use shoal_client::{Entry, Reply, Wait};
use shoal_runtime::planted::mistake;
use shoal_types::{Cookie, FileKind, Inode, InodeId, Name};
use std::ops::ControlFlow;
use std::time::Duration;

/// Offset after `.`.
const AFTER_DOT: u64 = 1;
/// Offset after `..`, where the names begin.
const AFTER_DOTDOT: u64 = Cookie::START.0;

/// The inode of an entry of READDIRPLUS.
pub(crate) struct EntryAttr<'a> {
    pub inode: &'a Inode,
    /// For how long the kernel may cache name and attributes.
    pub lifetime: Duration,
}

/// The reply buffer of READDIR or READDIRPLUS.
pub(crate) trait ListingBuffer: ErrorReply + Send + 'static {
    /// Whether inodes go with the names.
    const PLUS: bool;
    /// Adds an entry; `false` if it does not fit.
    fn add(
        &mut self,
        name: &[u8],
        offset: u64,
        ino: InodeId,
        kind: FileKind,
        of: Option<EntryAttr<'_>>,
    ) -> bool;
    /// The entries added so far may be shown, but not cached.
    fn expire(&mut self);
    /// Sends the reply.
    fn send(self);
}

impl ListingBuffer for ReplyDirectory {
    const PLUS: bool = false;

    fn add(
        &mut self,
        name: &[u8],
        offset: u64,
        ino: InodeId,
        kind: FileKind,
        _: Option<EntryAttr<'_>>,
    ) -> bool {
        ReplyDirectory::add(self, ino.0, offset, kind.mode_bits(), name)
    }

    fn expire(&mut self) {}

    fn send(self) {
        self.ok();
    }
}

impl ListingBuffer for ReplyDirectoryPlus {
    const PLUS: bool = true;

    fn add(
        &mut self,
        name: &[u8],
        offset: u64,
        ino: InodeId,
        _: FileKind,
        of: Option<EntryAttr<'_>>,
    ) -> bool {
        let Some(EntryAttr { inode, lifetime }) = of else {
            tracing::error!(%ino, "a listing with inodes lacks one");
            return false;
        };
        let entry = shoal_channel::Entry {
            node: node(ino),
            generation: inode.generation,
            name_lifetime: lifetime,
            attr_lifetime: lifetime,
            attr: attributes(ino, inode),
        };
        ReplyDirectoryPlus::add(self, offset, name, &entry)
    }

    fn expire(&mut self) {
        self.expire_names();
    }

    fn send(self) {
        self.ok();
    }
}

/// The reason why a call of the client ended.
enum Stop {
    /// The directory has no more names.
    End,
    /// The buffer is full.
    Full,
    /// The client returns the rest in another call (a directory too large to be kept as a whole).
    Page,
    /// The inode of this name is not known.
    Bare(Name),
}

/// A reply that is being filled.
pub(crate) struct Listing<S> {
    sink: S,
    dir: InodeId,
    /// Whether it is the root of the mount.
    is_root: bool,
    /// The offset after the last entry.
    offset: u64,
    /// How many names with the cookie `offset` were shown, in this reply or earlier ones.
    shown: usize,
    attr_request: AttrRequest,
    /// The calling thread.
    tid: u32,
    /// Whether the reply has a name besides `.` and `..`.
    has_names: bool,
    /// The number of `INC_EPOCH` notifications before the first name was added.
    epochs: Option<u64>,
}

impl<S: ListingBuffer> Listing<S> {
    pub(crate) fn new(sink: S, context: &Context, offset: u64, shared: &Shared) -> Listing<S> {
        let (dir, tid) = (context.ino, context.thread);
        let (shown, attr_request) =
            (shared.splits.shown(dir, offset), shared.invalidator.begin_attr_request(tid));
        let is_root = dir == shared.nodes.root();
        Listing { sink, dir, is_root, offset, shown, attr_request, tid, has_names: false, epochs: None }
    }

    /// Fills the buffer. Fails only while the reply has no names.
    pub(crate) fn fill(&mut self, Attempt { shared, wait, .. }: Attempt<'_>) -> Reply<()> {
        if self.offset < AFTER_DOTDOT && !self.add_dots(&shared.client.getattr(wait, self.dir)?) {
            return Ok(());
        }
        loop {
            match self.add_more(shared, wait) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(why) if !self.has_names => return Err(why),
                // The kernel requests the rest, and gets the error then. The next name may have this cookie.
                Err(_) => {
                    shared.splits.remember(self.dir, self.offset, self.shown);
                    return Ok(());
                }
            }
        }
    }

    /// Adds some names. Returns false if the reply is complete.
    fn add_more(&mut self, shared: &Shared, wait: Wait) -> Reply<bool> {
        match self.add_names(shared, self.patience(wait))? {
            Stop::End | Stop::Full => Ok(false),
            Stop::Page => Ok(true),
            Stop::Bare(name) => self.add_bare(shared, self.patience(wait), &name),
        }
    }

    /// Whether the next name may be waited for.
    fn patience(&self, wait: Wait) -> Wait {
        if self.has_names && !mistake("wait in the middle of a listing") { Wait::Never } else { wait }
    }

    /// Adds the names that the client returns.
    fn add_names(&mut self, shared: &Shared, wait: Wait) -> Reply<Stop> {
        let Shared { client, splits, .. } = shared;
        // Within a group of names with one cookie, the listing starts at the beginning of the group and skips
        // the names that were shown.
        let mut skip = self.shown;
        let after = Cookie(if skip > 0 { self.offset - 1 } else { self.offset });
        let (mut passed, mut stop) = (Vec::new(), Stop::Page);
        let outcome = client.readdir(wait, self.dir, after, S::PLUS, &mut |name, dentry, inode| {
            let cookie = name.cookie().0;
            if skip > 0 && cookie == self.offset {
                skip -= 1;
                passed.extend(inode.map(|_| dentry.ino));
                return ControlFlow::Continue(());
            }
            if S::PLUS && inode.is_none() {
                stop = Stop::Bare(name.clone());
                return ControlFlow::Break(());
            }
            let of = inode.map(|inode| of(shared, self.attr_request, dentry.ino, inode));
            self.epochs.get_or_insert_with(|| shared.invalidator.epochs());
            if self.sink.add(name.as_bytes(), cookie, dentry.ino, dentry.kind, of) {
                self.has_names = true;
                self.moved_to(cookie);
                return ControlFlow::Continue(());
            }
            self.full_before(cookie, splits);
            stop = Stop::Full;
            ControlFlow::Break(())
        });
        // The skipped names are not in the reply, so the kernel gets no reference to them.
        passed.into_iter().for_each(|ino| client.forget(ino, 1));
        outcome.map(|end| if end { Stop::End } else { stop })
    }

    /// Adds a name whose inode has to be looked up. Returns false if it does not fit. A name that was removed
    /// meanwhile is skipped.
    fn add_bare(&mut self, shared: &Shared, wait: Wait, name: &Name) -> Reply<bool> {
        let Shared { client, splits, .. } = shared;
        let cookie = name.cookie().0;
        self.epochs.get_or_insert_with(|| shared.invalidator.epochs());
        if let Some(Entry { ino, inode }) = client.lookup(wait, self.dir, name.as_bytes())? {
            let of = of(shared, self.attr_request, ino, &inode);
            if !self.sink.add(name.as_bytes(), cookie, ino, inode.kind, Some(of)) {
                client.forget(ino, 1);
                self.full_before(cookie, splits);
                return Ok(false);
            }
            self.has_names = true;
        }
        self.moved_to(cookie);
        Ok(true)
    }

    fn full_before(&self, cookie: u64, splits: &Splits) {
        if cookie == self.offset {
            splits.remember(self.dir, cookie, self.shown);
        }
    }

    fn moved_to(&mut self, cookie: u64) {
        self.shown = if cookie == self.offset { self.shown + 1 } else { 1 };
        self.offset = cookie;
    }

    /// Adds `.` and `..`. Returns false if they do not fit. Both carry the inode of the directory itself, of
    /// which the kernel uses only the type.
    fn add_dots(&mut self, inode: &Inode) -> bool {
        // The root of a mount is its own parent.
        let parent = if self.is_root { self.dir } else { inode.parent };
        for (name, offset, ino) in [(&b"."[..], AFTER_DOT, self.dir), (&b".."[..], AFTER_DOTDOT, parent)] {
            if self.offset < offset {
                let of = EntryAttr { inode, lifetime: name_lifetime() };
                if !self.sink.add(name, offset, ino, FileKind::Directory, Some(of)) {
                    return false;
                }
                self.offset = offset;
            }
        }
        true
    }

    /// Sends the reply. `fuse_direntplus_link` stamps names with the epoch at which it handles the reply. So
    /// if `INC_EPOCH` was sent since the first entry was added, no entry may be cached. An `INC_EPOCH` sent
    /// from now on is repeated once the kernel has handled this reply.
    pub(crate) fn send(mut self, invalidator: &Invalidator) {
        let (dir, tid) = (self.dir, self.tid);
        invalidator.record_listing(dir);
        if !S::PLUS {
            return self.sink.send();
        }
        invalidator.is_about_to_list(dir, tid);
        if self.epochs.is_some_and(|epochs| epochs != invalidator.epochs())
            && !mistake("keep the names of an outdated listing")
        {
            self.sink.expire();
        }
        self.sink.send();
        invalidator.is_listed(dir, tid);
    }

    pub(crate) fn canceller(&mut self) -> Canceller {
        self.sink.canceller()
    }

    pub(crate) fn fail(self, why: shoal_types::Errno) {
        self.sink.fail(why);
    }
}

/// The inode of an entry, with the time for which the kernel may cache it.
fn of<'a>(shared: &Shared, attr_request: AttrRequest, ino: InodeId, inode: &'a Inode) -> EntryAttr<'a> {
    let lifetime =
        if shared.invalidator.may_keep(attr_request, ino, inode) { name_lifetime() } else { Duration::ZERO };
    EntryAttr { inode, lifetime }
}
