//! Lookups and other reads: the session is registered as a watcher first, then the store is read.

use super::walk;
use crate::leases::Parked;
use crate::limits::READ_ROUNDS_MAX;
use crate::shared::Shared;
use shoal_lease::{Answer, ReadItem, RequestId};
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{Fault, TreeError, query};
use shoal_runtime::planted::mistake;
use shoal_types::{Errno, InodeId};
use shoal_wire::{DirEntry, Done, Found, MetaError, Query, ReadReply, ReadRequest};
use std::collections::BTreeSet;
use std::sync::Arc;

type Answered<T> = Result<T, Fault<TreeError>>;

impl Shared {
    /// Answers from the store, for a client that does not cache the reply.
    pub(super) fn read_unleased(&self, term: u64, request: &ReadRequest) -> Result<ReadReply, MetaError> {
        let found = self.read(answer(&self.store.snapshot(), &request.query))?;
        self.still_leads(term)?;
        Ok(ReadReply { term, found, exclusive: Vec::new() })
    }

    /// Tries once to answer a read, whether it has waited or is new.
    pub(super) fn continue_read(
        self: &Arc<Self>,
        term: u64,
        id: Option<RequestId>,
        request: ReadRequest,
        done: Done<ReadReply>,
    ) {
        let mut kept = Some((request, done));
        let outcome = self.try_read(term, id, &mut kept);
        if let (Some(outcome), Some((_, done))) = (outcome, kept) {
            done(outcome);
        }
    }

