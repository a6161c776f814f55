//! The holders of the locks of one family in one file.

use super::pieces::{Piece, Pieces, Plan};
use super::record::{LockKind, LockOwner, LockRange};
use shoal_types::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// The owners with a lock, and their locks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Holders {
    owners: BTreeMap<LockOwner, Pieces>,
    /// Owners with an exclusive lock: a shared request need not check other owners.
    exclusive: BTreeSet<LockOwner>,
}

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Every owner with a conflicting lock, with the first conflicting piece.
    pub(super) fn conflicts(
        &self,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> impl Iterator<Item = (LockOwner, &Piece)> {
        let shared = (kind == LockKind::Read).then_some(&self.exclusive);
        let some = shared.into_iter().flatten().filter_map(|other| self.owners.get_key_value(other));
        let all = shared.is_none().then_some(&self.owners).into_iter().flatten();
        let others = some.chain(all).filter(move |(other, _)| **other != owner);
        others.filter_map(move |(other, pieces)| Some((*other, pieces.conflict(range, kind)?)))
    }

    /// The locks of one owner.
    pub(super) fn of(&self, owner: LockOwner) -> &Pieces {
        self.owners.get(&owner).unwrap_or(Pieces::NONE)
    }

    /// The locks of all owners.
    pub(super) fn all(&self) -> impl Iterator<Item = (LockOwner, &Piece)> {
        self.owners.iter().flat_map(|(owner, pieces)| pieces.iter().map(|piece| (*owner, piece)))
    }

    /// The locks of all owners of a session.
    pub(super) fn of_session(&self, session: SessionId) -> impl Iterator<Item = (LockOwner, &Piece)> {
        let owners = LockOwner { session, owner: 0 }..=LockOwner { session, owner: u64::MAX };
        self.owners.range(owners).flat_map(|(owner, pieces)| pieces.iter().map(|piece| (*owner, piece)))
    }

    pub(super) fn apply(&mut self, owner: LockOwner, plan: Plan) {
        let pieces = self.owners.entry(owner).or_default();
        pieces.apply(plan);
        if pieces.has_exclusive() {
            self.exclusive.insert(owner);
        } else {
            self.exclusive.remove(&owner);
        }
        if pieces.is_empty() {
            self.owners.remove(&owner);
        }
    }

    /// Removes all locks of an owner; returns how many there were.
    pub(super) fn remove_owner(&mut self, owner: LockOwner) -> usize {
        self.exclusive.remove(&owner);
        self.owners.remove(&owner).map_or(0, |pieces| pieces.len())
    }

    /// Removes all locks of a session's owners; returns how many there were.
    pub(super) fn remove_session(&mut self, session: SessionId) -> usize {
        let before = self.len();
        self.exclusive.retain(|owner| owner.session != session);
        self.owners.retain(|owner, _| owner.session != session);
        before - self.len()
    }

    fn len(&self) -> usize {
        self.owners.values().map(Pieces::len).sum()
    }
}
