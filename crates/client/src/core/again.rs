//! Calls that the kernel has decided on by names that others have changed since. Where that matters they fail with `ESTALE`: the kernel looks again,
//! and comes back (see [`retries`](super::retries)).

use super::cache::{Body, Node};
use super::retries::{Retry, Then};
use super::{Core, Outcome};
use crate::api::{Caller, Entry};
use crate::limits::UNSEEN_NAMES_MAX;
use bytes::Bytes;
use shoal_namespace::{Dentry, Fault, Op};
use shoal_types::{Errno, InodeId, Name, Timestamp};
use shoal_wire::MOVES;

impl Core {
    /// Makes a file, or sends the thread that would have made it back to look what the name stands for, if it is there.
    pub(crate) fn create_or_find(
        &mut self,
        by: u32,
        caller: &Caller,
        parent: InodeId,
        name: &Name,
        mode: u32,
        now: Timestamp,
    ) -> Outcome<Entry> {
        self.alive()?;
        self.retries.by = by;
        if self.resolve(parent, name)?.is_some() {
            let (names, then) = (vec![(parent, name.clone())], Then::Opens);
            self.retries.expect(Retry { names, then, keeps: vec![parent], refused: now });
            return Err(Errno::ESTALE.into());
        }
        let made = self.create(caller, parent, name, mode, 0, &Bytes::new(), now);
        if !matches!(made, Err(Fault::Tree(_))) {
            self.retries.came_back(&[(parent, name)]);
        }
        made
    }

    /// Makes sure that a thread which was refused, and looks at a name of that call again, may do at once what it comes back for. Answers what is not
    /// given back until then; `None` if there is nothing that it could come back for.
    pub(super) fn may_come_back(
        &mut self,
        by: u32,
        dir: InodeId,
        name: &Name,
    ) -> Outcome<Option<Vec<InodeId>>> {
        let Some(retry) = self.retries.looks_again(by, dir, name).cloned() else { return Ok(None) };
        match self.may_do_again(&retry) {
            Ok(keeps) => Ok(Some(keeps)),
            Err(Fault::Tree(need)) => Err(Fault::Tree(need)),
            // A directory is gone, which it will hear.
            Err(Fault::Errno(_)) => Ok(None),
        }
    }

    fn may_do_again(&mut self, Retry { names, then, .. }: &Retry) -> Outcome<Vec<InodeId>> {
        // What is not known comes with the rights. It is not asked for: the other directory may be gone, which is no answer to this lookup.
        let mut known = |(dir, name): &(InodeId, Name)| Some(self.cached_name(*dir, name)??.ino);
        let subjects: Vec<InodeId> = names.iter().filter_map(&mut known).collect();
        let named: Vec<(InodeId, &Name)> = names.iter().map(|(dir, name)| (*dir, name)).collect();
        let keeps = keeps(&named, &subjects);
        match then {
            // It is opened.
            Then::Opens if !subjects.is_empty() => {}
            Then::Opens => self.may_name_all(&named, &[], false)?,
            Then::Removes | Then::Renames(_) => self.may_name_all(&named, &subjects, true)?,
        }
        Ok(keeps)
    }

    /// What a name stands for, as far as that is known.
    fn cached_name(&mut self, dir: InodeId, name: &Name) -> Option<Option<Dentry>> {
        match self.cache.node(dir)? {
            Node { body: Body::Directory(names), .. } => names.get(name),
            _ => None,
        }
    }

    /// Somebody else is going to change a name.
    pub(super) fn forget_name(&mut self, dir: InodeId, name: &Name) {
        if self.unseen.len() >= UNSEEN_NAMES_MAX {
            self.unseen.clear();
        }
        let known = self.cached_name(dir, name);
        // What the kernel was told is what it stood for at first.
        self.unseen.entry((dir, name.clone())).or_insert(known.map(|dentry| dentry.map(|dentry| dentry.ino)));
    }

    /// The kernel knows what a name stands for.
    pub(super) fn is_known(&mut self, dir: InodeId, name: &Name) {
        if !self.unseen.is_empty() {
            self.unseen.remove(&(dir, name.clone()));
        }
    }

    /// The kernel is told that a call has succeeded, and so knows what has become of the names; but which of two files it has moved it may be
    /// mistaken about.
    pub(super) fn has_named(&mut self, op: &Op, subjects: &[InodeId]) {
        match op {
            Op::Create { parent, name, .. }
            | Op::Unlink { parent, name, .. }
            | Op::Rmdir { parent, name, .. } => self.is_known(*parent, name),
            Op::Rename { from, from_name, to, to_name, .. }
                if subjects.iter().any(|ino| self.cache.is_directory(*ino)) =>
            {
                self.is_known(*from, from_name);
                self.is_known(*to, to_name);
                // The kernel has moved them, too.
                for (ino, dir) in subjects.iter().zip([to, from]) {
                    self.refs.place(*ino, *dir);
                }
            }
            _ => {}
        }
    }

    /// Fails with `ESTALE` if a directory would be removed or moved that is perhaps not the one that the kernel means: it looks again, and
    /// comes back. A name that stands for the same again, or still, is no reason.
    pub(super) fn was_seen(&mut self, op: &Op, subjects: &[InodeId]) -> Outcome<()> {
        let unseen = |dir: &InodeId, name: &Name, now: Option<&InodeId>| {
            let before = self.unseen.get(&(*dir, name.clone()));
            before.is_some_and(|before| *before != Some(now.copied()))
        };
        let stale = match op {
            _ if self.unseen.is_empty() => false,
            Op::Rmdir { parent, name, .. } => unseen(parent, name, subjects.first()),
            // A directory has one name: to move it there is to leave it.
            Op::Rename { from, from_name, to, to_name, .. } => {
                (from, from_name) != (to, to_name)
                    && subjects.iter().any(|ino| self.cache.is_directory(*ino))
                    && (unseen(from, from_name, subjects.first()) || unseen(to, to_name, subjects.get(1)))
            }
            _ => false,
        };
        let (names, then, refused) = match op {
            Op::Rmdir { parent, name, time, .. } => (vec![(*parent, name)], Then::Removes, *time),
            Op::Rename { from, from_name, to, to_name, flags, time, .. } => {
                (vec![(*from, from_name), (*to, to_name)], Then::Renames(*flags), *time)
            }
            _ => return Ok(()),
        };
        if !stale {
            self.retries.came_back(&names);
            return Ok(());
        }
        let keeps = keeps(&names, subjects);
        let names = names.into_iter().map(|(dir, name)| (dir, name.clone())).collect();
        self.retries.expect(Retry { names, then, keeps, refused });
        Err(Errno::ESTALE.into())
    }
}

/// What a call about these names, which stand for these inodes, keeps.
fn keeps(names: &[(InodeId, &Name)], subjects: &[InodeId]) -> Vec<InodeId> {
    names.iter().map(|(dir, _)| *dir).chain(subjects.iter().copied()).chain([MOVES]).collect()
}