    /// `None`: it is parked.
    fn try_read(
        self: &Arc<Self>,
        term: u64,
        mut id: Option<RequestId>,
        kept: &mut Option<(ReadRequest, Done<ReadReply>)>,
    ) -> Option<Result<ReadReply, MetaError>> {
        let (request, _) = kept.as_mut()?;
        // For a request that has waited, the sub-directories were recalled before.
        let along = if id.is_none() { self.along(term, request) } else { Ok(Vec::new()) };
        let request = request.clone();
        let asked = self.read(about(&self.store.snapshot(), &request.query));
        let mut items = match (asked, along) {
            (Ok(items), Ok(along)) => [items, along].concat(),
            (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
        };
        for _ in 0..READ_ROUNDS_MAX {
            let (mut held, mut exclusive) = (BTreeSet::new(), Vec::new());
            let registered = self.with_table(term, |leases| {
                let table = &mut leases.table;
                table.arrived(request.session, request.below.0);
                let answer = match id {
                    None => table.read(request.session, request.token.0, &items),
                    Some(id) => table
                        .retry_read(id, request.session, request.token.0, &items)
                        .map(|answer| (id, answer)),
                };
                match answer {
                    Err(_) => Err(MetaError::Fenced(request.session)),
                    Ok((number, Answer::Ready)) => {
                        id = Some(number);
                        held = listed(&request.query)
                            .iter()
                            .flat_map(|dir| table.held_by_others(request.session, *dir))
                            .collect();
                        exclusive = table.alone(request.session, &items);
                        Ok(true)
                    }
                    Ok((number, Answer::Waits)) => {
                        if let Some((request, done)) = kept.take() {
                            leases.park(number, Parked::Read(request, done));
                        }
                        Ok(false)
                    }
                }
            });
            match registered {
                Err(error) | Ok(Err(error)) => return Some(Err(error)),
                Ok(Ok(false)) => return None,
                Ok(Ok(true)) => {}
            }
            tracing::trace!(session = %request.session, token = request.token.0, ?items, ?exclusive, "watched");
            let state = self.store.snapshot();
            let now = match self.read(about(&state, &request.query)) {
                Ok(now) => now,
                Err(error) => return Some(Err(error)),
            };
            if now.iter().any(|item| !items.contains(item)) {
                // The name leads elsewhere by now, or the inode has another cover.
                items = now;
                continue;
            }
            let found = match self.read(answer(&state, &request.query)) {
                Ok(Found::List(mut reply)) => {
                    let dir = listed(&request.query).iter().copied();
                    let mut dirs = dir.zip(std::iter::once(&mut reply.entries));
                    self.list_children(term, &request, &held, &mut dirs).map(|()| Found::List(reply))
                }
                Ok(Found::Walk(mut reply)) => {
                    let mut dirs =
                        reply.dirs.iter_mut().filter_map(|(dir, entries)| Some((*dir, entries.as_mut()?)));
                    self.list_children(term, &request, &held, &mut dirs).map(|()| Found::Walk(reply))
                }
                other => other,
            };
            return Some(
                found.and_then(|found| self.still_leads(term).map(|()| ReadReply { term, found, exclusive })),
            );
        }
        Some(Err(MetaError::Unavailable("the names or covers in the request change too often".into())))
    }

    /// Entries that another session may be changing are returned without their records. Sub-directories and
    /// files with several names have covers of their own, so they are registered and read again.
    fn list_children(
        self: &Arc<Self>,
        term: u64,
        request: &ReadRequest,
        held: &BTreeSet<InodeId>,
        dirs: &mut dyn Iterator<Item = (InodeId, &mut Vec<DirEntry>)>,
    ) -> Result<(), MetaError> {
        let mut again = Vec::new();
        self.with_table(term, |leases| {
            for (dir, entries) in dirs {
                for entry in entries {
                    let Some(record) = &entry.record else { continue };
                    let cover = record.inode.cover(record.ino);
                    if cover == dir {
                        if held.contains(&record.ino) {
                            entry.record = None;
                        }
                    } else if mistake("forget the watchers of hard links")
                        || leases.table.read_along(request.session, request.token.0, record.ino, cover)
                    {
                        again.push((record.ino, cover, &mut entry.record));
                    } else {
                        entry.record = None;
                    }
                }
            }
        })?;
        if again.is_empty() {
            return Ok(());
        }
        let state = self.store.snapshot();
        for (ino, cover, record) in again {
            let fresh = match query::inode(&state, ino) {
                Ok(record) => Some(record),
                Err(Fault::Errno(_)) => None,
                Err(fault) => return self.read(Err(fault)),
            };
            *record = fresh.filter(|record| record.inode.cover(ino) == cover);
        }
        Ok(())
    }
}

/// The directories that a read lists as a whole.
fn listed(query: &Query) -> &[InodeId] {
    match query {
        Query::List { dir, .. } => std::slice::from_ref(dir),
        Query::Walk { dirs, .. } => dirs,
        _ => &[],
    }
}

/// The items of a read in this state, for which its session is registered.
fn about(state: &(impl KvRead + ?Sized), query: &Query) -> Answered<Vec<ReadItem>> {
    Ok(match query {
        Query::Lookup { dir, name } => {
            let mut items = vec![ReadItem::Name(*dir, name.clone())];
            if let Some((ino, inode)) = query::resolve(state, *dir, name)? {
                items.push(ReadItem::Node(ino, inode.cover(ino)));
            }
            items
        }
        Query::Walk { dirs, .. } => walk::about(state, dirs)?,
        Query::List { dir, .. } => match query::record(state, *dir)? {
            Some(_) => vec![ReadItem::Listing(*dir)],
            // No right is granted to an inode that does not exist (yet).
            None => return Err(Errno::ENOENT.into()),
        },
        Query::Inode(ino) | Query::Extents { ino, .. } => match query::record(state, *ino)? {
            Some(inode) => vec![ReadItem::Node(*ino, inode.cover(*ino))],
            None => Vec::new(),
        },
    })
}

/// Answers a read from a state.
fn answer(state: &(impl KvRead + ?Sized), query: &Query) -> Answered<Found> {
    Ok(match query {
        Query::Lookup { dir, name } => Found::Lookup(Box::new(query::lookup(state, *dir, name)?)),
        Query::List { dir, after, prefetch, bytes_max } => {
            Found::List(query::list(state, *dir, *after, *prefetch, *bytes_max as usize)?)
        }
        Query::Walk { dirs, prefetch, bytes_target, bytes_max } => {
            Found::Walk(query::walk(state, dirs, *prefetch, *bytes_target as usize, *bytes_max as usize)?)
        }
        Query::Inode(ino) => Found::Inode(Box::new(query::inode(state, *ino)?)),
        Query::Extents { ino, start, end, count_max } => {
            Found::Extents(query::extents(state, *ino, *start, *end, *count_max as usize)?)
        }
    })
}
