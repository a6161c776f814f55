//! Readahead of directories: sub-directories of a listing, and directories on the way of a tree walk.
//!
//! A session that has created a tree holds each of its directories, so another client's walk would cost one
//! recall per directory. Instead, all sub-directories of a listing are recalled in one message. A directory
//! that was changed a moment ago is in use, and is recalled only when a program lists it.

use crate::leases::TermLeases;
use crate::limits::{LEFT_ALONE_AFTER, WALK_DIRS_MAX, WALK_RECALLS_MAX};
use crate::shared::Shared;
use shoal_lease::ReadItem;
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{Fault, TreeError, query};
use shoal_types::{Cookie, InodeId, SessionId, Timestamp};
use shoal_wire::{MetaError, Prefetch, Query, ReadRequest};
use std::sync::Arc;

impl Shared {
    /// The sub-directories that have to be recalled, too, before a listing or a walk is answered. Directories
    /// that are in use are removed from a walk.
    pub(super) fn along(
        self: &Arc<Self>,
        term: u64,
        request: &mut ReadRequest,
    ) -> Result<Vec<ReadItem>, MetaError> {
        let (session, mut items) = (request.session, Vec::new());
        let (parents, after) = match &mut request.query {
            // A lookup of a single name does not wait for other directories.
            Query::List { dir, after, prefetch: Prefetch::Contents, .. } => (vec![*dir], *after),
            Query::Walk { dirs, .. } if dirs.len() > WALK_DIRS_MAX => {
                return Err(MetaError::Malformed("too many directories in one request".into()));
            }
            Query::Walk { dirs, .. } => {
                let quiet = self.not_in_use(term, session, dirs)?;
                dirs.retain(|dir| quiet.contains(dir));
                (dirs.clone(), Cookie::START)
            }
            _ => return Ok(items),
        };
        if self.with_table(term, |leases| leases.table.is_only(session))? {
            return Ok(items);
        }
        let state = self.store.snapshot();
        let mut children = Vec::new();
        for dir in parents {
            let room = WALK_RECALLS_MAX.saturating_sub(children.len());
            children.extend(self.tree(query::subdirectories(&state, dir, after, room))?);
        }
        drop(state);
        let held = |leases: &mut TermLeases| {
            children.retain(|child| {
                leases.table.is_held_by_another(session, *child) && !leases.table.is_busy(session, *child)
            });
        };
        self.with_table(term, held)?;
        let state = self.store.snapshot();
        for child in children {
            if self.tree(is_left_alone(&state, child))? {
                items.push(ReadItem::Node(child, child));
            }
        }
        Ok(items)
    }

    /// The directories of `dirs` that can be read without disturbing their holders.
    fn not_in_use(
        self: &Arc<Self>,
        term: u64,
        session: SessionId,
        dirs: &[InodeId],
    ) -> Result<Vec<InodeId>, MetaError> {
        let found = self.with_table(term, |leases| {
            let free = dirs.iter().filter(|dir| !leases.table.is_busy(session, **dir));
            free.map(|dir| (*dir, leases.table.is_held_by_another(session, *dir))).collect::<Vec<_>>()
        })?;
        let state = self.store.snapshot();
        let mut quiet = Vec::new();
        for (dir, held) in found {
            if !held || self.tree(is_left_alone(&state, dir))? {
                quiet.push(dir);
            }
        }
        Ok(quiet)
    }
}

/// Whether a directory was last changed a while ago.
fn is_left_alone(state: &(impl KvRead + ?Sized), dir: InodeId) -> Result<bool, TreeError> {
    let Some(inode) = query::record(state, dir)? else { return Ok(false) };
    let recently: Timestamp = (shoal_runtime::time::wall() - LEFT_ALONE_AFTER).into();
    Ok(inode.ctime < recently)
}

/// The directories of a walk that exist.
pub(super) fn about(
    state: &(impl KvRead + ?Sized),
    dirs: &[InodeId],
) -> Result<Vec<ReadItem>, Fault<TreeError>> {
    let mut items = Vec::new();
    for dir in dirs {
        if query::record(state, *dir)?.is_some() {
            items.push(ReadItem::Listing(*dir));
        }
    }
    Ok(items)
}
