//! Fetches what a call needs from the metadata leader, with the right to cache it.
//!
//! A reply is installed and the call is repeated under one hold of the lock. So each fetch makes progress,
//! even if what it brought is recalled at once. A recall waits for the replies that were sent before it
//! ([`Tokens`](crate::tokens::Tokens)).

use crate::context::Context;
use crate::core::{Core, Need, Ticket};
use crate::failover::is_transient;
use crate::grants::Grants;
use crate::limits::{DIR_CONTENT_BYTES_MAX, DIR_CONTENT_CACHE_SHARE, LIST_PAGE_BYTES};
use crate::ship::Shipper;
use crate::tokens::Request;
use crate::trace::{Hop, waits};
use crate::walk::Walker;
use shoal_runtime::planted::mistake;
use shoal_runtime::time::Instant;
use shoal_types::{Cookie, Errno, InodeId, Name};
use shoal_wire::{
    Acquire, AcquireReply, Found, ListReply, MOVES, MetaError, Prefetch, Query, ReadReply, ReadRequest,
    Token, Want, wait_for,
};
use std::sync::Arc;

/// A reply that is to be installed in the core.
pub(crate) struct Fetched<'a> {
    install: Box<dyn FnOnce(&mut Core) -> bool + 'a>,
    /// The request counts as in flight until the reply is installed.
    request: Option<Request<'a>>,
}

impl Fetched<'_> {
    fn nothing() -> Fetched<'static> {
        Fetched { install: Box::new(|_| true), request: None }
    }

    /// Installs the reply. Returns false if it was discarded as outdated.
    pub(crate) fn install(self, core: &mut Core) -> bool {
        core.rights.missing.clear();
        self.request.as_ref().is_none_or(Request::counts) && (self.install)(core)
    }
}

/// Fetches what calls of a session need.
pub(crate) struct Fetcher {
    context: Arc<Context>,
    grants: Arc<Grants>,
    shipper: Arc<Shipper>,
    walker: Arc<Walker>,
}

impl Fetcher {
    pub(crate) fn new(
        context: &Arc<Context>,
        grants: &Arc<Grants>,
        shipper: &Arc<Shipper>,
        walker: &Arc<Walker>,
    ) -> Fetcher {
        let (context, grants) = (context.clone(), grants.clone());
        Fetcher { context, grants, shipper: shipper.clone(), walker: walker.clone() }
    }

