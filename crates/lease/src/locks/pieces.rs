//! The locks of one owner in one file: disjoint pieces in order, adjacent ones of the same kind joined.

use super::record::{LockKind, LockRange};
use std::collections::BTreeMap;

/// A range that is locked in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub range: LockRange,
    pub kind: LockKind,
    pub pid: u32,
}

/// The pieces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Pieces {
    by_start: BTreeMap<u64, Piece>,
    /// How many of them are exclusive.
    exclusive: usize,
}

/// The pieces that a change removes and inserts.
pub(super) struct Plan {
    out: Vec<u64>,
    put: Vec<Piece>,
    /// Whether another owner's request may succeed after it that failed before.
    pub frees: bool,
}

impl Plan {
    /// How many pieces more there are afterwards.
    pub(super) fn growth(&self) -> isize {
        self.put.len() as isize - self.out.len() as isize
    }

    /// Removes a range from a piece.
    fn cut(&mut self, piece: &Piece, range: LockRange) {
        self.out.push(piece.range.start());
        self.put
            .extend(piece.range.around(range).into_iter().flatten().map(|range| Piece { range, ..*piece }));
    }
}

impl Pieces {
    /// The pieces of an owner without locks.
    pub(super) const NONE: &Pieces = &Pieces { by_start: BTreeMap::new(), exclusive: 0 };

    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.by_start.values()
    }

    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(super) fn has_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// The pieces that overlap a range or adjoin it, last first.
    fn near(&self, range: LockRange) -> impl Iterator<Item = &Piece> {
        let from_the_end = self.by_start.range(..=range.end() + 1).rev().map(|(_, piece)| piece);
        from_the_end.take_while(move |piece| piece.range.touches(range))
    }

    /// The first piece that another owner's lock would conflict with.
    pub(super) fn conflict(&self, range: LockRange, kind: LockKind) -> Option<&Piece> {
        self.near(range).filter(|piece| piece.range.overlaps(range) && piece.kind.conflicts(kind)).last()
    }

    /// The change that sets a lock in place of what the owner has in that range.
    pub(super) fn plan_set(&self, lock: Piece) -> Plan {
        let mut plan = Plan { out: Vec::new(), put: Vec::new(), frees: false };
        let mut joined = lock;
        for piece in self.near(lock.range) {
            if piece.kind == lock.kind {
                plan.out.push(piece.range.start());
                joined.range = joined.range.enclosing(piece.range);
            } else if piece.range.overlaps(lock.range) {
                plan.cut(piece, lock.range);
                plan.frees |= lock.kind == LockKind::Read;
            }
        }
        plan.put.push(joined);
        plan
    }

    /// The change that releases a range.
    pub(super) fn plan_clear(&self, range: LockRange) -> Plan {
        let mut plan = Plan { out: Vec::new(), put: Vec::new(), frees: false };
        for piece in self.near(range).filter(|piece| piece.range.overlaps(range)) {
            plan.cut(piece, range);
            plan.frees = true;
        }
        plan
    }

    pub(super) fn apply(&mut self, plan: Plan) {
        for start in plan.out {
            let piece = self.by_start.remove(&start);
            self.exclusive -= usize::from(piece.is_some_and(|piece| piece.kind == LockKind::Write));
        }
        for piece in plan.put {
            self.by_start.insert(piece.range.start(), piece);
            self.exclusive += usize::from(piece.kind == LockKind::Write);
        }
    }
}
