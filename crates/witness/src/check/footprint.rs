//! What a call in progress depends on, and what it may still change. Independent calls, which do not
//! influence each other even through further calls, need not be tried in every order.

use crate::history::Call;
use crate::model::{Id, State};
use crate::ops::{How, Name, Op, Outcome};

/// A part of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The inode that a name in this directory leads to.
    Entry(Id, Name),
    /// The contents of this directory as a whole, and whether the directory exists.
    Members(Id),
    Links(Id),
    Content(Id),
    Ino(Id),
    /// The parents of all directories.
    Tree,
}

/// The kind of access. `Look` commutes with `Look`, and `Alter` with `Alter`; no other pair commutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touch {
    Look,
    /// A change whose order among such changes does not matter.
    Alter,
    Write,
}

/// All accesses of a call.
#[derive(Default, Debug)]
pub(super) struct Footprint(Vec<(Part, Touch)>);

impl Footprint {
    /// The footprint of a call whose paths may have led to `first` and `second`.
    pub(super) fn of(
        state: &State,
        call: &Call,
        walked: impl Iterator<Item = (Id, Name)>,
        first: &[Id],
        second: &[Id],
    ) -> Self {
        let mut print = Self(walked.map(|(dir, name)| (Part::Entry(dir, name), Touch::Look)).collect());
        let changes = call.op.changes() && !matches!(call.outcome, Some(Outcome::Failed { .. }));
        match &call.op {
            Op::Open { path, create, .. } => {
                for dir in first {
                    let Some((name, _)) = path.split_last() else { continue };
                    let found = state.lookup(*dir, name).ok().flatten();
                    print.entry(*dir, name, changes && *create && found.is_none());
                    if let Some(id) = found {
                        print.ino(state, id);
                    }
                }
            }
            Op::Mkdir { path } | Op::Symlink { path, .. } | Op::Rmdir { path } | Op::Unlink { path } => {
                for dir in first {
                    let Some((name, _)) = path.split_last() else { continue };
                    print.replaced(state, *dir, name, changes);
                }
            }
            Op::Rename { from, to, how } => {
                let mut moves_dir = !changes;
                for (dirs, path) in [(first, from), (second, to)] {
                    for dir in dirs {
                        let Some((name, _)) = path.split_last() else { continue };
                        let found = state.lookup(*dir, name).ok().flatten();
                        moves_dir |= found.is_some_and(|id| state.is_dir(id));
                        if *how == How::Exchange || path == from && from != to {
                            print.entry(*dir, name, changes);
                        } else {
                            print.replaced(state, *dir, name, changes);
                        }
                    }
                }
                if moves_dir {
                    print.0.push((Part::Tree, if changes { Touch::Write } else { Touch::Look }));
                }
            }
            Op::Link { to, .. } => {
                for id in first {
                    print.0.push((Part::Links(*id), Touch::Look));
                    if changes {
                        print.0.push((Part::Links(*id), Touch::Alter));
                    }
                }
                for dir in second {
                    let Some((name, _)) = to.split_last() else { continue };
                    print.entry(*dir, name, changes);
                }
            }
            Op::List { .. } => print.0.extend(first.iter().map(|id| (Part::Members(*id), Touch::Look))),
            Op::Lstat { .. } | Op::Fstat { .. } => {
                for id in first {
                    let parts = [Part::Links(*id), Part::Content(*id), Part::Members(*id)];
                    print.0.extend(parts.map(|part| (part, Touch::Look)));
                    print.ino(state, *id);
                }
            }
            Op::Read { .. } => print.0.extend(first.iter().map(|id| (Part::Content(*id), Touch::Look))),
            Op::Truncate { .. } | Op::Write { .. } | Op::Ftruncate { .. } => {
                let touch = if changes { Touch::Write } else { Touch::Look };
                print.0.extend(first.iter().map(|id| (Part::Content(*id), touch)));
            }
            Op::Readlink { .. } | Op::Fsync { .. } => (),
        }
        print
    }

    /// An access to a name in a directory.
    fn entry(&mut self, dir: Id, name: Name, changes: bool) {
        let (entry, members) =
            if changes { (Touch::Write, Touch::Alter) } else { (Touch::Look, Touch::Look) };
        self.0.push((Part::Entry(dir, name), entry));
        self.0.push((Part::Members(dir), members));
    }

    /// An access to a name whose present inode loses that name.
    fn replaced(&mut self, state: &State, dir: Id, name: Name, changes: bool) {
        self.entry(dir, name, changes);
        let Some(id) = state.lookup(dir, name).ok().flatten() else { return };
        let (links, members) =
            if changes { (Touch::Alter, Touch::Write) } else { (Touch::Look, Touch::Look) };
        self.0.push((Part::Links(id), links));
        if state.is_dir(id) {
            self.0.push((Part::Members(id), members));
        }
    }

    /// Shows the inode's number, which fixes it if it is not known.
    fn ino(&mut self, state: &State, id: Id) {
        let known = state.inode(id).is_some_and(|inode| inode.ino.is_some());
        self.0.push((Part::Ino(id), if known { Touch::Look } else { Touch::Write }));
    }

    /// Whether the order of the two may matter.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0.iter().any(|(part, touch)| {
            other.0.iter().any(|(also, touches)| part == also && (touch != touches || *touch == Touch::Write))
        })
    }
}