    /// Fetches what a call needs, or waits for it.
    pub(crate) fn fetch(&self, need: Need) -> Result<Fetched<'_>, Errno> {
        let done = |()| Fetched::nothing();
        match need {
            Need::Inode(ino) => self.fetch_inode(ino),
            Need::Name(dir, name) => self.fetch_name(dir, name),
            Need::Directory { dir, .. } if self.walker.wait(dir) => Ok(Fetched::nothing()),
            Need::Directory { dir, contents } => self.fetch_directory(dir, contents),
            Need::Extents(ino, start) => self.fetch_extents(ino, start),
            Need::Rights(wants) => {
                let dirs = locked_for(&wants);
                if self.context.state.lock().core.retries.wait_for(&dirs) {
                    self.context.changed.notify_all();
                }
                let fetched = self.fetch_rights(wants);
                if self.context.state.lock().core.retries.wait_ended(&dirs) {
                    self.context.changed.notify_all();
                }
                fetched
            }
            Need::Inodes => self.grants.fetch(0, true, || self.shipper.flush()).map(done),
            Need::Room(bytes) => self.grants.fetch(bytes, false, || self.shipper.flush()).map(done),
            Need::Window => self.shipper.wait_for_window().map(done),
            Need::LocalWaiters(dirs) => self.context.wait_for_turn(&dirs).map(done),
            Need::RecallDone(ino) => self.context.wait_for_recall(ino).map(done),
        }
    }

    fn ticket(&self) -> Ticket {
        self.context.state.lock().core.ticket()
    }

    /// Fetches an inode that no call waits for, and installs it.
    pub(crate) fn look_at(&self, ino: InodeId) -> Result<(), Errno> {
        let fetched = self.fetch_inode(ino)?;
        fetched.install(&mut self.context.state.lock().core);
        Ok(())
    }

    /// Reads at the leader, and waits for the reply.
    pub(crate) fn read(&self, query: Query) -> Result<(ReadReply, Request<'_>), Errno> {
        self.attempts(|token, below| {
            let _waits = waits(Hop::Metadata, || token.request_name(self.context.id, &format!("{query:?}")));
            let request = ReadRequest { session: self.context.id, token, below, query: query.clone() };
            wait_for(|done| self.context.transport.meta.read(request, done))
        })
    }

    /// Repeats a request until a leader has answered it. Each attempt has a new token, because the reply to
    /// an earlier one may be lost with its connection: no recall may wait for a lost reply, least of all one
    /// for which the next attempt waits.
    fn attempts<T>(
        &self,
        attempt: impl Fn(Token, Token) -> Result<T, MetaError>,
    ) -> Result<(T, Request<'_>), Errno> {
        let until = self.context.until();
        loop {
            let request = self.context.tokens.begin();
            let error = match attempt(request.token, request.below) {
                Ok(reply) => return Ok((reply, request)),
                Err(error) => error,
            };
            let again = self.context.transport.failover.is_some() && is_transient(&error);
            if !again || self.context.state.lock().core.alive().is_err() {
                return Err(self.context.refused(error));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Errno::EIO);
            }
        }
    }

    fn fetch_inode(&self, ino: InodeId) -> Result<Fetched<'_>, Errno> {
        self.context.counters.lookups.add(1);
        let ticket = self.ticket();
        let (reply, request) = self.read(Query::Inode(ino))?;
        let Found::Inode(record) = reply.found else { return Err(self.context.unexpected_answer()) };
        self.context.groups.learn_records([&*record]);
        Ok(taken((request, ticket), reply.term, reply.exclusive, move |core| {
            core.install_inode(ticket, *record)
        }))
    }

    fn fetch_name(&self, dir: InodeId, name: Name) -> Result<Fetched<'_>, Errno> {
        self.context.counters.lookups.add(1);
        let ticket = self.ticket();
        let (reply, request) = self.read(Query::Lookup { dir, name: name.clone() })?;
        let Found::Lookup(found) = reply.found else { return Err(self.context.unexpected_answer()) };
        self.context.groups.learn_records(found.found.iter().map(|(_, record)| record));
        let install = move |core: &mut Core| core.install_name(ticket, dir, &name, found.found);
        Ok(taken((request, ticket), reply.term, reply.exclusive, install))
    }

    /// Fetches a listing with attributes, and with as many contents of files as the cache should take at
    /// once. If only contents are missing, fetches the next of them.
    fn fetch_directory(&self, dir: InodeId, contents: bool) -> Result<Fetched<'_>, Errno> {
        let (ticket, version, listed) = {
            let core = &self.context.state.lock().core;
            (core.ticket(), core.version(dir), core.contents_after(dir).filter(|_| contents))
        };
        let mut after = listed.unwrap_or(Cookie::START);
        let mut contents_after = Some(after);
        // Several programs may read directories at the same time.
        let share = self.context.shared.options.cache_bytes / DIR_CONTENT_CACHE_SHARE;
        let mut budget = if contents { share.min(DIR_CONTENT_BYTES_MAX) } else { 0 };
        loop {
            self.context.counters.listings.add(1);
            let prefetch = if budget > 0 { Prefetch::Contents } else { Prefetch::Attributes };
            let bytes_max = LIST_PAGE_BYTES as u64;
            let (reply, request) = self.read(Query::List { dir, after, prefetch, bytes_max })?;
            let Found::List(ListReply { entries, end }) = reply.found else {
                return Err(self.context.unexpected_answer());
            };
            self.context.groups.learn_records(entries.iter().filter_map(|entry| entry.record.as_ref()));
            let last = entries.last().map(|entry| entry.name.cookie());
            if budget > 0 {
                contents_after = if end { None } else { last };
            }
            budget = budget.saturating_sub(LIST_PAGE_BYTES);
            let is_last = end || (listed.is_some() && budget == 0);
            let page = taken((request, ticket), reply.term, reply.exclusive, move |core| {
                core.install_page(ticket, dir, entries);
                match listed {
                    Some(_) if is_last => core.install_contents_end(dir, version, contents_after),
                    None if end => core.install_end(ticket, dir, version, contents_after),
                    _ => {}
                }
            });
            if is_last {
                return Ok(page);
            }
            if !page.install(&mut self.context.state.lock().core) {
                // The page was discarded, so the listing will not be complete.
                return Ok(Fetched::nothing());
            }
            after = last.ok_or(Errno::EIO)?;
        }
    }

    fn fetch_extents(&self, ino: InodeId, start: u64) -> Result<Fetched<'_>, Errno> {
        self.context.counters.lookups.add(1);
        let (ticket, count_max) = {
            let core = &self.context.state.lock().core;
            (core.ticket(), core.extents_page(ino) as u64)
        };
        let query = Query::Extents { ino, start, end: u64::MAX, count_max };
        let (reply, request) = self.read(query)?;
        let Found::Extents(found) = reply.found else { return Err(self.context.unexpected_answer()) };
        self.context.groups.learn(found.blocks.iter().map(|(id, info)| (*id, info.group)));
        let install = move |core: &mut Core| core.install_extents(ticket, ino, start, found);
        Ok(taken((request, ticket), reply.term, reply.exclusive, install))
    }

    fn fetch_rights(&self, wants: Vec<Want>) -> Result<Fetched<'_>, Errno> {
        self.context.counters.acquires.add(1);
        let ticket = self.ticket();
        let (reply, request): (AcquireReply, _) = self.attempts(|token, below| {
            let _waits = waits(Hop::Metadata, || {
                token.request_name(self.context.id, &format!("rights to {}", inodes(&wants)))
            });
            let acquire = Acquire { session: self.context.id, token, below, wants: wants.clone() };
            wait_for(|done| self.context.transport.meta.acquire(acquire, done))
        })?;
        self.context.groups.learn_records(reply.records.iter());
        self.context
            .groups
            .learn_records(reply.names.iter().filter_map(|(_, _, found)| Some(&found.found.as_ref()?.1)));
        let term = reply.term;
        let install = move |core: &mut Core| core.install_rights(ticket, &wants, reply);
        Ok(taken((request, ticket), term, Vec::new(), install))
    }
}

