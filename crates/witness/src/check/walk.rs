//! The inodes that a path may have led to, walked name by name while the tree changes.

use crate::model::{Errno, Id, PathTarget, ROOT, State};
use crate::ops::{Name, Path};

/// All possible results of walking a path since the call began. Later states only add to it.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Walk {
    names: Vec<Name>,
    /// After each number of names, the inodes that these may have led to; sorted.
    reached: Vec<Vec<Id>>,
    /// The last name must lead to a directory, too.
    to_dir: bool,
    /// How the walk may have failed; sorted.
    failures: Vec<Errno>,
}

fn add<T: Ord + Copy>(set: &mut Vec<T>, one: T) {
    if let Err(at) = set.binary_search(&one) {
        set.insert(at, one);
    }
}

impl Walk {
    /// A walk that has not begun: follow with [`extend`](Self::extend).
    pub(super) fn new(path: &Path, target: PathTarget) -> Self {
        let names = match target {
            PathTarget::Inode => path.names().to_vec(),
            PathTarget::Parent => path.split_last().map(|(_, parents)| parents.to_vec()).unwrap_or_default(),
        };
        let mut reached = vec![Vec::new(); names.len() + 1];
        reached[0].push(ROOT);
        Self { names, reached, to_dir: target == PathTarget::Parent, failures: Vec::new() }
    }

    /// A walk that has ended.
    pub(super) fn at(id: Id) -> Self {
        Self { reached: vec![vec![id]], ..Self::default() }
    }

    /// Steps that can be made in this state.
    pub(super) fn extend(&mut self, state: &State) {
        for (depth, name) in self.names.iter().enumerate() {
            let (before, after) = self.reached.split_at_mut(depth + 1);
            for dir in &before[depth] {
                match state.lookup(*dir, *name) {
                    Ok(Some(id)) => add(&mut after[0], id),
                    Ok(None) => add(&mut self.failures, libc::ENOENT),
                    Err(errno) => add(&mut self.failures, errno),
                }
            }
        }
        if self.to_dir {
            for dir in self.reached.last().into_iter().flatten() {
                if let Err(errno) = state.names(*dir) {
                    add(&mut self.failures, errno);
                }
            }
        }
    }

    /// The inodes where it may have ended.
    pub(super) fn ends(&self) -> &[Id] {
        self.reached.last().map(Vec::as_slice).unwrap_or_default()
    }

    /// How it may have failed.
    pub(super) fn failures(&self) -> &[Errno] {
        &self.failures
    }

    /// The names that it may still look up, or look up again, each in its directory.
    pub(super) fn looks(&self) -> impl Iterator<Item = (Id, Name)> {
        self.reached.iter().zip(&self.names).flat_map(|(dirs, name)| dirs.iter().map(|dir| (*dir, *name)))
    }

    /// All inodes it may be at.
    pub(super) fn reached(&self) -> impl Iterator<Item = Id> {
        self.reached.iter().flatten().copied()
    }

    /// Leaves removed inodes out. For calls only whose failure would not be seen.
    pub(super) fn prune(&mut self, state: &State) {
        for ids in &mut self.reached {
            ids.retain(|id| state.inode(*id).is_some_and(|inode| inode.names > 0));
        }
        self.failures.clear();
    }
}