/// The inodes of wants, for the trace.
fn inodes(wants: &[Want]) -> String {
    let names = |want: &Want| match want.names.len() {
        0 => format!("inode {}", want.ino.0),
        many => format!("{many} names in inode {}", want.ino.0),
    };
    wants.iter().map(names).collect::<Vec<_>>().join(", ")
}

/// The directories that the kernel has locked for a call with these wants: those in which it changes names.
/// `MOVES` is added if there are several (`s_vfs_rename_mutex`).
fn locked_for(wants: &[Want]) -> Vec<InodeId> {
    let mut dirs: Vec<InodeId> =
        wants.iter().filter(|want| !want.names.is_empty()).map(|want| want.ino).collect();
    dirs.dedup();
    if dirs.len() > 1 {
        dirs.push(MOVES);
    }
    dirs
}

/// A reply of a leader's term. It is discarded if the session's term is another one when it is installed.
fn taken<'a>(
    (request, ticket): (Request<'a>, Ticket),
    term: u64,
    exclusive: Vec<InodeId>,
    install: impl FnOnce(&mut Core) + 'a,
) -> Fetched<'a> {
    let install = move |core: &mut Core| {
        let counts = core.rights.term == term || mistake("cache replies of an earlier leader");
        if counts {
            core.install_exclusive(ticket, &exclusive);
            install(core);
        }
        counts
    };
    Fetched { install: Box::new(install), request: Some(request) }
}
